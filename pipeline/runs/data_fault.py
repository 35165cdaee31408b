"""Decides whether the data is the likely cause if a new model is not good enough.

A pushed model does not change. If its metrics on the newest data are much worse than at its push,
the data has changed. If the new model is no better there, its training is not the cause.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.components.statistics_gen import stats_artifact_utils

from components.evaluator.constant_prediction import ConstantPrediction
from components.evaluator.executor import read_constant_prediction
from components.example_validator.component import DRIFT_SPLIT
from components.example_validator.distribution_changes import describe_most_moved
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import SpanKind
from pipeline.config.sections.evaluate import Criteria
from pipeline.config.sections.schedule import OnDrift
from pipeline.records.data_records import SpanRecords
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.summary import MetricSummary
from pipeline.runs.artifact_reader import ArtifactReader
from pipeline.runs.lineage import span_of

KEPT_SHARE = 0.5
"""The share of its lead over a constant prediction below which a model has collapsed."""


def worst_acceptable(
    when_pushed: float, constant: ConstantPrediction | None, higher_is_better: bool
) -> float | None:
    """Returns the worst value of a metric with which a model has not collapsed.

    A model may lose half of its lead over a constant prediction, or the lead that may be luck, if
    that is more. Without a constant prediction, the bound is half of the metric or, if lower is
    better, twice the metric.

    Args:
      when_pushed: the metric at the push of the model.
      higher_is_better: the metric's direction.

    Returns:
      None if the model was no better than a constant prediction even at its push.
    """
    if constant is None:
        return when_pushed * KEPT_SHARE if higher_is_better else when_pushed / KEPT_SHARE
    if not constant.is_beaten_by(when_pushed):
        return None
    allowed_loss = max(
        abs(when_pushed - constant.value) * KEPT_SHARE, abs(constant.needed - constant.value)
    )
    return when_pushed - allowed_loss if higher_is_better else when_pushed + allowed_loss


def has_collapsed(
    result: MetricSummary,
    when_pushed: float | None,
    constant: ConstantPrediction | None,
    higher_is_better: bool,
) -> bool:
    """Returns whether both the new model and the model in service have collapsed.

    Args:
      result: the metric of both models on the newest data.
      when_pushed: the metric of the model in service at its push, if known.
      constant: the constant prediction on the newest data, if known.
      higher_is_better: the metric's direction.
    """
    if result.in_service is None or when_pushed is None:
        return False
    worst = worst_acceptable(when_pushed, constant, higher_is_better)
    values = (result.value, result.in_service)
    if worst is None or not all(map(math.isfinite, values)):
        return False
    return max(values) < worst if higher_is_better else min(values) > worst


@dataclass(frozen=True)
class DataFault:
    """The comparison of the current metrics of the model in service with those at its push."""

    _reader: ArtifactReader
    """The reader of the run's artifacts; the Evaluator has ended."""
    _criteria: Criteria
    _kind: SpanKind
    _on_drift: OnDrift
    """The reaction to drift, which decides which spans have passed."""
    _event_log: EventLog

    def describe(self) -> str:
        """Returns the evidence that the data is the likely cause, or an empty string."""
        evaluation, when_pushed = self._reader.evaluation(), self._metrics_when_pushed()
        if evaluation is None or not when_pushed:
            return ""
        (artifact,) = self._reader.outputs(ComponentId.EVALUATOR, "evaluation")
        constant = read_constant_prediction(artifact.uri)
        collapsed = [
            f"{result.in_service:.4g} in {name}, but had {when_pushed[name]:.4g}"
            for name, result in evaluation.metrics.items()
            if not result.ok and self._has_collapsed(name, result, when_pushed.get(name), constant)
        ]
        if not collapsed:
            return ""
        words = f"the model in service has {' and '.join(collapsed)} when it was pushed"
        return f"{words}: the data is the likely cause{self._describe_changes()}"

    def _metrics_when_pushed(self) -> dict[str, float | None]:
        """Returns the metrics of the model in service at its push."""
        models = {m.uri for m in self._reader.inputs(ComponentId.EVALUATOR, "baseline_model")}
        pushed = self._event_log.events(EventKind.PUSHED) if models else []
        metrics = [event.details["metrics"] for event in pushed if event.details["model"] in models]
        return dict(metrics[-1]) if metrics else {}

    def _has_collapsed(
        self,
        name: str,
        result: MetricSummary,
        when_pushed: float | None,
        constant: ConstantPrediction | None,
    ) -> bool:
        metric = self._criteria.metric(name)
        is_known = constant is not None and constant.metric == name
        return has_collapsed(
            result, when_pushed, constant if is_known else None, metric.higher_is_better
        )

    def _describe_changes(self) -> str:
        """Returns the columns that changed most since the last span that passed.

        The string is empty if the data has no spans.
        """
        examples = self._reader.outputs(ComponentId.EXAMPLE_GEN, "examples")
        newest = span_of(examples[0].mlmd_artifact) if examples else -1
        if newest < 0:
            return ""
        records = SpanRecords(self._event_log)
        older = records.compared_with(newest, self._on_drift)
        reading = None if older is None else records.last_reading(older)
        if older is None or reading is None:
            return ""
        now, before = map(self._statistics_of, (examples[0].uri, reading.details["uri"]))
        if now is None or before is None:
            return ""
        since = f"span {self._kind.show(older)}"
        if moved := describe_most_moved(before, now):
            return f"; the largest changes since {since}: {'; '.join(moved)}"
        return (
            f"; no single column has changed since {since}: check the labels, and relations "
            "between columns"
        )

    def _statistics_of(self, examples: str) -> statistics_pb2.DatasetFeatureStatisticsList | None:
        """Returns the newest statistics of examples, or None if there are none."""
        artifact = self._reader.newest_statistics(examples)
        if artifact is None:
            return None
        return stats_artifact_utils.load_statistics(artifact, DRIFT_SPLIT).proto()
