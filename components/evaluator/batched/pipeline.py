"""The evaluation as a Beam pipeline: files to what they come to, added up, written as TFMA does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.evaluators import metrics_validator

from components.evaluator.batched.measuring import Computations, Found, Metrics, is_plot
from components.evaluator.batched.reading import Asker, Question
from components.evaluator.batched.rows import NotByBatches
from components.evaluator.batched.slices import SliceKey

logger = logging.getLogger(__name__)


class MeasureFiles(beam.DoFn):
    """From a file of examples to what its rows come to."""

    def __init__(
        self, config: tfma.EvalConfig, question: Question, columns: list[tuple[str, ...]]
    ) -> None:
        self._config = config
        self._question = question
        self._columns = columns
        self._asker: Asker | None = None

    def setup(self) -> None:
        """Loads the models, once in a process."""
        self._asker = Asker(self._question)

    def process(self, file: str) -> Iterator[Found]:
        """Measures the rows of one file."""
        assert self._asker is not None  # noqa: S101 - Beam has called `setup`
        measurement = _computations(self._config).start(self._columns)
        for answers in self._asker.read([file]):
            rows = len(next(iter(answers.models.values())).labels)
            measurement.add(answers.models, measurement.slicer.members(rows, answers.columns))
        yield measurement.found()


class AddUp(beam.CombineFn):
    """Of all files together."""

    def __init__(self, config: tfma.EvalConfig) -> None:
        super().__init__()
        self._config = config

    def create_accumulator(self) -> Found | None:
        """None so far."""
        return None

    def add_input(self, total: Found | None, found: Found) -> Found:
        """Adds one file."""
        if total is None:
            return found
        computations = _computations(self._config)
        measurement = computations.resume(total)
        measurement.merge(computations.resume(found))
        return measurement.found()

    def merge_accumulators(self, totals: Iterable[Found | None]) -> Found | None:
        """Adds what several processes have added up."""
        merged: Found | None = None
        for total in totals:
            if total is not None:
                merged = self.add_input(merged, total)
        return merged

    def extract_output(self, total: Found | None) -> Found | None:
        """As it is."""
        return total


def _computations(config: tfma.EvalConfig) -> Computations:
    found = Computations.of(config)
    assert found is not None  # noqa: S101 - asked before the pipeline was made
    return found


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
) -> None:
    """Adds an evaluation to a Beam pipeline, which leaves what TFMA's own would leave.

    Args:
      pipeline: to add it to.
      files: gzipped TFRecords of serialized tf.Examples.
      config: TFMA's, which `Computations.of` and `slice_columns` can do.
      question: what is read, and asked of the models.
      columns: of each kind of slices the columns that it is by.
      output: the folder for TFMA's files.
    """

    def results_of(total: Found | None) -> Iterator[tuple[Any, Any]]:
        if total is not None and total.rows:
            computations = _computations(config)
            yield from computations.results(computations.resume(total))

    results = (
        pipeline
        | "Files" >> beam.Create(list(files))
        | "SpreadFiles" >> beam.Reshuffle()
        | "Measure" >> beam.ParDo(MeasureFiles(config, question, columns))
        | "AddUp" >> beam.CombineGlobally(AddUp(config))
        | "Results" >> beam.FlatMap(results_of)
    )
    metrics = results | "Metrics" >> beam.MapTuple(_metrics)
    validations = metrics | "Validate" >> beam.Map(metrics_validator.validate_metrics, config)
    models = [
        tfma.default_eval_shared_model(path, model_name=name, eval_config=config)
        for name, path in question.models.items()
    ]
    writers = tfma.default_writers(output, models, config)
    evaluation = {tfma.METRICS_KEY: metrics, tfma.VALIDATIONS_KEY: validations}
    if _computations(config).have_plots:
        evaluation[tfma.PLOTS_KEY] = results | "Plots" >> beam.MapTuple(_plots)
    _ = evaluation | "Write" >> tfma.WriteResults(writers)


def evaluate_if_possible(
    make_pipeline: Callable[[], beam.Pipeline],
    files: Sequence[str],
    config: tfma.EvalConfig,
    question: Question,
    columns: list[tuple[str, ...]],
    output: str,
) -> bool:
    """Runs an evaluation; whether its values let it, or TFMA has to compute it.

    Args:
      make_pipeline: makes the Beam pipeline.
      files: as of `evaluate`, like the others.
      config: TFMA's.
      question: what is read, and asked of the models.
      columns: of each kind of slices the columns that it is by.
      output: the folder for TFMA's files.
    """
    try:
        with make_pipeline() as pipeline:
            evaluate(pipeline, files, config, question, columns, output)
    except Exception as error:  # Beam wraps what is raised in it.
        if NotByBatches.__name__ not in f"{type(error).__name__} {error}":
            raise
        logger.info("TFMA computes the metrics: %s", error)
        return False
    return True
