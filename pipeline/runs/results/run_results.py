"""What the components of a run left behind, as far as the run's records tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline.records.summary import RunSummary, State


@dataclass(frozen=True)
class PushedVersion:
    """A pushed model: the folder (or URI) it is served from, and Pusher's own copy of it."""

    destination: str
    archive: Path


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
