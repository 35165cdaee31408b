"""`evaluate`: what a model is measured by, and what it must reach."""

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
"""The metric that is always measured."""
NAME = "name"
"""The key of a metric's arguments that says what it is called."""


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments.get(NAME, "a_name")
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"name: found {name!r}; right is a text without dots, such as cost")
    return arguments


class MetricSettings(Settings):
    """A metric as `tfma.MetricConfig` has it: a class of TFMA's, of Keras's or of yours."""

    class_name: str = Field(min_length=1)
    """The class, such as `Specificity`."""
    module: str = ""
    """Where it is, such as `my_metrics`; may be left out for a class of TFMA's or of Keras's."""
    config: Annotated[dict[str, Any], AfterValidator(_check_arguments)] = {}
    """Its arguments; `name` is what it is called, by default its class in small letters."""

    @property
    def name(self) -> str:
        """What results and thresholds call it."""
        words = re.sub("([a-z0-9])([A-Z])", r"\1_\2", self.class_name)
        words = re.sub("([A-Z]+)([A-Z][a-z])", r"\1_\2", words)
        return str(self.config.get(NAME, words.lower()))


def is_own(name: str) -> bool:
    """Returns whether a metric is named by the import path of a class of the user's."""
    return "." in name


class Bound(Settings):
    """A bound that is kept for certain, or as far as was measured."""

    value: float
    """The smallest, or the largest, acceptable value."""
    confident: bool = False
    """Whether the worse end of the metric's interval has to keep it, and not only its value."""


class Threshold(Settings):
    """Bounds that a metric has to keep for the model to be blessed."""

    min: float | Bound | None = None
    """The smallest acceptable value."""
    max: float | Bound | None = None
    """The largest acceptable value."""
    tolerance: float = Field(default=0.0, ge=0)
    """How much worse than the model in service it may be; with `evaluate.confidence`, beyond what
    chance explains."""
    slices: bool = False
    """Whether each of `evaluate.slices` has to keep it as well, where the metric is defined."""

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
        """Whether `min` is to be kept with confidence."""
        return isinstance(self.min, Bound) and self.min.confident

    @property
    def is_most_sure(self) -> bool:
        """Whether `max` is."""
        return isinstance(self.max, Bound) and self.max.confident


def _as_list(value: Any) -> Any:
    """One column may stand for a list of one."""
    return [value] if isinstance(value, str) else value


ColumnNames = Annotated[
    list[str],
    BeforeValidator(_as_list),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]


class OnLeakage(StrEnum):
    """What a column that gives the label away does."""

    WARN = "warn"
    FAIL = "fail"


class Ties(StrEnum):
    """Which of two models serves that differ by no more than chance, where the new one is worse."""

    NEWEST = "newest"
    KEEP = "keep"


