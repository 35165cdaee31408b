"""Settings of the Evaluator: metrics, bounds, directions and slices."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2

from pipeline.config.sections.evaluate import Criteria, EvaluateSettings, Threshold
from pipeline.config.settings import PipelineConfig
from pipeline.graph.evaluation import (
    constant_metric,
    make_eval_config,
)
from trainer_module.settings.tasks import SUPERVISED_TASKS, as_task, supervised_class

LARGEST = sys.float_info.max

"""The folder of a module as users write them."""

USUAL = ["auc", "accuracy", "log_loss", "f1", "average_precision"]
"""The metrics of two classes where a config names none."""


def make_config(task: Any = "binary", **sections: Any) -> PipelineConfig:
    """A config whose data is never looked at."""
    data = {"format": "csv", "path": "nowhere.csv", **sections.pop("data", {})}
    return PipelineConfig.model_validate(
        {"name": "evaluated", "data": data, "task": task, **sections}
    )


def eval_config(task: Any = "binary", **evaluate: Any) -> tfma.EvalConfig:
    return make_eval_config(make_config(task, evaluate=evaluate).criteria)


def metrics_of(config: tfma.EvalConfig) -> dict[str, tfma.MetricConfig]:
    """By the name that results have."""
    (specs,) = config.metrics_specs
    return {json.loads(f"{{{metric.config}}}").get("name"): metric for metric in specs.metrics}


def threshold_of(config: tfma.EvalConfig, name: str) -> tfma.MetricThreshold:
    (per_slice,) = metrics_of(config)[name].per_slice_thresholds
    return per_slice.threshold


def keeps(value: float, threshold: tfma.MetricThreshold) -> bool:
    """As TFMA compares."""
    bounds = threshold.value_threshold
    return bool(bounds.lower_bound.value <= value <= bounds.upper_bound.value)


@pytest.mark.parametrize(
    ("task", "classes"),
    [
        ("binary", ["AUC", "BinaryAccuracy", "BinaryCrossEntropy", "F1Score", "AveragePrecision"]),
        ("multiclass", ["SparseCategoricalAccuracy", "SparseCategoricalCrossentropy"]),
        (
            "regression",
            [
                "MeanSquaredError",
                "MeanAbsoluteError",
                "RootMeanSquaredError",
                "CoefficientOfDetermination",
            ],
        ),
    ],
)
def test_usual_metrics_of_a_task_after_the_count(task: str, classes: list[str]) -> None:
    config = eval_config(task)
    (specs,) = config.metrics_specs
    assert [metric.class_name for metric in specs.metrics] == ["ExampleCount", *classes]
    assert not config.options.include_default_metrics.value


@pytest.mark.parametrize("task", SUPERVISED_TASKS)
def test_every_metric_has_the_class_and_name_of_the_task(task: str) -> None:
    options = {"order": ["low", "mid", "high"]} if task == "ordinal" else {}
    known = supervised_class(task)(kind=task, **options).metrics()
    config = eval_config({"kind": task, **options}, metrics=list(known))
    numbers = {name: metric for name, metric in known.items() if metric.is_number}
    plots = [metric for metric in known.values() if not metric.is_number]
    measured = config.metrics_specs[0].metrics[1 + len(numbers) :]
    assert [(one.class_name, one.module) for one in measured] == [
        (metric.class_name, metric.module) for metric in plots
    ]
    metrics = metrics_of(config)
    for name, metric in numbers.items():
        assert metrics[name].class_name == metric.class_name
        assert metrics[name].module == metric.module


def test_metrics_are_those_named_and_then_those_with_thresholds() -> None:
    both = EvaluateSettings.model_validate(
        {"metrics": ["recall", "auc"], "thresholds": {"precision": {}, "auc": {}}}
    )
    assert Criteria(as_task("binary"), both).names == ["recall", "auc", "precision"]
    usual = EvaluateSettings.model_validate({"thresholds": {"recall": {"min": 0.5}}})
    assert Criteria(as_task("binary"), usual).names == [*USUAL, "recall"]
    config = eval_config(metrics=["recall"], thresholds={"auc": {"min": 0.5}})
    assert list(metrics_of(config))[1:] == ["recall", "auc"]


@pytest.mark.parametrize(
    ("given", "lower", "upper"),
    [
        ({"min": 0.8}, 0.8, LARGEST),
        ({"max": 0.3}, -LARGEST, 0.3),
        ({}, -LARGEST, LARGEST),
    ],
)
def test_both_bounds_are_always_given(given: dict[str, float], lower: float, upper: float) -> None:
    threshold = threshold_of(eval_config(thresholds={"auc": given}), "auc")
    bounds = threshold.value_threshold
    assert (bounds.lower_bound.value, bounds.upper_bound.value) == (lower, upper)
    assert bounds.HasField("lower_bound")
    assert bounds.HasField("upper_bound")
    assert not keeps(math.nan, threshold)
    assert not keeps(math.inf, threshold)
    assert keeps(upper, threshold)
    assert keeps(lower, threshold)


@pytest.mark.parametrize(
    ("task", "name", "direction", "sign"),
    [
        ("binary", "auc", tfma.MetricDirection.HIGHER_IS_BETTER, -1),
        ("binary", "log_loss", tfma.MetricDirection.LOWER_IS_BETTER, 1),
        ("regression", "mae", tfma.MetricDirection.LOWER_IS_BETTER, 1),
    ],
)
def test_tolerance_allows_a_change_for_the_worse(
    task: str, name: str, direction: int, sign: int
) -> None:
    for tolerance in (0.0, 0.08):
        thresholds = {name: {"tolerance": tolerance}}
        change = threshold_of(eval_config(task, thresholds=thresholds), name).change_threshold
        assert change.direction == direction
        assert change.HasField("absolute")
        assert change.absolute.value == sign * tolerance


def test_a_threshold_is_of_the_whole_split_alone() -> None:
    config = eval_config(thresholds={"auc": {"min": 0.8}}, slices=["plan"])
    metrics = metrics_of(config)
    (per_slice,) = metrics["auc"].per_slice_thresholds
    assert list(per_slice.slicing_specs) == [config_pb2.SlicingSpec()]
    assert not metrics["auc"].HasField("threshold")
    for name in ("accuracy", "log_loss"):
        assert not metrics[name].per_slice_thresholds


def test_examples_count_by_the_weights_of_the_data() -> None:
    data = {"format": "csv", "path": "nowhere.csv", "weight": "trust"}
    config = PipelineConfig.model_validate({"name": "weighted", "data": data, "task": "binary"})
    found = make_eval_config(config.criteria)
    assert found.model_specs[0].example_weight_key == "trust"
    count, others = found.metrics_specs
    assert [metric.class_name for metric in count.metrics] == ["ExampleCount"]
    assert count.example_weights.unweighted
    assert not others.HasField("example_weights")
    assert not eval_config().model_specs[0].example_weight_key


def test_without_thresholds_only_the_model_in_service_is_one() -> None:
    """TFX gives no blessing where no metric has a threshold."""
    config = eval_config(metrics=["log_loss", "auc"])
    threshold = threshold_of(config, "log_loss")
    assert keeps(1e9, threshold)
    assert keeps(-1e9, threshold)
    assert not keeps(math.nan, threshold)
    assert threshold.change_threshold.absolute.value == 0
    assert not metrics_of(config)["auc"].per_slice_thresholds
    settings = EvaluateSettings(metrics=["log_loss", "auc"])
    assert Criteria(as_task("binary"), settings).thresholds == {"log_loss": Threshold()}


@pytest.mark.parametrize(
    ("evaluate", "metric"),
    [
        ({}, "auc"),
        ({"metrics": ["recall", "log_loss"]}, "log_loss"),
        ({"metrics": ["recall"]}, None),
        ({"thresholds": {"auc": {"min": 0.4}}}, None),
        ({"thresholds": {"auc": {"tolerance": 0.4}}}, "auc"),
    ],
)
def test_constant_prediction_is_the_default_threshold(
    evaluate: dict[str, Any], metric: str | None
) -> None:
    assert constant_metric(make_config(evaluate=evaluate).criteria) == metric


SPECIFICITY = {"class_name": "Specificity", "config": {"thresholds": [0.3]}}
OWN = {"class_name": "Bias", "module": "evaluated_by_users", "config": {"name": "bias"}}


def test_a_metric_of_tfmas_config_has_its_arguments_and_a_threshold_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thresholds = {"specificity": {"min": 0.7, "tolerance": 0.1}, "bias": {"max": 2.0}}
    config = eval_config(metrics=["auc", SPECIFICITY, OWN], thresholds=thresholds)
    found = metrics_of(config)
    assert list(found) == [None, "auc", "specificity", "bias"]
    assert (found["specificity"].class_name, found["specificity"].module) == ("Specificity", "")
    settings = json.loads(f"{{{found['specificity'].config}}}")
    assert settings == {"name": "specificity", "thresholds": [0.3]}
    assert (found["bias"].class_name, found["bias"].module) == ("Bias", "evaluated_by_users")
    threshold = threshold_of(config, "specificity")
    assert keeps(0.7, threshold)
    assert not keeps(0.69, threshold)
    assert threshold.change_threshold.direction == tfma.MetricDirection.HIGHER_IS_BETTER
    change = threshold_of(config, "bias").change_threshold
    assert change.direction == tfma.MetricDirection.LOWER_IS_BETTER
