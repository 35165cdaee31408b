"""The section `evaluate`: the metrics of a model and the thresholds that it has to reach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from components.optimizer.gating import DecidingMetric
from pipeline.config.issues import Issue, near_match_and, rules_of
from trainer_module.errors import enumerate_names
from trainer_module.sections import NameOrPath
from trainer_module.settings import (
    CrossValidation,
    Settings,
)
from trainer_module.settings.tasks import TASKS, LearningTask, Metric, task_class

COUNT = "example_count"
"""The number of examples, which is always computed."""
NAME = "name"
"""The key of a metric's name in the arguments of its class."""


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments.get(NAME, "a_name")
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"name: found {name!r}; expected a string without dots, such as cost")
    return arguments


class MetricSettings(Settings):
    """A metric class of TFMA, of Keras or your own, with the keys of `tfma.MetricConfig`."""

    class_name: str = Field(min_length=1)
    """The name of the class, such as `Specificity`."""
    module: str = ""
    """The module of the class, such as `my_metrics`; default: the class is one of TFMA or Keras."""
    config: Annotated[dict[str, Any], AfterValidator(_check_arguments)] = {}
    """The arguments of the class. `name` is the name of the metric; its default is the class name
    in snake case.
    """

    @property
    def name(self) -> str:
        """The name of the metric in results and thresholds."""
        words = re.sub("([a-z0-9])([A-Z])", r"\1_\2", self.class_name)
        words = re.sub("([A-Z]+)([A-Z][a-z])", r"\1_\2", words)
        return str(self.config.get(NAME, words.lower()))


def is_own(name: str) -> bool:
    """Returns whether the name of a metric is the import path of a class."""
    return "." in name


class Bound(Settings):
    """A bound for the value of a metric, or for the worse end of its confidence interval."""

    value: float
    """The bound: the smallest value for `min`, the largest for `max`."""
    confident: bool = False
    """Whether the worse end of the confidence interval has to meet the bound; default: the measured
    value has to meet it.
    """


class Threshold(Settings):
    """The bounds that a metric has to meet for the model to be blessed."""

    min: float | Bound | None = None
    """The smallest acceptable value."""
    max: float | Bound | None = None
    """The largest acceptable value."""
    tolerance: float = Field(default=0.0, ge=0)
    """The amount by which the metric may be worse than for the model in service. If
    `evaluate.confidence` is set, a difference that may be chance is accepted in addition.
    """
    slices: bool = False
    """Whether every slice of `evaluate.slices` in which the metric is defined has to meet the
    bounds too.
    """

    @property
    def min_value(self) -> float | None:
        """The value of `min`."""
        return self.min.value if isinstance(self.min, Bound) else self.min

    @property
    def max_value(self) -> float | None:
        """The value of `max`."""
        return self.max.value if isinstance(self.max, Bound) else self.max

    @property
    def is_min_confident(self) -> bool:
        """Whether the whole confidence interval has to be above `min`."""
        return isinstance(self.min, Bound) and self.min.confident

    @property
    def is_max_confident(self) -> bool:
        """Whether the whole confidence interval has to be below `max`."""
        return isinstance(self.max, Bound) and self.max.confident


def _as_list(value: Any) -> Any:
    """Returns a list of columns; a string becomes a list with one column."""
    return [value] if isinstance(value, str) else value


ColumnNames = Annotated[
    list[str],
    BeforeValidator(_as_list),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]


class OnLeakage(StrEnum):
    """The reaction to a column that leaks the label."""

    WARN = "warn"
    """The run adds a note."""
    FAIL = "fail"
    """The run ends before training."""


class Ties(StrEnum):
    """The decision on a new model that is not significantly worse than the model in service."""

    NEWEST = "newest"
    """The new model is pushed."""
    KEEP = "keep"
    """The model in service remains in service."""


def _describe_metrics() -> dict[str, str]:
    """Returns the metrics by name, each with the tasks that have the metric."""
    readers: dict[str, list[str]] = {}
    for kind in TASKS:
        for name in task_class(kind).model_construct(kind=kind).metrics():
            readers.setdefault(name, []).append(f"`{kind}`")
    return {name: f"For {enumerate_names(kinds, 'and')}." for name, kinds in readers.items()}


MetricName = Annotated[str, NameOrPath(_describe_metrics)]
"""The name of a metric, or the import path of a class."""


