"""A replay whose nights begin with TFX imported, as do the runs that they start, and are short."""

from __future__ import annotations

import subprocess
from pathlib import Path

import warm

from tools.replay import Replay

IGNORED = (
    "company",
    "pickup_latitude",
    "pickup_longitude",
    "dropoff_latitude",
    "dropoff_longitude",
    "pickup_community_area",
    "dropoff_community_area",
    "trip_start_month",
    "trip_start_day",
)
"""Columns that the label hardly depends on: each adds a second to a night, for Transform's graph."""


class WarmReplay(Replay):
    """A folder of days, played in processes that are forked."""

    def __init__(
        self, folder: Path, days: int, quiet: set[int], poisoned: int | None, *settings: str
    ) -> None:
        ignored = [f"features.{name}={{type: ignore}}" for name in IGNORED]
        super().__init__(folder, days, quiet, poisoned, *ignored, *settings)

    def play(self, number: int) -> subprocess.CompletedProcess[str]:
        self.deliver(number)
        return warm.run(self.command(number), capture_output=True, text=True)
