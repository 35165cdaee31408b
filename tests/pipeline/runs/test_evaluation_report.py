"""Metrics, verdict and reasons from the artifacts of TFX's Evaluator."""

from __future__ import annotations

import math

import pytest

from components.evaluator.constant_prediction import ConstantPrediction
from pipeline.records.summary import EvaluationReport, MetricSummary
from pipeline.runs.evaluation_report import (
    is_nearly_perfect,
    read_evaluation,
)
from tests.support.evaluation_artifacts import PLANS, ROWS, Evaluations, Measured


def read(measured: Measured) -> EvaluationReport:
    return read_evaluation(measured.uri, measured.config.criteria, measured.blessed)


@pytest.fixture(scope="module")
def missed(evaluations: Evaluations) -> EvaluationReport:
    return read(evaluations.missed)


def metric(evaluation: EvaluationReport, name: str) -> MetricSummary:
    return evaluation.metrics[name]


def reason_for(evaluation: EvaluationReport, name: str) -> str:
    """The part of the reason that is about a metric; empty if none is."""
    (*found,) = [part for part in evaluation.reason.split("; ") if part.startswith(f"{name} is")]
    return found[0] if found else ""


def test_metrics_are_in_the_order_of_the_config(missed: EvaluationReport) -> None:
    names = [*missed.metrics]
    assert names == [
        "auc_precision_recall",
        "accuracy",
        "auc",
        "log_loss",
        "recall",
        "precision",
    ]


def test_candidate_and_model_in_service_are_not_mixed_up(missed: EvaluationReport) -> None:
    accuracy = metric(missed, "accuracy")
    assert accuracy.value == pytest.approx(0.5)
    assert accuracy.in_service == pytest.approx(1.0)
    assert metric(missed, "recall").value == 0.0


@pytest.mark.parametrize(
    ("name", "needs", "words"),
    [
        (
            "auc",
            "at least 0.8, not significantly worse than in service",
            "below the threshold of 0.8",
        ),
        (
            "log_loss",
            "at most 0.5, not significantly worse than in service",
            "above the threshold of 0.5",
        ),
        (
            "precision",
            "at least 0.1, not significantly worse than in service",
            "nan, not a number: it is undefined on the eval split, such as an AUC with one "
            "class, or a precision without positive predictions. Check the labels and the "
            "predictions there",
        ),
        (
            "recall",
            "not significantly worse than in service",
            "significantly worse than the 1 of the model in service (95 %: -1 to -1). A larger "
            "evaluate.thresholds.recall.tolerance allows a larger difference",
        ),
    ],
)
def test_missed_threshold_has_a_reason(
    missed: EvaluationReport, name: str, needs: str, words: str
) -> None:
    found = metric(missed, name)
    assert not found.ok
    assert found.needs == needs
    reason = reason_for(missed, name)
    assert reason.endswith(words)
    assert f"{name} is {found.value:.4g}" in reason


def test_all_reasons_are_given_in_the_order_of_the_metrics(missed: EvaluationReport) -> None:
    assert not missed.blessed
    names = [part.split(" ")[0] for part in missed.reason.split("; ")]
    assert names == ["auc", "log_loss", "recall", "precision"]


def test_slices_are_named_by_their_columns_and_hold_the_candidate(missed: EvaluationReport) -> None:
    crossed = {f"plan={plan}, zone={zone}" for plan in PLANS for zone in (0, 1)}
    assert set(missed.slices) == {f"plan={plan}" for plan in PLANS} | crossed
    gold = missed.slices["plan=gold"]
    assert gold["example_count"] == ROWS / len(PLANS)
    assert missed.slices["plan=café, zone=1"]["example_count"] == ROWS / len(PLANS) / 2
    assert gold["accuracy"] == pytest.approx(0.5), "1.0 is that of the model in service"
    assert set(gold) == {"example_count", *missed.metrics}


def test_a_model_that_is_better_is_blessed(evaluations: Evaluations) -> None:
    evaluation = read(evaluations.kept)
    assert evaluation.blessed
    assert evaluation.reason == (
        "every threshold is met, and the model is not worse than the model in service"
    )
    accuracy, log_loss = evaluation.metrics.values()
    assert (accuracy.value, accuracy.in_service) == (pytest.approx(1.0), pytest.approx(0.5))
    certain = 2
    expected = -math.log(0.9) * (ROWS - certain) / ROWS
    assert log_loss.value == pytest.approx(expected, rel=1e-4), "scores of 0 and 1 are numbers"
    assert accuracy.needs == "at least 0.9, not significantly worse than in service"
    assert accuracy.ok
    assert evaluation.slices == {}


def test_the_first_model_without_thresholds_beats_a_constant_prediction(
    evaluations: Evaluations,
) -> None:
    evaluation = read(evaluations.first)
    assert evaluation.blessed
    assert evaluation.reason == (
        "accuracy is better than a constant prediction's, and there is no model in service to"
        " compare with"
    )
    (accuracy,) = evaluation.metrics.values()
    needs = "better than a constant prediction's 0.5"
    assert (accuracy.in_service, accuracy.needs, accuracy.ok) == (None, needs, True)


def test_a_model_that_is_no_better_than_a_constant_prediction_is_not_blessed(
    evaluations: Evaluations,
) -> None:
    evaluation = read(evaluations.useless)
    assert not evaluation.blessed
    assert evaluation.reason == (
        "accuracy is 0.5, and a constant prediction has 0.5; on 24 examples, a model needs "
        "0.6679 to be better than luck. Check whether the features predict the label, or set "
        "evaluate.thresholds"
    )


@pytest.mark.parametrize(
    ("metric", "value", "constant", "is_perfect"),
    [
        ("auc", 0.9951, ("auc", 0.5, 200), True),
        ("auc", 0.9951, ("auc", 0.5, 20), False),
        ("accuracy", 0.996, ("accuracy", 0.99, 200), False),
        ("mse", 1.0, ("mse", 100.0, 200), False),
    ],
)
def test_nearly_perfect_metric_is_judged_by_a_constant_prediction(
    metric: str, value: float, constant: tuple[str, float, int], is_perfect: bool
) -> None:
    name, of_constant, examples = constant
    reference = ConstantPrediction(name, of_constant, of_constant, examples)
    assert is_nearly_perfect(metric, value, reference) is is_perfect
    assert not is_nearly_perfect(metric, value, None)
