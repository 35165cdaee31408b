"""What a config says of chance in an evaluation, and what is known of it: a file beside TFMA's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import BaseModel, TypeAdapter

from components.copying import read_text, write_text
from components.evaluator.dependence import INDEPENDENT, Dependence

BASELINE_EXAMPLES_KEY = "baseline_examples"
"""The Examples that the model in service has learnt from, as they were read."""
LEARNT_EXAMPLES_KEY = "learnt_examples"
"""The Examples that the new model has learnt from, as they were read."""


@dataclass(frozen=True)
class VerdictSettings:
    """What the config says of chance."""

    confidence: float | None = None
    """Of intervals; None: there are none."""
    lower: tuple[str, ...] = ()
    """Metrics whose `min` the lower end of their interval has to keep."""
    upper: tuple[str, ...] = ()
    """Metrics whose `max` the upper end has to keep."""
    dependence: Dependence = INDEPENDENT
    """Which rows are alike."""
    others: Mapping[str, bool] = field(default_factory=dict)
    """Metrics without thresholds that speak against a model where they are worse than in service
    beyond noise, and whether more of each is better."""
    deciding: str = ""
    """The first metric with a threshold, in which a tie is kept or not; empty: there is none."""
    keeps_ties: bool | None = None
    """Whether a model that is worse in that metric within noise leaves the one in service there;
    None: where both have learnt from the same data."""
    not_compared: str = ""
    """What is wrong with the model in service, which is left out then; empty: nothing."""

    def to_json(self) -> str:
        """As `from_json` takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> VerdictSettings:
        """From an execution property; empty: as before there was one."""
        return _AS_JSON.validate_python(json.loads(text or "{}"))


_AS_JSON = TypeAdapter(VerdictSettings)
NO_CHANCE = VerdictSettings()
"""Values are taken as they are."""


NOISE_FILE = "noise.json"


class Interval(BaseModel):
    """Where a number is, as sure as the confidence says."""

    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """Both."""
        return self.low, self.high


class MetricNoise(BaseModel):
    """Of one metric in one slice."""

    defined: bool = True
    """Whether there is such a number; there is no AUC of one class, which TFMA says is 0."""
    interval: Interval | None = None
    """Of the metric; None where it has none."""
    difference: Interval | None = None
    """Of the metric less that of the model in service; None where it has none."""
    shared: Interval | None = None
    """The same of a metric that has no threshold, wider, as each of several may be worse by chance:
    the confidence holds of all of them together."""
    is_unmeasurable: bool = False
    """Whether there is no such interval because there are too few examples, or too many resamples
    have no such number. Of many examples that all depend on one another the value is held."""


class Noise(BaseModel):
    """Of all metrics and slices."""

    confidence: float | None = None
    """Of the intervals; None if there are none."""
    without: list[str] = []
    """Metrics that there cannot be intervals of."""
    slices: dict[str, dict[str, MetricNoise]] = {}
    """By the name of the slice, empty for the whole split, and that of the metric."""
    keeps_ties: bool = False
    """Whether the model in service stays where the new one is worse within noise."""
    not_compared: str = ""
    """Why the model in service was left out, after `which`; empty if it was not."""
    notes: list[str] = []
    """What people should know of the evaluation, in sentences."""

    def of(self, metric: str, slice_name: str = "") -> MetricNoise:
        """That of a metric in a slice; without intervals where nothing is known."""
        return self.slices.get(slice_name, {}).get(metric, MetricNoise())


def read_noise(uri: str) -> Noise:
    """What is known of the chance in an evaluation; nothing where TFMA measured by itself.

    Args:
      uri: the folder of the artifact.
    """
    text = read_text(uri, NOISE_FILE)
    return Noise() if text is None else Noise.model_validate_json(text)


def write_noise(noise: Noise, uri: str) -> None:
    """Writes the file into the folder of an evaluation."""
    write_text(noise.model_dump_json(exclude_defaults=True), uri, NOISE_FILE)