class EvaluateSettings(CrossValidation):
    """The metrics of the model, and the thresholds that it has to meet to be pushed."""

    metrics: list[MetricName | MetricSettings] = []
    """Names of metrics, import paths of metric classes, or mappings with the keys of
    `tfma.MetricConfig`; default: the task's default metrics. docs/config.md lists the names.
    """
    thresholds: dict[str, Threshold] = Field(default={}, examples=[{"auc": {"min": 0.8}}])
    """Bounds by metric. A model always has to be no worse than the model in service. If there are
    no bounds, a model also has to be better than a constant prediction (the most frequent class,
    the mean).
    """
    slices: list[ColumnNames] = Field(default=[], examples=[["country", ["country", "device"]]])
    """Columns, or lists of columns; the metrics are also computed for each of their values."""
    confidence: float | None = Field(default=0.95, ge=0.5, lt=1)
    """The confidence level for comparisons with the model in service and for bounds with
    `confident: true`; null compares the measured values.
    """
    leakage: OnLeakage = OnLeakage.WARN
    """The reaction to label leakage: `warn` adds a note, `fail` ends the run before training.
    Leakage is a column that predicts the label nearly without error, or a random split of dated
    rows of which successive rows are similar. Columns in `features` are not checked.
    """

    ties: Ties | None = None
    """The decision on a new model that is worse in the deciding metric, but not significantly:
    `newest` pushes the new model, `keep` does not. Default: `keep` if both models were trained on
    the same data, otherwise `newest`.
    """
    explain: bool = True
    """Whether the Evaluator explains the model on a sample of the eval split: importances and
    effects of columns, curves, and the worst examples. The explanation takes a few seconds at most
    and does not change the verdict.
    """

    @property
    def metric_names(self) -> list[str]:
        """The names and import paths in `metrics`."""
        return [metric for metric in self.metrics if isinstance(metric, str)]

    @property
    def configured(self) -> dict[str, MetricSettings]:
        """The mappings in `metrics`, by the name of the metric."""
        return {metric.name: metric for metric in self.metrics if not isinstance(metric, str)}

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's metrics, by the config key of each."""
        paths = {
            f"evaluate.metrics.{i}": metric
            if isinstance(metric, str)
            else ".".join(filter(None, [metric.module, metric.class_name]))
            for i, metric in enumerate(self.metrics)
        }
        paths |= {f"evaluate.thresholds.{name}": name for name in self.thresholds}
        return {key: name for key, name in paths.items() if is_own(name)}


@dataclass(frozen=True)
class Criteria:
    """The criteria by which the Evaluator compares models."""

    task: LearningTask
    evaluate: EvaluateSettings
    weight: str | None = None
    """The column with the weight of each example."""
    changes_labels: bool = False
    """Whether the user's preprocessing function may change the labels."""
    split_by: str | None = None
    """The column of which all rows with the same value are in the same split."""
    order_by: str | None = None
    """The column that orders the rows for the split."""
    past_labels: tuple[str, ...] = ()
    """The columns of past labels (`data.lags`) with whose values metrics can be compared. Empty if
    metrics are weighted or labels are changed."""

    def metric(self, name: str) -> Metric:
        """Returns a metric of the task, or a metric class of TFMA, Keras or the user.

        For a metric class, lower is better if its threshold has a `max`, and its unit is unknown.

        Args:
          name: the name of a task's metric, an import path, or the name in a `tfma.MetricConfig`.
        """
        threshold = self.evaluate.thresholds.get(name)
        is_better = threshold is None or threshold.max is None
        if (settings := self.evaluate.configured.get(name)) is not None:
            options = {key: value for key, value in settings.config.items() if key != NAME}
            return Metric(settings.class_name, is_better, settings.module, options, has_unit=True)
        if not is_own(name):
            return self.task.metrics()[name]
        module, _, class_name = name.rpartition(".")
        return Metric(class_name, is_better, module, has_unit=True)

    @property
    def names(self) -> list[str]:
        """The numbers to compute: the metrics of the config or of the task, and metrics with
        thresholds.

        A metric that is given as a mapping decides only if it has a threshold.
        """
        more = (*self.evaluate.configured, *self.evaluate.thresholds)
        return list(dict.fromkeys([*(self._named_numbers or self.task.default_metrics()), *more]))

    @property
    def _named_numbers(self) -> list[str]:
        """The metrics that the config names and that are numbers."""
        return [name for name in self.evaluate.metric_names if self.metric(name).is_number]

    @property
    def plots(self) -> list[str]:
        """The curves and matrices in `metrics`, which TFMA stores as plots."""
        names = dict.fromkeys(self.evaluate.metric_names)
        return [name for name in names if not self.metric(name).is_number]

    @property
    def thresholds(self) -> dict[str, Threshold]:
        """The thresholds, or an empty threshold for the first metric if the config has none.

        TFX blesses a model only if there is a threshold. The Evaluator adds the model in
        service and the constant prediction as bounds to an empty threshold.
        """
        return dict(self.evaluate.thresholds) or {self.names[0]: Threshold()}

    @property
    def others(self) -> dict[str, bool]:
        """Further metrics in which the model has to be no worse; True if higher is better.

        Empty if the config has thresholds, as these choose the metrics that decide.
        """
        if self.evaluate.thresholds:
            return {}
        # The better direction of a metric class is unknown.
        metrics = self.task.metrics()
        names = self.names if self._named_numbers else self.task.usual_metrics()
        return {
            name: metrics[name].higher_is_better
            for name in names[1:]
            if name in metrics and metrics[name].is_compared and not metrics[name].is_half
        }

    @property
    def deciding(self) -> DecidingMetric:
        """The first metric that decides; variants are compared with the model in this metric."""
        names = self.names
        name = next(name for name in names if name in (self.evaluate.thresholds or names))
        metric = self.metric(name)
        direction = metric.higher_is_better if metric.is_compared else None
        return DecidingMetric(name=name, higher_is_better=direction, has_unit=metric.has_unit)


