"""The settings and the results of confidence intervals; the results are a file beside TFMA's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import BaseModel, TypeAdapter

from components.copying import read_text, write_text
from components.evaluator.dependence import INDEPENDENT, Dependence

BASELINE_EXAMPLES_KEY = "baseline_examples"
"""The input channel of the Examples that the model in service was trained on, as they were read."""
LEARNT_EXAMPLES_KEY = "learnt_examples"
"""The input channel of the Examples that the new model was trained on, as they were read."""


@dataclass(frozen=True)
class VerdictSettings:
    """The config's settings for confidence intervals and ties."""

    confidence: float | None = None
    """The confidence of the intervals; None for no intervals."""
    lower: tuple[str, ...] = ()
    """The metrics whose intervals have to keep `min` with their lower end."""
    upper: tuple[str, ...] = ()
    """The metrics whose intervals have to keep `max` with their upper end."""
    dependence: Dependence = INDEPENDENT
    """The column by which rows depend on one another."""
    others: Mapping[str, bool] = field(default_factory=dict)
    """The metrics without thresholds that fail if they are worse than in service beyond noise, and
    whether higher values of each are better."""
    deciding: str = ""
    """The first metric with a threshold, in which ties are decided; empty if there is none."""
    keeps_ties: bool | None = None
    """Whether the model in service stays if the new one is worse in the deciding metric, but within
    noise; None: it stays if both were trained on the same data."""
    not_compared: str = ""
    """The reason why the model in service is left out; empty if it is compared."""

    def to_json(self) -> str:
        """Returns the settings in the form that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> VerdictSettings:
        """Returns the settings of an execution property; the defaults if the property is empty."""
        return _AS_JSON.validate_python(json.loads(text or "{}"))


_AS_JSON = TypeAdapter(VerdictSettings)
NO_INTERVALS = VerdictSettings()
"""The settings without intervals."""


INTERVALS_FILE = "noise.json"


class Interval(BaseModel):
    """A confidence interval of a number."""

    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and the upper end."""
        return self.low, self.high


class MetricIntervals(BaseModel):
    """The confidence intervals of one metric in one slice."""

    defined: bool = True
    """Whether the metric is defined; the AUC of one class is not, although TFMA returns 0."""
    interval: Interval | None = None
    """The interval of the metric; None if there is none."""
    difference: Interval | None = None
    """The interval of the metric minus that of the model in service; None if there is none."""
    shared: Interval | None = None
    """The wider interval of the difference of a metric without threshold: its confidence holds for
    all these metrics together, as each may be worse by chance."""
    is_unmeasurable: bool = False
    """Whether the interval of the difference is missing because there are too few examples, or
    because the metric is undefined in too many resamples. If it is missing because all of many
    examples depend on one another, the values are compared."""


class EvaluationIntervals(BaseModel):
    """The confidence intervals of all metrics and slices."""

    confidence: float | None = None
    """The confidence of the intervals; None if there are none."""
    without: list[str] = []
    """The metrics for which intervals cannot be computed."""
    slices: dict[str, dict[str, MetricIntervals]] = {}
    """The intervals by the slice's name, empty for the whole split, and by the metric's name."""
    keeps_ties: bool = False
    """Whether the model in service stays if the new one is worse within noise."""
    not_compared: str = ""
    """The reason why the model in service was left out, as a clause after `which`; empty if it was
    compared."""
    notes: list[str] = []
    """Notes on the evaluation for the summary, in sentences."""

    def of(self, metric: str, slice_name: str = "") -> MetricIntervals:
        """Returns the intervals of a metric in a slice; an entry without intervals if there are
        none.
        """
        return self.slices.get(slice_name, {}).get(metric, MetricIntervals())


def read_intervals(uri: str) -> EvaluationIntervals:
    """Returns the confidence intervals of an evaluation; empty if TFMA computed the metrics.

    Args:
      uri: the folder of the artifact.
    """
    text = read_text(uri, INTERVALS_FILE)
    return EvaluationIntervals() if text is None else EvaluationIntervals.model_validate_json(text)


def write_intervals(intervals: EvaluationIntervals, uri: str) -> None:
    """Writes the file into the folder of an evaluation."""
    write_text(intervals.model_dump_json(exclude_defaults=True), uri, INTERVALS_FILE)
