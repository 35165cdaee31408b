"""The evaluation as a Beam pipeline: files to what they come to, added up, written as TFMA does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import tensorflow_model_analysis as tfma

from components.evaluator.batched.measuring import Metrics, is_plot
from components.evaluator.batched.reading import Asker, Question
from components.evaluator.batched.resampling.intervals import find_noise
from components.evaluator.batched.resampling.tally import Tally, TallyFound, computations_of
from components.evaluator.batched.resampling.verdict import bounds_of, validate
from components.evaluator.batched.rows import NotByBatches
from components.evaluator.batched.slices import SliceKey
from components.evaluator.eval_config import metric_classes
from components.evaluator.noise import Noise, write_noise
from components.evaluator.verdict_settings import NO_CHANCE, VerdictSettings
from components.row_counts import check_total, count_read
from components.spreading import Spread

logger = logging.getLogger(__name__)


class MeasureFiles(beam.DoFn):
    """From a file of examples to what its rows come to."""

    def __init__(
        self,
        config: tfma.EvalConfig,
        question: Question,
        columns: list[tuple[str, ...]],
        by_groups: bool,
    ) -> None:
        self._config = config
        self._question = question
        self._columns = columns
        self._by_groups = by_groups
        self._asker: Asker | None = None

    def setup(self) -> None:
        """Loads the models, once in a process."""
        self._asker = Asker(self._question)

    def process(self, file: str) -> Iterator[TallyFound]:
        """Measures the rows of one file."""
        assert self._asker is not None  # noqa: S101 - Beam has called `setup`
        tally = Tally.start(self._config, self._columns, self._by_groups)
        for answers in self._asker.read([file]):
            tally.add(answers)
            count_read(file, len(answers.hashes))
        yield tally.found()


class AddUp(beam.CombineFn):
    """Of all files together."""

    def __init__(self, config: tfma.EvalConfig) -> None:
        super().__init__()
        self._config = config

    def create_accumulator(self) -> TallyFound | None:
        """None so far."""
        return None

    def add_input(self, total: TallyFound | None, found: TallyFound) -> TallyFound:
        """Adds one file."""
        if total is None:
            return found
        tally = Tally.resume(self._config, total)
        tally.merge(Tally.resume(self._config, found))
        return tally.found()

    def merge_accumulators(self, totals: Iterable[TallyFound | None]) -> TallyFound | None:
        """Adds what several processes have added up."""
        merged: TallyFound | None = None
        for total in totals:
            if total is not None:
                merged = self.add_input(merged, total)
        return merged

    def extract_output(self, total: TallyFound | None) -> TallyFound | None:
        """As it is."""
        return total


@dataclass(frozen=True)
class _Judged:
    """The metrics of all slices, and what is known of the chance in them."""

    slices: list[tuple[SliceKey, Metrics]]
    noise: Noise


def _judge(
    total: TallyFound | None,
    config: tfma.EvalConfig,
    settings: VerdictSettings,
    files: Sequence[str],
) -> Iterator[_Judged]:
    check_total("the evaluation", total.found.rows if total else 0, files)
    if total is None or not total.found.rows:
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

    yield _Judged(slices, find_noise(config, tally, sliced, settings.confidence, has_thresholds))


def _metrics(slice_key: SliceKey, found: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in found.items() if not is_plot(key)}


def _plots(slice_key: SliceKey, found: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in found.items() if is_plot(key)}


def evaluate(
    pipeline: beam.Pipeline,
    files: Sequence[str],
    config: tfma.EvalConfig,
    question: Question,
    columns: list[tuple[str, ...]],
    output: str,
    settings: VerdictSettings,
) -> None:
    """Adds an evaluation to a Beam pipeline, which leaves what TFMA's own would leave.

    Beside TFMA's files it leaves one that `read_noise` reads.

    Args:
      pipeline: to add it to.
      files: gzipped TFRecords of serialized tf.Examples.
      config: TFMA's, which `Computations.of` and `slice_columns` can do.
      question: what is read, and asked of the models.
      columns: of each kind of slices the columns that it is by.
      output: the folder for TFMA's files.
      settings: what the verdict makes of chance.
    """
    judged = (
        pipeline
        | "Files" >> Spread(files, files, asks_models=True)
        | "Measure"
        >> beam.ParDo(MeasureFiles(config, question, columns, settings.confidence is not None))
        | "AddUp" >> beam.CombineGlobally(AddUp(config))
        | "Judge" >> beam.FlatMap(_judge, config, settings, list(files))
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
        for name, path in question.models.items()
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
    question: Question,
    columns: list[tuple[str, ...]],
    output: str,
    settings: VerdictSettings = NO_CHANCE,
) -> bool:
    """Runs an evaluation; whether its values let it, or TFMA has to compute it.

    Args:
      make_pipeline: makes the Beam pipeline.
      files: as of `evaluate`, like the others.
      config: TFMA's.
      question: what is read, and asked of the models.
      columns: of each kind of slices the columns that it is by.
      output: the folder for TFMA's files.
      settings: what the verdict makes of chance.
    """
    try:
        with make_pipeline() as pipeline:
            evaluate(pipeline, files, config, question, columns, output, settings)
    except Exception as error:  # Beam wraps what is raised in it.
        if NotByBatches.__name__ not in f"{type(error).__name__} {error}":
            raise
        logger.info("TFMA computes the metrics: %s", error)
        return False
    return True
