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
from trainer_module.settings import (
    CrossValidation,
    Settings,
)
from trainer_module.settings.tasks import LearningTask, Metric

COUNT = "example_count"
"""The metric that is always computed."""
NAME = "name"
"""The key of a metric's arguments that holds its name."""


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments.get(NAME, "a_name")
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"name: found {name!r}; right is a text without dots, such as cost")
    return arguments


class MetricSettings(Settings):
    """A metric like `tfma.MetricConfig`: a metric class of TFMA, of Keras or your own."""

    class_name: str = Field(min_length=1)
    """The name of the class, such as `Specificity`."""
    module: str = ""
    """The module of the class, such as `my_metrics`; may be left out for classes of TFMA and
    Keras.
    """
    config: Annotated[dict[str, Any], AfterValidator(_check_arguments)] = {}
    """The arguments of the class; `name` names the metric, by default the class name in snake
    case.
    """

    @property
    def name(self) -> str:
        """The name of the metric in results and thresholds."""
        words = re.sub("([a-z0-9])([A-Z])", r"\1_\2", self.class_name)
        words = re.sub("([A-Z]+)([A-Z][a-z])", r"\1_\2", words)
        return str(self.config.get(NAME, words.lower()))


def is_own(name: str) -> bool:
    """Returns whether a metric is named by the import path of a class of the user's."""
    return "." in name


class Bound(Settings):
    """A bound for the measured value, or for the worse end of its confidence interval."""

    value: float
    """The smallest, or the largest, acceptable value."""
    confident: bool = False
    """Whether the worse end of the metric's confidence interval has to be within the bound, rather
    than the measured value.
    """


class Threshold(Settings):
    """Bounds of a metric, within which the model is blessed."""

    min: float | Bound | None = None
    """The smallest acceptable value."""
    max: float | Bound | None = None
    """The largest acceptable value."""
    tolerance: float = Field(default=0.0, ge=0)
    """The amount by which the metric may be worse than that of the model in service; with
    `evaluate.confidence`, in addition to what chance explains.
    """
    slices: bool = False
    """Whether the bounds apply to each of `evaluate.slices` as well, where the metric is
    defined.
    """

    @property
    def least(self) -> float | None:
        """The value of `min`."""
        return self.min.value if isinstance(self.min, Bound) else self.min

    @property
    def most(self) -> float | None:
        """The value of `max`."""
        return self.max.value if isinstance(self.max, Bound) else self.max

    @property
    def is_least_sure(self) -> bool:
        """Whether the confidence interval has to be above `min`."""
        return isinstance(self.min, Bound) and self.min.confident

    @property
    def is_most_sure(self) -> bool:
        """Whether the confidence interval has to be below `max`."""
        return isinstance(self.max, Bound) and self.max.confident


def _as_list(value: Any) -> Any:
    """Returns a list; a single column stands for a list of one column."""
    return [value] if isinstance(value, str) else value


ColumnNames = Annotated[
    list[str],
    BeforeValidator(_as_list),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]


class OnLeakage(StrEnum):
    """The reaction to a column that leaks the label."""

    WARN = "warn"
    FAIL = "fail"


class Ties(StrEnum):
    """The model that serves if the new model is worse, but not significantly worse."""

    NEWEST = "newest"
    KEEP = "keep"


