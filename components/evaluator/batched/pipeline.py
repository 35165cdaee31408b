"""The evaluation as a Beam pipeline: files to what they come to, added up, written as TFMA does."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import apache_beam as beam
import tensorflow_model_analysis as tfma

from components.evaluator.batched.crowds import (
    Counts,
    Crowded,
    Kind,
    Largest,
    add_up,
    find_largest,
)
from components.evaluator.batched.measuring import Metrics, is_plot
from components.evaluator.batched.reading import Asker, Question, read_raw_columns
from components.evaluator.batched.resampling.groups import Grouper
from components.evaluator.batched.resampling.intervals import find_noise
from components.evaluator.batched.resampling.tally import Tally, TallyFound, computations_of
from components.evaluator.batched.resampling.verdict import bounds_of, validate
from components.evaluator.batched.rows import NotByBatches
from components.evaluator.batched.slices import SliceKey, Slicer
from components.evaluator.eval_config import metric_classes
from components.evaluator.noise import Noise, write_noise
from components.evaluator.verdict_settings import NO_CHANCE, VerdictSettings
from components.row_counts import check_total
from components.spreading import SpreadFiles

logger = logging.getLogger(__name__)

NumberedFile: TypeAlias = tuple[int, str]
"""A file of examples with its number among those of the evaluation."""
Found: TypeAlias = TallyFound | Crowded
"""What rows come to, or that they are in too many slices."""


@dataclass(frozen=True)
class EvaluationPlan:
    """What a worker needs to know of an evaluation."""

    config: tfma.EvalConfig
    """TFMA's, which `Computations.of` and `slice_columns` can do."""
    question: Question
    """What is read, and asked of the models."""
    columns: list[Kind]
    """Of each kind of slices the columns that it is by."""
    settings: VerdictSettings
    """What the verdict makes of chance."""


class _Measure(beam.DoFn):
    """From a file of examples, with its number, to what its rows come to."""

    def __init__(self, plan: EvaluationPlan) -> None:
        self._plan = plan

    def _measure(
        self, file: NumberedFile, asker: Asker, largest: Mapping[Kind, Largest] | None = None
    ) -> Found:
        """Reads one file; not to its end where there are too many slices."""
        plan, (number, name) = self._plan, file
        grouper = None
        if plan.settings.confidence is not None:
            grouper = Grouper(number, plan.settings.dependence)
        tally = Tally.start(plan.config, plan.columns, grouper, largest)
        for answers in asker.read(name):
            tally.add(answers)
            if tally.is_crowded:
                break
        return tally.found()


class MeasureFile(_Measure):
    """With all slices, unless there are too many."""

    def setup(self) -> None:
        """Loads the models, once in a process."""
        self._asker = Asker(self._plan.question)

    def process(self, file: NumberedFile) -> Iterator[Found]:
        """Measures the rows of one file."""
        yield self._measure(file, self._asker)


class MeasureLargest(_Measure):
    """With the largest slices alone of kinds of too many, where there are such."""

    def setup(self) -> None:
        """Loads no model before it is needed."""
        self._asker: Asker | None = None

    def process(self, file: NumberedFile, largest: dict[Kind, Largest]) -> Iterator[Found]:
        """Measures the rows of one file, if that is still to be done."""
        if largest:
            self._asker = self._asker or Asker(self._plan.question)
            yield self._measure(file, self._asker, largest)


def _count_slices(
    file: NumberedFile, total: Found | None, plan: EvaluationPlan
) -> Iterator[dict[Kind, Counts]]:
    """How many rows of a file are in each slice, where there are too many to measure all."""
    if isinstance(total, Crowded):
        slicer, counts = Slicer(plan.columns), defaultdict[Kind, Counts](Counts)
        for batch in read_raw_columns(plan.question, file[1]):
            for kind, (hashes, rows) in slicer.count(batch).items():
                counts[kind].add(hashes, rows)
        yield dict(counts)


class AddUp(beam.CombineFn):
    """Of all files together.

    The accumulator is totals, each of more than twice the rows of the next: so what a file comes to
    is added a few times, however many files there are.
    """

    def __init__(self, config: tfma.EvalConfig) -> None:
        super().__init__()
        self._config = config

    def create_accumulator(self) -> list[Found]:
        """None so far."""
        return []

    def add_input(self, totals: list[Found], found: Found) -> list[Found]:
        """Adds one file."""
        rest = list(totals)
        while rest and _rows(rest[-1]) <= 2 * _rows(found):
            found = self._add(rest.pop(), found)
        return [*rest, found]

    def merge_accumulators(self, several: Iterable[list[Found]]) -> list[Found]:
        """Adds what several processes have added up."""
        merged = self.create_accumulator()
        for total in (total for totals in several for total in totals):
            merged = self.add_input(merged, total)
        return merged

    def extract_output(self, totals: list[Found]) -> Found | None:
        """All of them together; None of no file."""
        total: Found | None = None
        for earlier in reversed(totals):
            total = earlier if total is None else self._add(earlier, total)
        return total

    def _add(self, total: Found, found: Found) -> Found:
        if isinstance(total, Crowded) or isinstance(found, Crowded):
            return Crowded()
        tally = Tally.resume(self._config, total)
        tally.merge(Tally.resume(self._config, found))
        return tally.found()


