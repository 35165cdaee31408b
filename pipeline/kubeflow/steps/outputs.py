"""Writes the declared outputs of a step, which Kubeflow's UI shows.

The launcher passes an ExecutorInput with the outputs, and reads their metadata from an
ExecutorOutput (backend/src/v2/component/launcher_v2.go of github.com/kubeflow/pipelines). It
uploads the files, and accepts missing ones.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.disk import write_atomically
from components.evaluator.explanation.record import Confusion, Curve, Explanation
from pipeline.component_ids import ComponentId
from pipeline.kubeflow.compiled import StepReport
from pipeline.kubeflow.declared_outputs import CLASSIFICATION, EXAMPLES, METRICS, MODEL, REPORT
from pipeline.records.summary import MetricSummary, RunSummary

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Content:
    """The content of an output."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """The properties; the metadata of Metrics are the metrics."""
    text: str | None = None
    """The text of the file, or None for an output without a file."""


@dataclass(frozen=True)
class OutputWriter:
    """A writer of the outputs that the launcher asks for."""

    executor_input: str | None
    """The ExecutorInput as JSON, or None if the step declares no outputs."""
    paths: Mapping[str, str]
    """The local paths of the outputs by name."""

    @classmethod
    def of(cls, executor_input: str | None, outputs: Sequence[str]) -> OutputWriter:
        """Returns the writer for the arguments of a step.

        Args:
          outputs: the arguments `--output`, such as `model=/minio/bucket/model`.
        """
        pairs = (output.partition("=") for output in outputs)
        return cls(executor_input, {name: path for name, _, path in pairs})

    def write(self, describe: Callable[[], Mapping[str, Content]]) -> None:
        """Writes the outputs; a failure is logged, and does not fail the step.

        Args:
          describe: returns the contents by output. Outputs that the step does not declare are
            left out.
        """
        if self.executor_input is None:
            return
        try:
            self._write(json.loads(self.executor_input)["outputs"], describe())
        except Exception:
            logger.exception("The outputs for Kubeflow's UI could not be written")

    def _write(self, outputs: Any, contents: Mapping[str, Content]) -> None:
        artifacts: dict[str, Any] = {}
        for name, declared in outputs.get("artifacts", {}).items():
            if (content := contents.get(name)) is None:
                continue
            if content.text is not None:
                _write_file(Path(self.paths[name]), content.text)
            (artifact,) = declared["artifacts"]
            artifacts[name] = {
                "artifacts": [
                    {
                        "name": artifact.get("name", name),
                        "uri": artifact["uri"],
                        "metadata": content.metadata,
                    }
                ]
            }
        executor_output = json.dumps({"artifacts": artifacts}, allow_nan=False)
        _write_file(Path(outputs["outputFile"]), executor_output)


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def describe_node(report: StepReport) -> dict[str, Content]:
    """Returns the outputs of a node's step."""
    found = report.found
    if report.step == ComponentId.EXAMPLE_GEN and found.examples is not None:
        rows = {f"rows_{split}": count for split, count in found.rows.items()}
        return {EXAMPLES: _as_lines({"uri": found.examples, **rows})}
    if report.step == ComponentId.EVALUATOR:
        metrics = found.summary.get("metrics", {})
        read = {name: MetricSummary.model_validate(metric) for name, metric in metrics.items()}
        blessed = found.summary.get("blessed")
        return {
            METRICS: _describe_metrics(read, blessed),
            CLASSIFICATION: _describe_classes(found.explanation),
        }
    if report.step == ComponentId.PUSHER:
        served = None if found.pushed is None else found.pushed.destination
        return {MODEL: _as_lines({"pushed": served is not None, "served": served or report.detail})}
    return {}


def describe_run(
    summary: RunSummary, explanation: Explanation | None, report: str
) -> dict[str, Content]:
    """Returns the outputs of the last step."""
    return {
        METRICS: _describe_metrics(summary.metrics, summary.blessed),
        CLASSIFICATION: _describe_classes(explanation),
        REPORT: Content({"run": summary.run_id, "status": summary.status.value}, report),
    }


def _as_lines(metadata: dict[str, Any]) -> Content:
    """Returns metadata with a file that has a line per property, for the preview in the UI."""
    return Content(metadata, "".join(f"{key}: {value}\n" for key, value in metadata.items()))


def _describe_metrics(metrics: Mapping[str, MetricSummary], blessed: bool | None) -> Content:
    """Returns the finite values of metrics: JSON has no others."""
    values: dict[str, Any] = {
        name: metric.value for name, metric in metrics.items() if math.isfinite(metric.value)
    }
    return Content(values if blessed is None else {**values, "blessed": int(blessed)})


def _describe_classes(explanation: Explanation | None) -> Content:
    """Returns what the UI draws as a confusion matrix and a ROC curve, if the explanation has it.

    The UI draws one curve per output, so models of more than two classes have none.
    """
    if explanation is None:
        return Content()
    metadata: dict[str, Any] = {}
    if explanation.confusion is not None:
        metadata["confusionMatrix"] = _as_matrix(explanation.confusion)
    if len(explanation.roc) == 1 and explanation.roc[0].thresholds:
        metadata["confidenceMetrics"] = _as_points(explanation.roc[0])
    return Content(metadata)


def _as_matrix(confusion: Confusion) -> dict[str, Any]:
    """Returns a confusion matrix in the form of `ClassificationMetrics.log_confusion_matrix`."""
    return {
        "annotationSpecs": [{"displayName": name} for name in confusion.classes],
        "rows": [{"row": counts} for counts in confusion.counts],
    }


def _as_points(curve: Curve) -> list[dict[str, float]]:
    """Returns a curve in the form of `ClassificationMetrics.log_roc_curve`."""
    points = zip(curve.thresholds, curve.x, curve.y, strict=True)
    return [
        {"confidenceThreshold": threshold, "falsePositiveRate": false, "recall": true}
        for threshold, false, true in points
    ]