class EvaluateSettings(CrossValidation):
    """How the model is measured, and which thresholds it has to reach to be pushed."""

    metrics: list[str | MetricSettings] = []
    """Names of metrics, import paths of metric classes of TFMA or Keras, or mappings like
    `tfma.MetricConfig`; default: the task's usual metrics. docs/config.md lists the names.
    """
    thresholds: dict[str, Threshold] = {}
    """Bounds by metric. The model also has to be no worse than the model in service. Without
    bounds, it has to be better than a constant prediction (the most frequent class, the mean).
    """
    slices: list[ColumnNames] = []
    """Columns, or lists of columns, for whose values the metrics are reported separately."""
    confidence: float | None = Field(default=0.95, ge=0.5, lt=1)
    """The confidence level for comparisons with the model in service and for bounds that are
    `confident`; null compares the measured values.
    """
    leakage: OnLeakage = OnLeakage.WARN
    """Whether label leakage is reported as a note or ends the run before training: a column that
    predicts the label nearly without error, or a random split of dated rows whose neighbours are
    alike. Columns that `features` declares are not checked.
    """

    ties: Ties | None = None
    """The model that serves if the new model is worse in the deciding metric, but not
    significantly worse: `newest` pushes the new model, `keep` does not. Default: `keep` if both
    models were trained on the same data, `newest` otherwise.
    """

    @property
    def named(self) -> list[str]:
        """The metrics that are given by name or import path."""
        return [metric for metric in self.metrics if isinstance(metric, str)]

    @property
    def configured(self) -> dict[str, MetricSettings]:
        """The metrics that are given as mappings, by name."""
        return {metric.name: metric for metric in self.metrics if not isinstance(metric, str)}

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's metrics, by the config key of each."""
        named = {
            f"evaluate.metrics.{i}": metric
            if isinstance(metric, str)
            else ".".join(filter(None, [metric.module, metric.class_name]))
            for i, metric in enumerate(self.metrics)
        }
        named |= {f"evaluate.thresholds.{name}": name for name in self.thresholds}
        return {key: name for key, name in named.items() if is_own(name)}


@dataclass(frozen=True)
class Criteria:
    """The criteria for a model: the metrics of its task, and the settings of `evaluate`."""

    task: LearningTask
    evaluate: EvaluateSettings
    weight: str | None = None
    """The column that holds the weight of each example."""
    changes_labels: bool = False
    """Whether the user's preprocessing function may change the labels."""
    split_by: str | None = None
    """The column whose equal values are in the same split."""
    order_by: str | None = None
    """The column that orders the rows for the split."""

    def metric(self, name: str) -> Metric:
        """Returns a metric of the task or of the user; lower is better for user metrics with a
        maximum.

        User metrics have values of an unknown scale.

        Args:
          name: the name of a task's metric, an import path, or the name in a `tfma.MetricConfig`.
        """
        threshold = self.evaluate.thresholds.get(name)
        is_better = threshold is None or threshold.max is None
        if (given := self.evaluate.configured.get(name)) is not None:
            options = {key: value for key, value in given.config.items() if key != NAME}
            return Metric(given.class_name, is_better, given.module, options, has_unit=True)
        if not is_own(name):
            return self.task.metrics()[name]
        module, _, class_name = name.rpartition(".")
        return Metric(class_name, is_better, module, has_unit=True)

    @property
    def names(self) -> list[str]:
        """The numbers to compute: named or usual metrics, and metrics with thresholds.

        A metric that is given as a mapping decides only if it has a threshold.
        """
        more = (*self.evaluate.configured, *self.evaluate.thresholds)
        return list(dict.fromkeys([*(self._named_numbers or self.task.default_metrics()), *more]))

    @property
    def _named_numbers(self) -> list[str]:
        """The metrics that the config names and that are numbers."""
        return [name for name in self.evaluate.named if self.metric(name).is_number]

    @property
    def plots(self) -> list[str]:
        """The named curves and matrices, which TFMA stores as plots."""
        named = dict.fromkeys(self.evaluate.named)
        return [name for name in named if not self.metric(name).is_number]

    @property
    def thresholds(self) -> dict[str, Threshold]:
        """The thresholds; without any, an empty threshold for the first metric.

        TFX blesses only against a threshold. With an empty threshold, the model in service and the
        constant prediction, which the Evaluator adds, are the only bounds.
        """
        return dict(self.evaluate.thresholds) or {self.names[0]: Threshold()}

    @property
    def others(self) -> dict[str, bool]:
        """Further metrics in which the model must not be worse, and whether higher is better.

        Empty if thresholds are set, as the user has then chosen the metrics that decide.
        """
        if self.evaluate.thresholds:
            return {}
        # For user metrics the better direction is unknown.
        known = self.task.metrics()
        names = self.names if self._named_numbers else self.task.usual_metrics()
        return {
            name: known[name].higher_is_better
            for name in names[1:]
            if name in known and known[name].is_compared and not known[name].is_half
        }

    @property
    def deciding(self) -> DecidingMetric:
        """The metric that compares variants with the model: the first metric that decides."""
        names = self.names
        name = next(name for name in names if name in (self.evaluate.thresholds or names))
        metric = self.metric(name)
        direction = metric.higher_is_better if metric.is_compared else None
        return DecidingMetric(name=name, higher_is_better=direction, has_unit=metric.has_unit)


