"""What is known of the chance in an evaluation: a file beside TFMA's."""

from __future__ import annotations

import posixpath

from pydantic import BaseModel
from tfx.dsl.io import fileio

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
    path = posixpath.join(uri, NOISE_FILE)
    if not fileio.exists(path):
        return Noise()
    with fileio.open(path, "r") as opened:
        return Noise.model_validate_json(opened.read())


def write_noise(noise: Noise, uri: str) -> None:
    """Writes the file into the folder of an evaluation."""
    fileio.makedirs(uri)
    with fileio.open(posixpath.join(uri, NOISE_FILE), "w") as opened:
        opened.write(noise.model_dump_json(exclude_defaults=True))