def _rows(found: Found) -> int:
    """How many there are; none where they are not added up."""
    return 0 if isinstance(found, Crowded) else found.found.rows


@dataclass(frozen=True)
class _Judged:
    """The metrics of all slices, and what is known of the chance in them."""

    slices: list[tuple[SliceKey, Metrics]]
    noise: Noise


def _judge(
    total: Found | None,
    again: Found | None,
    config: tfma.EvalConfig,
    settings: VerdictSettings,
    files: Sequence[str],
) -> Iterator[_Judged]:
    total = again if isinstance(total, Crowded) else total
    rows = total.found.rows if isinstance(total, TallyFound) else 0
    check_total("the evaluation", rows, files)
    if not isinstance(total, TallyFound) or not rows:
        return
    tally, computations = Tally.resume(config, total), computations_of(config)
    numbers = tally.reported()
    slices = list(computations.results(tally.measurement, numbers))
    sliced = {
        number: _metrics(key, found)[1]
        for number, (key, found) in zip(numbers, slices, strict=True)
    }

    def has_thresholds(key: SliceKey) -> bool:
        return any(bounds_of(name, key, config) for name in metric_classes(config))

    yield _Judged(slices, find_noise(config, tally, sliced, settings, has_thresholds))


def _metrics(slice_key: SliceKey, found: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in found.items() if not is_plot(key)}


def _plots(slice_key: SliceKey, found: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in found.items() if is_plot(key)}


def evaluate(
    pipeline: beam.Pipeline,
    files: Sequence[str],
    plan: EvaluationPlan,
    output: str,
) -> None:
    """Adds an evaluation to a Beam pipeline, which leaves what TFMA's own would leave.

    Beside TFMA's files it leaves one that `read_noise` reads.

    Args:
      pipeline: to add it to.
      files: gzipped TFRecords of serialized tf.Examples.
      plan: what is measured.
      output: the folder for TFMA's files.
    """
    config, question, settings = plan.config, plan.question, plan.settings
    numbered = pipeline | "Files" >> SpreadFiles(list(enumerate(files)), files, asks_models=True)
    total = (
        numbered
        | "Measure" >> beam.ParDo(MeasureFile(plan))
        | "AddUp" >> beam.CombineGlobally(AddUp(config))
    )
    again = _measure_crowds(numbered, total, plan) if plan.columns else None
    judged = total | "Judge" >> beam.FlatMap(_judge, again, config, settings, list(files))
    _ = judged | "WriteNoise" >> beam.Map(lambda found: write_noise(found.noise, output))
    validations = judged | "Validate" >> beam.FlatMap(
        lambda found: [
            validate(_metrics(*one), config, found.noise, settings) for one in found.slices
        ]
    )
    results = judged | "Results" >> beam.FlatMap(lambda found: found.slices)
    metrics = results | "Metrics" >> beam.MapTuple(_metrics)
    models = [
        tfma.default_eval_shared_model(path, model_name=name, eval_config=config)
        for name, path in question.models.items()
    ]
    writers = tfma.default_writers(output, models, config)
    evaluation = {tfma.METRICS_KEY: metrics, tfma.VALIDATIONS_KEY: validations}
    if computations_of(config).have_plots:
        evaluation[tfma.PLOTS_KEY] = results | "Plots" >> beam.MapTuple(_plots)
    _ = evaluation | "Write" >> tfma.WriteResults(writers)


def _measure_crowds(
    files: beam.PCollection, total: beam.PCollection, plan: EvaluationPlan
) -> beam.pvalue.AsSingleton:
    """What the rows come to with the largest slices, where there are too many to measure all."""
    largest = (
        files
        | "CountSlices" >> beam.FlatMap(_count_slices, beam.pvalue.AsSingleton(total), plan)
        | "AddCounts" >> beam.CombineGlobally(add_up)
        | "FindLargest" >> beam.Map(find_largest)
    )
    return beam.pvalue.AsSingleton(
        files
        | "MeasureLargest" >> beam.ParDo(MeasureLargest(plan), beam.pvalue.AsSingleton(largest))
        | "AddUpLargest" >> beam.CombineGlobally(AddUp(plan.config))
    )


def evaluate_if_possible(
    make_pipeline: Callable[[], beam.Pipeline],
    files: Sequence[str],
    config: tfma.EvalConfig,
    question: Question,
    columns: list[tuple[str, ...]],
    output: str,
    settings: VerdictSettings = NO_CHANCE,
) -> bool:
    """Runs an evaluation; whether its values let it, or TFMA has to compute it.

    Args:
      make_pipeline: makes the Beam pipeline.
      files: as of `evaluate`.
      config: TFMA's.
      question: what is read, and asked of the models.
      columns: of each kind of slices the columns that it is by.
      output: the folder for TFMA's files.
      settings: what the verdict makes of chance.
    """
    plan = EvaluationPlan(config, question, columns, settings)
    try:
        with make_pipeline() as pipeline:
            evaluate(pipeline, files, plan, output)
    except Exception as error:  # Beam wraps what is raised in it.
        if NotByBatches.__name__ not in f"{type(error).__name__} {error}":
            raise
        logger.info("TFMA computes the metrics: %s", error)
        return False
    return True