class EvaluateSettings(CrossValidation):
    """What the model is measured by, and what it must reach to be pushed."""

    metrics: list[str | MetricSettings] = []
    """Names of metrics, import paths of TFMA's or Keras's metric classes, or `tfma.MetricConfig`s;
    where none is named the usual ones of the task. docs/config.md lists the names."""
    thresholds: dict[str, Threshold] = {}
    """Bounds by metric; besides them a model is not worse than the one in service. Without any, it
    has to be better than a constant prediction (the most frequent class, the mean)."""
    slices: list[ColumnNames] = []
    """Columns, or lists of columns, by whose values the metrics are reported as well."""
    confidence: float | None = Field(default=0.95, ge=0.5, lt=1)
    """How sure the verdict has to be that a model is worse than the one in service, and of bounds
    that are `confident`; null: values are compared as they are."""
    leakage: OnLeakage = OnLeakage.WARN
    """Whether a column that predicts the label nearly without error by itself is a note, or ends
    the run before training; so is a random split of dated rows whose neighbours are alike. Columns
    that `features` declares are not looked at."""

    ties: Ties | None = None
    """What becomes of a new model that is worse than the one in service in the metric that decides,
    but within noise: newest pushes it, keep does not. Default: keep where both have learnt from the
    same data, newest where the data is another."""

    @property
    def named(self) -> list[str]:
        """Those of the metrics that stand there by name or import path."""
        return [metric for metric in self.metrics if isinstance(metric, str)]

    @property
    def configured(self) -> dict[str, MetricSettings]:
        """The others, by what they are called."""
        return {metric.name: metric for metric in self.metrics if not isinstance(metric, str)}

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's metrics, by the key that names each."""
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
    """What a model is judged by: the metrics of its task, and what `evaluate` asks of them."""

    task: LearningTask
    evaluate: EvaluateSettings
    weight: str | None = None
    """The column that says how much each example counts."""
    changes_labels: bool = False
    """Whether a function of the user's may have made other numbers of the labels."""
    split_by: str | None = None
    """The column whose equal values are in the same split."""
    order_by: str | None = None
    """The column by whose order the rows are split."""

    def metric(self, name: str) -> Metric:
        """Returns a metric of the task's, or the user's: of those less is better where they have a
        maximum.

        Nobody knows what the size of the user's means.

        Args:
          name: that of one of the task's, an import path, or what TFMA's config is to call it.
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
        """The numbers to compute: those named, or the task's usual ones, and those with thresholds.

        Of what is given as TFMA's config only a threshold makes a metric decide.
        """
        usual = [*self.task.usual_metrics(), *self.task.reported_metrics()]
        more = (*self.evaluate.configured, *self.evaluate.thresholds)
        return list(dict.fromkeys([*(self._named_numbers or usual), *more]))

    @property
    def _named_numbers(self) -> list[str]:
        """The metrics that the config names and that are numbers."""
        return [name for name in self.evaluate.named if self.metric(name).is_number]

    @property
    def plots(self) -> list[str]:
        """The curves and matrices that are named, of which TFMA keeps files of their own."""
        named = dict.fromkeys(self.evaluate.named)
        return [name for name in named if not self.metric(name).is_number]

    @property
    def thresholds(self) -> dict[str, Threshold]:
        """The thresholds; where there are none, one that any number for the first metric keeps.

        TFX does not decide without a threshold; then the model in service and the constant
        prediction, which Evaluator adds, are the only bounds.
        """
        return dict(self.evaluate.thresholds) or {self.names[0]: Threshold()}

    @property
    def others(self) -> dict[str, bool]:
        """Metrics that speak against a model that is worse in them, and whether more is better.

        Where thresholds are set there are none, as a person has said which metrics decide.
        """
        if self.evaluate.thresholds:
            return {}
        # Of the user's own it is not known what is better.
        known = self.task.metrics()
        names = self.names if self._named_numbers else self.task.usual_metrics()
        return {
            name: known[name].higher_is_better
            for name in names[1:]
            if name in known and known[name].is_compared and not known[name].is_half
        }

    @property
    def deciding(self) -> DecidingMetric:
        """The metric by which variants of a model are compared with it: the first that decides."""
        names = self.names
        name = next(name for name in names if name in (self.evaluate.thresholds or names))
        metric = self.metric(name)
        direction = metric.higher_is_better if metric.is_compared else None
        return DecidingMetric(name=name, higher_is_better=direction, has_unit=metric.has_unit)


def metrics_fit_the_task(target: LearningTask, evaluate: EvaluateSettings) -> Iterator[Issue]:
    """Every metric that is named has to be one of the task's."""
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
    """What TFMA's config adds is called as no other metric, so that thresholds know which."""
    taken = {**target.metrics(), COUNT: None}
    for i, metric in enumerate(evaluate.metrics):
        if isinstance(metric, str):
            continue
        if metric.name in taken:
            yield Issue(
                f"evaluate.metrics.{i}",
                f"found {metric.name!r} a second time, or as the name of another metric; give "
                "config: {name: ...} one of its own",
            )
        taken[metric.name] = None


def thresholds_are_of_numbers(target: LearningTask, evaluate: EvaluateSettings) -> Iterator[Issue]:
    """A curve or a matrix is neither large nor small."""
    known = target.metrics()
    numbers = [name for name, metric in known.items() if metric.is_number]
    for name in evaluate.thresholds:
        if name in known and not known[name].is_number:
            yield Issue(
                f"evaluate.thresholds.{name}",
                f"{name} is no number; put it into evaluate.metrics, and bound one of "
                f"{', '.join(numbers)}",
            )


def thresholds_leave_room(evaluate: EvaluateSettings) -> Iterator[Issue]:
    """A threshold bounds something, and its bounds do not exclude each other."""
    for name, threshold in evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        if threshold.min is None and threshold.max is None and threshold.tolerance == 0:
            yield Issue(path, "it bounds nothing; give it min, max or tolerance")
        elif None not in (threshold.least, threshold.most) and threshold.least > threshold.most:  # type: ignore[operator]
            yield Issue(path, f"min {threshold.least:g} is above max {threshold.most:g}")


def thresholds_can_be_held(evaluate: EvaluateSettings) -> Iterator[Issue]:
    """What a threshold asks for beside a value has to be there."""
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


def tolerances_are_of_what_is_compared(
    target: LearningTask, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Some metrics are not held against the model in service."""
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
    """What a function of the user's makes of a column is not known, so that none is looked at."""
    if evaluate.leakage is OnLeakage.FAIL and preprocessing:
        yield Issue(
            "evaluate.leakage",
            "found 'fail', but with preprocessing no column is looked at; leave one of them out",
        )


EVALUATE_RULES = rules_of(__name__)