def metrics_fit_the_task(target: LearningTask, evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that every named metric is a metric of the task, or an import path."""
    task_metrics, configured = target.metrics(), evaluate.configured
    by_path = {f"evaluate.metrics.{i}": metric for i, metric in enumerate(evaluate.metrics)}
    named = {path: metric for path, metric in by_path.items() if isinstance(metric, str)}
    thresholds = {
        f"evaluate.thresholds.{metric}": metric
        for metric in evaluate.thresholds
        if metric not in configured
    }
    for path, metric in (named | thresholds).items():
        if metric not in task_metrics and not is_own(metric):
            candidates = {*task_metrics, *configured} if path in thresholds else task_metrics
            yield Issue(
                path,
                f"`task: {target.kind}` has no metric {metric!r}; "
                + near_match_and(
                    metric,
                    candidates,
                    "To use a metric class of your own, write its import path, such as "
                    "my_metrics.Cost",
                ),
            )


def metrics_have_names_of_their_own(
    target: LearningTask, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that metrics in mappings have unique names, as thresholds refer to the names."""
    names = {**target.metrics(), COUNT: None}
    for i, metric in enumerate(evaluate.metrics):
        if isinstance(metric, str):
            continue
        if metric.name in names:
            yield Issue(
                f"evaluate.metrics.{i}",
                f"found two metrics with the name {metric.name!r}; give this metric another name "
                "with config: {name: ...}",
            )
        names[metric.name] = None


def thresholds_are_of_numbers(target: LearningTask, evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that thresholds are set for numbers only, not for curves or matrices."""
    metrics = target.metrics()
    numbers = [name for name, metric in metrics.items() if metric.is_number]
    for name in evaluate.thresholds:
        if name in metrics and not metrics[name].is_number:
            yield Issue(
                f"evaluate.thresholds.{name}",
                f"{name} is a curve or a matrix; list {name} in evaluate.metrics, and set "
                f"thresholds only for {enumerate_names(numbers, 'or')}",
            )


def thresholds_have_valid_bounds(evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that a threshold has a bound, and that its `min` is not above its `max`."""
    for name, threshold in evaluate.thresholds.items():
        path, low, high = f"evaluate.thresholds.{name}", threshold.min_value, threshold.max_value
        if low is None and high is None and threshold.tolerance == 0:
            yield Issue(path, "the threshold is empty; give min, max or tolerance")
        elif low is not None and high is not None and low > high:
            yield Issue(path, f"min {low:g} is above max {high:g}")


def thresholds_have_intervals_and_slices(evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that the config sets `evaluate.confidence` for thresholds with `confident`, and
    `evaluate.slices` for thresholds with `slices`.
    """
    for name, threshold in evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        confident = {"min": threshold.is_min_confident, "max": threshold.is_max_confident}
        for key, is_confident in confident.items():
            if is_confident and evaluate.confidence is None:
                yield Issue(
                    f"{path}.{key}.confident",
                    "found true, but evaluate.confidence is null; set evaluate.confidence: 0.95",
                )
        if threshold.slices and not evaluate.slices:
            yield Issue(
                f"{path}.slices",
                "found true, but there are no evaluate.slices; add evaluate.slices with columns, "
                "or remove this key",
            )


def tolerances_need_a_comparison(
    target: LearningTask, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that tolerances are set only for metrics that are compared with the model in
    service.
    """
    metrics = target.metrics()
    for name, threshold in evaluate.thresholds.items():
        if threshold.tolerance and name in metrics and not metrics[name].is_compared:
            yield Issue(
                f"evaluate.thresholds.{name}.tolerance",
                f"found {threshold.tolerance:g}, but {name} is not compared with the model in "
                "service; replace this key with min or max",
            )


def leaking_columns_can_be_found(
    preprocessing: str | None, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that `leakage: fail` is not set with `preprocessing`, which disables the check."""
    if evaluate.leakage is OnLeakage.FAIL and preprocessing:
        yield Issue(
            "evaluate.leakage",
            "found 'fail', but no column is checked if `preprocessing` is set; remove one of the "
            "two keys",
        )


EVALUATE_RULES = rules_of(__name__)
