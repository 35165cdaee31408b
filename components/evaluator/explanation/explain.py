"""Explains an evaluated model on a sample of the eval split, and stores the explanation."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
from tensorflow_metadata.proto.v0 import schema_pb2

from components.copying import read_text
from components.evaluator.dependence import Dependence
from components.evaluator.explanation.artifact import write_explanation
from components.evaluator.explanation.effects import measure_effects
from components.evaluator.explanation.examples import find_worst_examples
from components.evaluator.explanation.importances import Importances, measure_importances
from components.evaluator.explanation.measures import (
    compute_calibration,
    compute_confusion,
    compute_curves,
    compute_residuals,
)
from components.evaluator.explanation.prediction import ExplainedModel
from components.evaluator.explanation.record import (
    EFFECTS,
    EXAMPLES,
    IMPORTANCES,
    Curve,
    Effect,
    Explanation,
    WorstExamples,
)
from components.evaluator.explanation.sample import Records, Sample, first_rows, read_records
from components.evaluator.explanation.target import Target
from components.evaluator.loaded import load_model
from components.parts import Parts
from trainer_module.errors import counted, shorten
from trainer_module.export.interface import (
    INTERFACE_FILE,
    ModelInterface,
    RawColumn,
    parse_interface,
)
from trainer_module.runtime import report_notice

logger = logging.getLogger(__name__)

_SEED = 0
_SAMPLE_SECONDS, _IMPORTANCE_SECONDS, _EFFECT_SECONDS, _SHARE_SECONDS = 0.8, 1.0, 0.4, 0.5
"""The time for the predictions of each part of an explanation."""
_FIRST_ROWS, _GROWTH = 16, 8
"""The number of rows by which the speed of a model is measured first, and the factor between the
numbers of rows that are predicted next."""
_MAX_EFFECTS = 6
_TAIL_SHARE, _TINY = 0.5, 1e-300
"""The share of the loss of 1 % of the rows with which a regression has a note. For simulated
log-normal labels, the intervals at 95 % contained the importance in 52 to 75 % of the cases."""
_MAX_CLASSES = 100
"""The maximum number of names of classes in the record."""


def try_explain(
    files: Sequence[str],
    folder: str,
    schema: schema_pb2.Schema,
    dependence: Dependence,
    output: str,
) -> None:
    """Explains a model, and reports an error as a notice: an explanation never fails an evaluation.

    Args:
      files: gzipped TFRecords of serialized tf.Examples of the evaluated splits.
      output: the folder of the evaluation artifact, in which the files are stored.
    """
    try:
        text = read_text(folder, INTERFACE_FILE)
        if text is None:
            return
        explained = explain(files, folder, parse_interface(text), schema, dependence)
        if explained is None:
            return
        explanation, worst = explained
        write_explanation(explanation, worst, output)
        if explanation.failures:
            lacking = "; ".join(f"{part} ({why})" for part, why in explanation.failures.items())
            report_notice(f"the explanation lacks {lacking}. The log has the details")
    except Exception as error:  # The model, its files and its data may raise any error.
        logger.warning("the explanation of the model failed", exc_info=True)
        report_notice(
            f"the model was evaluated, but not explained: {type(error).__name__}: {shorten(error)}."
            " The report has no importances and no worst examples. The log has the details; "
            "`evaluate: {explain: false}` leaves the explanation out"
        )


def explain(
    files: Sequence[str],
    folder: str,
    interface: ModelInterface,
    schema: schema_pb2.Schema,
    dependence: Dependence,
    seed: int = _SEED,
) -> tuple[Explanation, WorstExamples] | None:
    """Returns the explanation of a model and its worst examples; None without rows or columns.

    Raises:
      Exception: any error of the model or of its files.
    """
    started = time.perf_counter()
    records = read_records(files, interface, schema, dependence, seed)
    if not interface.columns or not len(records.examples):
        return None
    target = Target(interface.task, interface.label, interface.classes)
    model = ExplainedModel(load_model(folder), interface, target, records.examples[:64].tolist())
    sample, notes = _predict(model, records)
    if not len(sample) or not sample.weights.sum() > 0:
        return None
    explanation = _describe(sample, target, records.of)

    def add_failure(part: str, error: Exception) -> None:
        explanation.failures[part] = f"{type(error).__name__}: {shorten(error)}"

    parts = Parts("explanation", add_failure)
    _measure(explanation, sample, target, parts)
    importances = parts.make(
        IMPORTANCES,
        lambda: measure_importances(model, sample, _IMPORTANCE_SECONDS, seed),
        Importances(),
    )
    columns = _by_importance(interface, importances)
    positive = {importance.column for importance in importances.columns if importance.increase > 0}
    strongest = [c for c in columns if c.request in positive]
    if IMPORTANCES in explanation.failures:
        strongest = columns
    explanation.effects, effect_notes = parts.make(
        EFFECTS,
        lambda: measure_effects(model, sample, strongest[:_MAX_EFFECTS], _EFFECT_SECONDS),
        (list[Effect](), list[str]()),
    )
    worst, share_notes = parts.make(
        EXAMPLES,
        lambda: find_worst_examples(model, sample, columns, _SHARE_SECONDS, seed, parts),
        (WorstExamples(), list[str]()),
    )
    names = {column.request: column.name for column in interface.columns}
    for importance in importances.columns:
        importance.column = names[importance.column]
    if (leak := importances.suspected_leak) is not None:
        notes.append(_leak_note(names[leak], importances.leak_share))
    explanation.importances = importances.columns
    explanation.suspected_leak = None if leak is None else names[leak]
    explanation.notes = [
        *notes,
        *_tail_notes(model, sample),
        *importances.notes,
        *effect_notes,
        *share_notes,
    ]
    explanation.seconds = round(time.perf_counter() - started, 3)
    return explanation, worst


def _predict(model: ExplainedModel, records: Records) -> tuple[Sample, list[str]]:
    """Returns the predicted rows: as many as the time allows, and those with a known label."""
    total, done, size = len(records.examples), 0, _FIRST_ROWS
    model.warm_up(first_rows(records.columns, min(total, _FIRST_ROWS)))
    labels, outputs, stop = [], [], time.perf_counter() + _SAMPLE_SECONDS
    while done < total and time.perf_counter() < stop:
        rows = slice(done, done + size)
        columns = {name: values[rows] for name, values in records.columns.items()}
        labels.append(model.labels(records.examples[rows]))
        outputs.append(model.predict(columns))
        done += len(labels[-1])
        left = model.capacity(max(stop - time.perf_counter(), 0))
        size = max(_FIRST_ROWS, min(size * _GROWTH, model.batch_rows, left))
    sample = Sample(
        first_rows(records.columns, done),
        np.concatenate(labels),
        records.weights[:done],
        records.units[:done],
        np.concatenate(outputs),
    )
    notes = []
    if done < total:
        speed = f"the model predicts only {model.rows_per_second:,.0f} rows per second"
        notes.append(f"{done:,} rows instead of {total:,}: {speed}")
    known = np.isfinite(sample.outputs).all(1) & np.isfinite(sample.labels)
    if model.target.classes:
        known &= (sample.labels >= 0) & (sample.labels < len(model.target.classes))
    if not known.all():
        left_out = counted(int((~known).sum()), "row")
        notes.append(f"{left_out} left out, whose label or prediction is unknown")
    return sample.take(known), notes


def _describe(sample: Sample, target: Target, total: int) -> Explanation:
    """Returns an explanation with the extent of the sample and the loss of the model."""
    losses = target.losses(sample.outputs, sample.labels)
    return Explanation(
        rows=len(sample),
        of=total,
        task=target.task,
        output=target.output,
        loss=target.loss,
        loss_value=float(np.average(losses, weights=sample.weights)),
        classes=list(target.classes[:_MAX_CLASSES]),
    )


def _measure(explanation: Explanation, sample: Sample, target: Target, parts: Parts) -> None:
    """Adds everything that needs no further predictions."""
    if not target.classes:
        explanation.residuals = parts.make("residuals", lambda: compute_residuals(sample), None)
        return
    explanation.roc, explanation.precision_recall = parts.make(
        "curves",
        lambda: compute_curves(sample, target.classes),
        (list[Curve](), list[Curve]()),
    )
    explanation.calibration = parts.make("calibration", lambda: compute_calibration(sample), None)
    explanation.confusion = parts.make(
        "confusion matrix", lambda: compute_confusion(sample, target.classes), None
    )


def _leak_note(column: str, share: float) -> str:
    return (
        f"{column!r} alone carries {share:.0%} of what the model knows, and the model is nearly "
        "free of errors. This is right if the column is known before the label. If it is not, the "
        "column leaks the label: set its type to `ignore` in `features`"
    )


def _tail_notes(model: ExplainedModel, sample: Sample) -> list[str]:
    """Returns a note if few rows have most of the loss: the intervals then are too narrow."""
    losses = sample.weights * model.target.losses(sample.outputs, sample.labels)
    largest = np.sort(losses)[-max(1, len(losses) // 100) :].sum() / max(losses.sum(), _TINY)
    if model.target.classes or largest < _TAIL_SHARE:
        return []
    return [
        f"1 % of the rows have {largest:.0%} of the loss, so the intervals of the importances are "
        "too narrow"
    ]


def _by_importance(interface: ModelInterface, importances: Importances) -> list[RawColumn]:
    """Returns all columns, beginning with the most important one."""
    rank = {importance.column: number for number, importance in enumerate(importances.columns)}
    return sorted(interface.columns, key=lambda c: rank.get(c.request, len(rank)))
