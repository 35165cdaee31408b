"""The data of simulated days: good, empty, late, corrected, shifted, poisoned or broken."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tools.chaos.troubles import Trouble
from tools.replay import MINOR_COLUMNS, Replay


class DayData(StrEnum):
    """The kind of data that a day delivers."""

    GOOD = "good"
    QUIET = "nothing"
    EMPTY = "a file of no bytes"
    HEADER = "a header alone"
    LATE = "late by a night"
    CORRECTED = "good, and the day before again"
    POISONED = "shuffled labels"
    SHIFTED = "shifted"
    BROKEN = "text for numbers"


TRAINED_AT_ONCE = (DayData.GOOD, DayData.CORRECTED, DayData.POISONED)
"""The kinds of days from whose data the following night trains."""
WITHOUT_ROWS = (DayData.QUIET, DayData.EMPTY, DayData.HEADER)
REFUSED = (DayData.SHIFTED, DayData.BROKEN)
"""The kinds of days whose data is refused."""
_GOOD_FIRST = 1
_MORE_GOOD, _MORE_QUIET = 4, 3
"""The numbers of additional good days, and of nights without a fault, per round of all kinds."""
_MIN_DAYS = 30
"""The minimum number of days among which the trips are divided."""
_CORRECTED_SHARE = 0.75
_SHIFT = 500.0
"""The miles that are added to each trip; the mean trip has 3 miles."""


@dataclass(frozen=True)
class Night:
    """The data of a day, and the trouble of the night after it."""

    number: int
    data: DayData
    trouble: Trouble


def draw(seed: int, days: int) -> list[Night]:
    """Returns nights of every kind in an order that the seed determines; the first day is good."""
    chance = random.Random(seed)  # noqa: S311 - a plan, no secret
    kinds, troubles = [DayData.GOOD] * _GOOD_FIRST, [Trouble.NONE] * _GOOD_FIRST
    while len(kinds) < days or len(troubles) < days:
        round_of_days = [*DayData, *[DayData.GOOD] * _MORE_GOOD]
        round_of_nights = [*Trouble, *[Trouble.NONE] * _MORE_QUIET]
        kinds += chance.sample(round_of_days, len(round_of_days))
        troubles += chance.sample(round_of_nights, len(round_of_nights))
    return [Night(n + 1, kinds[n], troubles[n]) for n in range(days)]


class BadDays(Replay):
    """A replay in which some days have faulty data."""

    def __init__(self, folder: Path, nights: Sequence[Night], *settings: str) -> None:
        """Prepares the trips of all days.

        Args:
          folder: the folder for the days' files and the output.
          nights: the nights, with the kinds of data.
          settings: overrides of the config, `key=value` each.
        """
        quiet = {night.number for night in nights if night.data is DayData.QUIET}
        poisoned = {night.number for night in nights if night.data is DayData.POISONED}
        minor = [f"features.{name}={{type: ignore}}" for name in MINOR_COLUMNS]
        super().__init__(folder, max(len(nights), _MIN_DAYS), quiet, poisoned, *minor, *settings)
        self._data = {night.number: night.data for night in nights}
        self._late: list[int] = []

    def deliver(self, number: int) -> None:
        """Delivers the data of a day, according to its kind."""
        for late in self._late:
            super().deliver(late)
            self.arrive(self.file(late), number)
        self._late = []
        data = self._data[number]
        if data is DayData.LATE:
            self._late = [number]
            return
        super().deliver(number)
        if data is DayData.CORRECTED and self.file(number - 1).exists():
            self._rewrite(number - 1, number, _remove_some)
        elif data is DayData.EMPTY:
            self.file(number).write_text("")
            self.arrive(self.file(number), number)
        elif data is DayData.HEADER:
            self._rewrite(number, number, lambda rows: [])
        elif data is DayData.SHIFTED:
            self._rewrite(number, number, _shift)
        elif data is DayData.BROKEN:
            self._rewrite(number, number, _break)

    def _rewrite(self, number: int, arrives: int, change: Callable[[_Rows], _Rows]) -> None:
        path = self.file(number)
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows, names = list(reader), list(reader.fieldnames or [])
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(change(rows))
        self.arrive(path, arrives)


_Rows = list[dict[str, str]]


def _remove_some(rows: _Rows) -> _Rows:
    return rows[: int(len(rows) * _CORRECTED_SHARE)]


def _shift(rows: _Rows) -> _Rows:
    return [row | {"trip_miles": f"{float(row['trip_miles'] or 0) + _SHIFT}"} for row in rows]


def _break(rows: _Rows) -> _Rows:
    return [row | {"fare": f"about {row['fare']}"} for row in rows]
