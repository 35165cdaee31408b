"""The settings and the results of confidence intervals; the results are a file of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import BaseModel, TypeAdapter

from components.copying import read_text, write_text
from components.evaluator.dependence import INDEPENDENT, Dependence
from components.json_numbers import Number

BASELINE_EXAMPLES_KEY = "baseline_examples"
"""The input channel of the raw Examples that the model in service was trained on."""
TRAINING_EXAMPLES_KEY = "training_examples"
"""The input channel of the raw Examples that the new model was trained on."""


@dataclass(frozen=True)
class VerdictSettings:
    """The config's settings for confidence intervals and ties."""

    confidence: float | None = None
    """The confidence of the intervals, or None for no intervals."""
    lower: tuple[str, ...] = ()
    """The metrics whose interval has to lie completely above the threshold's `min`."""
    upper: tuple[str, ...] = ()
    """The metrics whose interval has to lie completely below the threshold's `max`."""
    dependence: Dependence = INDEPENDENT
    """The column by which rows depend on one another."""
    others: Mapping[str, bool] = field(default_factory=dict)
    """The metrics without thresholds that fail if they are significantly worse than in service. The
    values are True if higher values of the metric are better."""
    deciding: str = ""
    """The first metric with a threshold, by which ties are decided. Empty if there are no
    thresholds."""
    keeps_ties: bool | None = None
    """Whether a new model is rejected if its deciding metric is worse, but not significantly worse.
    With None, it is rejected if both models were trained on the same data."""
    not_compared: str = ""
    """The reason why there is no comparison with the model in service. Empty if there is a
    comparison."""

    def to_json(self) -> str:
        """Returns the settings as JSON, for `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> VerdictSettings:
        """Returns the settings in an execution property, or the defaults if the property is
        empty.
        """
        return _AS_JSON.validate_python(json.loads(text or "{}"))


_AS_JSON = TypeAdapter(VerdictSettings)
NO_INTERVALS = VerdictSettings()


INTERVALS_FILE = "noise.json"
"""The file of the confidence intervals, in the folder of TFMA's files."""


class Interval(BaseModel):
    """A confidence interval of a number."""

    low: Number
    high: Number

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and the upper end."""
        return self.low, self.high


class MetricIntervals(BaseModel):
    """The confidence intervals of one metric in one slice."""

    defined: bool = True
    """Whether the metric is defined. The AUC of a single class is undefined, but TFMA returns 0."""
    interval: Interval | None = None
    """The interval of the metric, or None if there is no interval."""
    difference: Interval | None = None
    """The interval of the difference: the metric minus the metric in service. None if there is no
    interval."""
    shared: Interval | None = None
    """The interval of the difference of a metric without threshold. It is wider than `difference`,
    because all metrics without thresholds share the confidence (Bonferroni)."""
    is_unmeasurable: bool = False
    """Whether the interval of the difference is missing because there are too few examples, or
    because the metric is undefined in too many resamples. False if the interval is missing because
    all examples belong to one unit: then the values are compared."""


class EvaluationIntervals(BaseModel):
    """The confidence intervals of all metrics and slices."""

    confidence: float | None = None
    """The confidence of the intervals, or None if there are no intervals."""
    without: list[str] = []
    """The metrics for which intervals cannot be computed."""
    slices: dict[str, dict[str, MetricIntervals]] = {}
    """The intervals by the name of the slice, which is empty for the whole split, and of the
    metric."""
    keeps_ties: bool = False
    """Whether a new model is rejected if its deciding metric is worse, but not significantly
    worse."""
    not_compared: str = ""
    """The reason why there was no comparison, as a predicate of the model in service, such as
    "cannot read this data". Empty if there was a comparison."""
    notes: list[str] = []

    def find(self, metric: str, slice_name: str = "") -> MetricIntervals:
        """Returns the intervals of a metric in a slice, or an entry without intervals."""
        return self.slices.get(slice_name, {}).get(metric, MetricIntervals())


def read_intervals(uri: str) -> EvaluationIntervals:
    """Returns the confidence intervals of an evaluation, or no intervals if TFMA computed the
    metrics.
    """
    text = read_text(uri, INTERVALS_FILE)
    return EvaluationIntervals() if text is None else EvaluationIntervals.model_validate_json(text)


def write_intervals(intervals: EvaluationIntervals, uri: str) -> None:
    """Writes the confidence intervals into the folder of an evaluation."""
    write_text(intervals.model_dump_json(exclude_defaults=True), uri, INTERVALS_FILE)
