"""The evaluation as a Beam pipeline: measures each file, adds the files up, and writes TFMA's
files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tensorflow_metadata.proto.v0 import schema_pb2

from components.evaluator.batched.computations import (
    Computations,
    Metrics,
    computations_of,
    is_plot,
)
from components.evaluator.batched.reading import Asker, Question
from components.evaluator.batched.slices import Kind, NotByBatches, SliceKey, slice_columns
from components.evaluator.batched.tally import Grouper, Tally
from components.evaluator.batched.verdict import bounds_of, find_noise, validate
from components.evaluator.noise import NO_CHANCE, Noise, VerdictSettings, write_noise
from components.row_counts import check_total
from components.spreading import SpreadFiles

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationPlan:
    """The description of an evaluation that each worker receives."""

    config: tfma.EvalConfig
    """TFMA's config, which `Computations.of` and `slice_columns` support."""
    question: Question
    """The models to call and the columns to read."""
    columns: list[Kind]
    """The columns of each kind of slice."""
    settings: VerdictSettings
    """The verdict's settings for confidence intervals."""


class MeasureFile(beam.DoFn):
    """A DoFn from a file of examples, with its number, to the tally of its rows."""

    def __init__(self, plan: EvaluationPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        """Loads the models, once in a process."""
        self._asker = Asker(self._plan.question)

    def process(self, file: tuple[int, str]) -> Iterator[Tally]:
        """Yields the tally of the rows of one file."""
        plan, (number, name) = self._plan, file
        grouper = None
        if plan.settings.confidence is not None:
            grouper = Grouper(number, plan.settings.dependence)
        tally = Tally(plan.config, plan.columns, grouper)
        for answers in self._asker.read(name):
            tally.add(answers)
        yield tally


class AddUp(beam.CombineFn):
    """A CombineFn that merges the tallies of all files.

    The accumulator is a list of totals, each of more than twice the rows of the next. A file's
    tally is therefore merged only a few times, however many files there are.
    """

    def create_accumulator(self) -> list[Tally]:
        """Returns an empty list of totals."""
        return []

    def add_input(self, totals: list[Tally], found: Tally) -> list[Tally]:
        """Adds the tally of one file."""
        rest = list(totals)
        while rest and rest[-1].rows <= 2 * found.rows:
            earlier = rest.pop()
            earlier.merge(found)
            found = earlier
        return [*rest, found]

    def merge_accumulators(self, several: Iterable[list[Tally]]) -> list[Tally]:
        """Merges the totals of several processes."""
        merged = self.create_accumulator()
        for total in (total for totals in several for total in totals):
            merged = self.add_input(merged, total)
        return merged

    def extract_output(self, totals: list[Tally]) -> Tally | None:
        """Returns the total of all files; None if there was no file."""
        total: Tally | None = None
        for earlier in reversed(totals):
            if total is not None:
                earlier.merge(total)
            total = earlier
        return total


@dataclass(frozen=True)
class _Judged:
    """The metrics of all slices, and their confidence intervals."""

    slices: list[tuple[SliceKey, Metrics]]
    noise: Noise


def _judge(
    tally: Tally | None, settings: VerdictSettings, files: Sequence[str]
) -> Iterator[_Judged]:
    check_total("the evaluation", tally.rows if tally else 0, files)
    if tally is None or not tally.rows:
        return
    config, numbers = tally.config, tally.reported()
    slices = list(tally.results(numbers))
    sliced = {
        number: _metrics(key, found)[1]
        for number, (key, found) in zip(numbers, slices, strict=True)
    }

    def has_thresholds(key: SliceKey) -> bool:
        return any(bounds_of(name, key, config) for name in tally.computations.classes)

    yield _Judged(slices, find_noise(tally, sliced, settings, has_thresholds))


def _metrics(slice_key: SliceKey, found: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in found.items() if not is_plot(key)}


def _plots(slice_key: SliceKey, found: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in found.items() if is_plot(key)}


def evaluate(
    pipeline: beam.Pipeline, files: Sequence[str], plan: EvaluationPlan, output: str
) -> None:
    """Adds an evaluation to a Beam pipeline, which writes the same files as TFMA's own.

    Beside TFMA's files it writes the one that `read_noise` reads.

    Args:
      pipeline: the pipeline that the evaluation is added to.
      files: gzipped TFRecords of serialized tf.Examples.
      plan: the models, metrics and slices.
      output: the folder for TFMA's files.
    """
    config, settings = plan.config, plan.settings
    judged = (
        pipeline
        | "Files" >> SpreadFiles(list(enumerate(files)), files, asks_models=True)
        | "Measure" >> beam.ParDo(MeasureFile(plan))
        | "AddUp" >> beam.CombineGlobally(AddUp())
        | "Judge" >> beam.FlatMap(_judge, settings, list(files))
    )
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
        for name, path in plan.question.models.items()
    ]
    writers = tfma.default_writers(output, models, config)
    evaluation = {tfma.METRICS_KEY: metrics, tfma.VALIDATIONS_KEY: validations}
    if computations_of(config).have_plots:
        evaluation[tfma.PLOTS_KEY] = results | "Plots" >> beam.MapTuple(_plots)
    _ = evaluation | "Write" >> tfma.WriteResults(writers)


def evaluate_if_possible(
    make_pipeline: Callable[[], beam.Pipeline],
    files: Sequence[str],
    config: tfma.EvalConfig,
    schema: schema_pb2.Schema,
    models: Mapping[str, str],
    output: str,
    settings: VerdictSettings = NO_CHANCE,
    variants: Mapping[str, str] | None = None,
) -> bool:
    """Runs an evaluation by batches; returns False if TFMA has to compute some metric or slice.

    Args:
      make_pipeline: makes the Beam pipeline.
      files: gzipped TFRecords of serialized tf.Examples.
      config: TFMA's config.
      schema: the schema of the raw columns.
      models: the folder of each model, by TFMA's name of it, which is empty for a single model.
      output: the folder for TFMA's files.
      settings: the verdict's settings for confidence intervals.
      variants: the folder of the variant that predicts in a model's place, by the model's name.

    Raises:
      DataError: a slice cannot be named, or a row has no weight.
      RuntimeError: a model cannot read the examples.
    """
    columns = slice_columns(config)
    if columns is None or Computations.of(config) is None:
        logger.info(
            "TFMA computes the metrics: some metrics or slices have no batched implementation"
        )
        return False
    read = [*(name for names in columns for name in names), settings.dependence.column]
    question = Question.of(config, schema, read, models, variants or {})
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