def metrics_fit_the_task(target: LearningTask, evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that every named metric is a metric of the task, or an import path."""
    known, configured = target.metrics(), evaluate.configured
    places = {f"evaluate.metrics.{i}": m for i, m in enumerate(evaluate.metrics)}
    named = {path: metric for path, metric in places.items() if isinstance(metric, str)}
    thresholds = {f"evaluate.thresholds.{m}": m for m in evaluate.thresholds}
    thresholds = {path: m for path, m in thresholds.items() if m not in configured}
    for path, metric in (named | thresholds).items():
        if metric not in known and not is_own(metric):
            candidates = {*known, *configured} if path in thresholds else known
            yield Issue(
                path,
                f"{metric!r} is no metric for {target.kind}; "
                + near_match_and(
                    metric,
                    candidates,
                    "A metric of yours is an import path, such as my_metrics.Cost",
                ),
            )


def metrics_have_names_of_their_own(
    target: LearningTask, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that the metrics given as mappings have unique names, which thresholds refer to."""
    known = {**target.metrics(), COUNT: None}
    for i, metric in enumerate(evaluate.metrics):
        if isinstance(metric, str):
            continue
        if metric.name in known:
            yield Issue(
                f"evaluate.metrics.{i}",
                f"found {metric.name!r}, which is the name of another metric too; give this "
                "metric a name by config: {name: ...}",
            )
        known[metric.name] = None


def thresholds_are_of_numbers(target: LearningTask, evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that thresholds are given for numbers only, not for curves or matrices."""
    known = target.metrics()
    numbers = [name for name, metric in known.items() if metric.is_number]
    for name in evaluate.thresholds:
        if name in known and not known[name].is_number:
            yield Issue(
                f"evaluate.thresholds.{name}",
                f"{name} is not a number; list it in evaluate.metrics, and set thresholds for "
                f"some of {', '.join(numbers)}",
            )


def thresholds_have_valid_bounds(evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that a threshold has a bound, and that its bounds leave values between them."""
    for name, threshold in evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        if threshold.min is None and threshold.max is None and threshold.tolerance == 0:
            yield Issue(path, "the threshold is empty; give min, max or tolerance")
        elif None not in (threshold.least, threshold.most) and threshold.least > threshold.most:  # type: ignore[operator]
            yield Issue(path, f"min {threshold.least:g} is above max {threshold.most:g}")


def thresholds_have_intervals_and_slices(evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Checks that `confident` comes with `evaluate.confidence`, and `slices` with
    `evaluate.slices`.
    """
    for name, threshold in evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        sure = {"min": threshold.is_least_sure, "max": threshold.is_most_sure}
        for key in (key for key, is_sure in sure.items() if is_sure):
            if evaluate.confidence is None:
                yield Issue(
                    f"{path}.{key}.confident",
                    "found true, but evaluate.confidence is null; give it a number such as 0.95",
                )
        if threshold.slices and not evaluate.slices:
            yield Issue(
                f"{path}.slices",
                "found true, but there are no evaluate.slices; name columns there, or leave it out",
            )


def tolerances_need_a_comparison(
    target: LearningTask, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that tolerances are given only for metrics that are compared with the model in
    service.
    """
    known = target.metrics()
    for name, threshold in evaluate.thresholds.items():
        if threshold.tolerance and name in known and not known[name].is_compared:
            yield Issue(
                f"evaluate.thresholds.{name}.tolerance",
                f"found {threshold.tolerance:g}, but {name} is not compared with the model in "
                "service; give it min or max",
            )


def leaking_columns_can_be_found(
    preprocessing: str | None, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that `leakage: fail` is not given with `preprocessing`, which turns the check off."""
    if evaluate.leakage is OnLeakage.FAIL and preprocessing:
        yield Issue(
            "evaluate.leakage",
            "found 'fail', but with `preprocessing` no column is checked; leave one of them out",
        )


EVALUATE_RULES = rules_of(__name__)
