"""When the data is the likelier cause of a model that is not good enough."""

from __future__ import annotations

import pytest

from components.evaluator.constant_prediction import ConstantPrediction
from pipeline.records.summary import MetricSummary
from pipeline.runs.data_fault import has_collapsed, worst_acceptable

AUC = ConstantPrediction("auc", 0.5, 0.53, 400)
LOSS = ConstantPrediction("log_loss", 0.7, 0.69, 400)


@pytest.mark.parametrize(
    ("had", "constant", "higher_is_better", "worst"),
    [
        (0.895, AUC, True, 0.6975),
        (0.54, AUC, True, 0.51),
        (0.3, LOSS, False, 0.5),
    ],
    ids=[
        "half",
        "no more than luck",
        "a loss",
    ],
)
def test_collapse_begins_at_its_bound(
    had: float, constant: ConstantPrediction | None, higher_is_better: bool, worst: float | None
) -> None:
    assert worst_acceptable(had, constant, higher_is_better) == (
        None if worst is None else pytest.approx(worst)
    )


@pytest.mark.parametrize(
    ("value", "in_service", "had", "expected"),
    [
        (0.497, 0.507, 0.895, True),
        (0.88, 0.507, 0.895, False),
        (0.497, None, 0.895, False),
    ],
    ids=[
        "both",
        "the new one copes",
        "no old one",
    ],
)
def test_data_is_suspected_if_both_models_are_bad(
    value: float, in_service: float | None, had: float | None, expected: bool
) -> None:
    result = MetricSummary(value=value, in_service=in_service, needs="", ok=False)
    assert has_collapsed(result, had, AUC, higher_is_better=True) is expected
