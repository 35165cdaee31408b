"""The outputs that steps declare, so that Kubeflow's UI shows them."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.component_ids import ComponentId
from pipeline.kubeflow.compiled import FINALIZE

EXAMPLES = "examples"
METRICS = "metrics"
CLASSIFICATION = "classification"
MODEL = "model"
REPORT = "report"

_EVALUATION = {METRICS: "Metrics", CLASSIFICATION: "ClassificationMetrics"}
_OUTPUTS: Mapping[str, Mapping[str, str]] = {
    ComponentId.EXAMPLE_GEN: {EXAMPLES: "Dataset"},
    ComponentId.EVALUATOR: _EVALUATION,
    ComponentId.PUSHER: {MODEL: "Model"},
    FINALIZE: {**_EVALUATION, REPORT: "HTML"},
}


def outputs_of(step: str, has_classes: bool) -> dict[str, str]:
    """Returns the types of a step's outputs, such as `Metrics` for `system.Metrics`, by name.

    Args:
      step: the id of the node, or `FINALIZE`.
      has_classes: whether the model predicts classes, so that there is a confusion matrix.
    """
    outputs = dict(_OUTPUTS.get(step, {}))
    if not has_classes:
        outputs.pop(CLASSIFICATION, None)
    return outputs
