"""The evaluation in batches, as a Beam pipeline.

The pipeline measures each file, merges the results of the files, and writes TFMA's files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tensorflow_metadata.proto.v0 import schema_pb2

from components.evaluator.batched.accumulator import Accumulator, Grouper
from components.evaluator.batched.computations import (
    Computations,
    Metrics,
    computations_of,
    is_plot,
)
from components.evaluator.batched.reading import PredictionPlan, Predictor
from components.evaluator.batched.slices import Kind, SliceKey, UnsupportedInBatches, slice_columns
from components.evaluator.batched.verdict import bounds_of, compute_intervals, validate
from components.evaluator.intervals import (
    NO_INTERVALS,
    EvaluationIntervals,
    VerdictSettings,
    write_intervals,
)
from components.row_counts import check_total
from components.row_progress import count_rows
from components.spreading import SpreadFiles
from trainer_module.runtime import report_step

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationPlan:
    """The description of an evaluation that each worker receives."""

    config: tfma.EvalConfig
    """TFMA's config, which `Computations.of` and `slice_columns` support."""
    prediction: PredictionPlan
    """The models to call and the columns to read."""
    columns: list[Kind]
    settings: VerdictSettings


class MeasureFile(beam.DoFn):
    """A DoFn that reads a file of examples and yields the accumulator of its rows.

    An element is the number and the path of the file.
    """

    def __init__(self, plan: EvaluationPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        """Loads the models once per process."""
        report_step("loads the models")
        self._predictor = Predictor(self._plan.prediction)

    def process(self, file: tuple[int, str]) -> Iterator[Accumulator]:
        """Yields the accumulator of the rows of one file."""
        plan, (number, name) = self._plan, file
        grouper = None
        if plan.settings.confidence is not None:
            grouper = Grouper(number, plan.settings.dependence)
        accumulator = Accumulator(plan.config, plan.columns, grouper)
        for batch in self._predictor.read(name):
            accumulator.add(batch)
            count_rows(batch.rows)
        yield accumulator


class MergeAccumulators(beam.CombineFn):
    """A CombineFn that merges the accumulators of all files.

    Beam's accumulator is a list of totals, and each total has more than twice the rows of the next
    total. Even if there are many files, the accumulator of a file is merged only a few times.
    """

    def create_accumulator(self) -> list[Accumulator]:
        """Returns an empty list of totals."""
        return []

    def add_input(self, totals: list[Accumulator], accumulator: Accumulator) -> list[Accumulator]:
        """Adds the accumulator of one file."""
        remaining = list(totals)
        while remaining and remaining[-1].rows <= 2 * accumulator.rows:
            previous = remaining.pop()
            previous.merge(accumulator)
            accumulator = previous
        return [*remaining, accumulator]

    def merge_accumulators(self, accumulators: Iterable[list[Accumulator]]) -> list[Accumulator]:
        """Merges the totals of several processes."""
        merged = self.create_accumulator()
        for total in (total for totals in accumulators for total in totals):
            merged = self.add_input(merged, total)
        return merged

    def extract_output(self, totals: list[Accumulator]) -> Accumulator | None:
        """Returns the total of all files, or None if there were no files."""
        total: Accumulator | None = None
        for earlier in reversed(totals):
            if total is not None:
                earlier.merge(total)
            total = earlier
        return total


@dataclass(frozen=True)
class _Evaluation:
    """The metrics of all slices, and their confidence intervals."""

    slices: list[tuple[SliceKey, Metrics]]
    intervals: EvaluationIntervals


def _compute_results(
    accumulator: Accumulator | None, settings: VerdictSettings, files: Sequence[str]
) -> Iterator[_Evaluation]:
    check_total("the evaluation", accumulator.rows if accumulator else 0, files)
    if accumulator is None or not accumulator.rows:
        return
    config, numbers = accumulator.config, accumulator.reported_slices()
    slices = list(accumulator.results(numbers))
    sliced = {
        number: _metrics(key, results)[1]
        for number, (key, results) in zip(numbers, slices, strict=True)
    }

    def has_thresholds(key: SliceKey) -> bool:
        return any(bounds_of(name, key, config) for name in accumulator.computations.classes)

    yield _Evaluation(slices, compute_intervals(accumulator, sliced, settings, has_thresholds))


def _metrics(slice_key: SliceKey, results: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in results.items() if not is_plot(key)}


def _plots(slice_key: SliceKey, results: Metrics) -> tuple[SliceKey, Metrics]:
    return slice_key, {key: value for key, value in results.items() if is_plot(key)}


def evaluate(
    pipeline: beam.Pipeline, files: Sequence[str], plan: EvaluationPlan, output: str
) -> None:
    """Adds an evaluation to a Beam pipeline.

    The evaluation writes TFMA's files, and the confidence intervals for `read_intervals`.
    """
    config, settings = plan.config, plan.settings
    evaluations = (
        pipeline
        | "Files" >> SpreadFiles(list(enumerate(files)), files, runs_models=True)
        | "Measure" >> beam.ParDo(MeasureFile(plan))
        | "MergeAccumulators" >> beam.CombineGlobally(MergeAccumulators())
        | "Results" >> beam.FlatMap(_compute_results, settings, list(files))
    )
    _ = evaluations | "WriteIntervals" >> beam.Map(
        lambda evaluation: write_intervals(evaluation.intervals, output)
    )
    validations = evaluations | "Validate" >> beam.FlatMap(
        lambda evaluation: [
            validate(_metrics(*results), config, evaluation.intervals, settings)
            for results in evaluation.slices
        ]
    )
    results = evaluations | "Slices" >> beam.FlatMap(lambda evaluation: evaluation.slices)
    metrics = results | "Metrics" >> beam.MapTuple(_metrics)
    models = [
        tfma.default_eval_shared_model(path, model_name=name, eval_config=config)
        for name, path in plan.prediction.models.items()
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
    settings: VerdictSettings = NO_INTERVALS,
    variants: Mapping[str, str] | None = None,
) -> bool:
    """Runs an evaluation in batches, and returns whether it was possible.

    If not, TFMA has to evaluate: a metric or slice has no implementation in batches.

    Args:
      files: gzipped TFRecords of serialized tf.Examples.
      models: the folder of each model, by TFMA's name of the model; the name of a single model is
        empty.
      variants: the folder of the variant that predicts in the place of a model, by the model's
        name.

    Raises:
      DataError: the value of a slice is not UTF-8, or a row has no label or weight.
      RuntimeError: a model cannot read the examples.
    """
    columns = slice_columns(config)
    if columns is None or Computations.of(config) is None:
        logger.info(
            "TFMA computes the metrics: some metrics or slices have no implementation in batches"
        )
        return False
    column_names = [*(name for names in columns for name in names), settings.dependence.column]
    prediction = PredictionPlan.of(config, schema, column_names, models, variants or {})
    plan = EvaluationPlan(config, prediction, columns, settings)
    try:
        with make_pipeline() as pipeline:
            evaluate(pipeline, files, plan, output)
    except Exception as error:  # Beam wraps exceptions.
        if UnsupportedInBatches.__name__ not in f"{type(error).__name__} {error}":
            raise
        logger.info("TFMA computes the metrics: %s", error)
        return False
    return True
