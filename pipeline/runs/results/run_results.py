"""What the components of a run left behind, as far as the run's records tell of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline.records.summary import RunSummary, State

if TYPE_CHECKING:
    from components.evaluator.noise import Interval


@dataclass(frozen=True)
class PushedVersion:
    """A pushed model: the folder (or URI) it is served from, and Pusher's own copy of it."""

    destination: str
    archive: Path


@dataclass(frozen=True)
class MetricResult:
    """One metric of the whole eval split."""

    name: str
    value: float
    in_service: float | None
    """The same of the model to beat; None if there is none."""
    needs: str
    """What the thresholds ask, in words; empty if nothing."""
    ok: bool
    """Whether nothing was found against it, on no slice either."""
    interval: Interval | None = None
    difference: Interval | None = None
    """Of the value less that in service."""


@dataclass(frozen=True)
class EvaluationReport:
    """What was measured and decided."""

    blessed: bool
    reason: str
    metrics: tuple[MetricResult, ...]
    slices: dict[str, dict[str, float]]
    """Slice, such as `plan=gold`, to its metrics and its `example_count`; NaN if undefined."""
    confidence: float | None = None
    """Of the intervals."""
    notes: list[str] = field(default_factory=list)
    nearly_perfect: MetricResult | None = None
    """The first metric that is nearly as good as it can be."""


class RunResults(Protocol):
    """Where a run's results are read from: artifacts, or what steps on a cluster have reported.

    Itself it has none, as a run of which no component has begun.
    """

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds the results of a component that has ended to the summary.

        Args:
          component: that ended.
          state: as TFX has it.
          execution: its id in the metadata, if it has one.
          summary: is filled.

        Returns:
          The state as people have it, and the gist of the results.
        """
        del component, execution, summary
        return state, ""

    def examples_uri(self) -> str:
        """Where the examples are."""
        return ""

    def model_uri(self) -> str | None:
        """Where the model is; None if Trainer did not come to one."""
        return None

    def pushed_version(self) -> PushedVersion | None:
        """The version that Pusher made; None if it pushed nothing."""
        return None
