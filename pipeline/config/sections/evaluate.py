"""`evaluate`: what a model is measured by, and what it must reach."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from pipeline.config.metrics import MetricSettings, is_own
from trainer_module.sections import Settings
from trainer_module.settings import CrossValidation


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
