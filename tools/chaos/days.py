"""Days that are good, and days that are empty, late, corrected, shifted, poisoned or broken."""

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
    """What a day brings."""

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
"""Days that are trained on in the night after them."""
WITHOUT_ROWS = (DayData.QUIET, DayData.EMPTY, DayData.HEADER)
REFUSED = (DayData.SHIFTED, DayData.BROKEN)
"""Days that are not trained on."""
_GOOD_FIRST = 1
_MORE_GOOD, _MORE_QUIET = 4, 3
"""Good days, and nights without trouble, for each round of all kinds."""
_MOST_DAYS = 30
"""The trips are dealt to so many days, however few are played."""
_CORRECTED_SHARE = 0.75
_SHIFT = 500.0
"""Miles, where trips have 3 on the average."""


@dataclass(frozen=True)
class Night:
    """A day, and the night after it."""

    number: int
    data: DayData
    trouble: Trouble


def draw(seed: int, days: int) -> list[Night]:
    """Nights of every kind, in an order that the seed decides; the first is good."""
    chance = random.Random(seed)  # noqa: S311 - a plan, no secret
    kinds, troubles = [DayData.GOOD] * _GOOD_FIRST, [Trouble.NONE] * _GOOD_FIRST
    while len(kinds) < days or len(troubles) < days:
        round_of_days = [*DayData, *[DayData.GOOD] * _MORE_GOOD]
        round_of_nights = [*Trouble, *[Trouble.NONE] * _MORE_QUIET]
        kinds += chance.sample(round_of_days, len(round_of_days))
        troubles += chance.sample(round_of_nights, len(round_of_nights))
    return [Night(n + 1, kinds[n], troubles[n]) for n in range(days)]


class BadDays(Replay):
    """A folder of days, some of them bad."""

    def __init__(self, folder: Path, nights: Sequence[Night], *settings: str) -> None:
        """Prepares the trips of all days.

        Args:
          folder: for the days' files and the output.
          nights: what the days bring.
          settings: changes of the config, `key=value` each.
        """
        quiet = {night.number for night in nights if night.data is DayData.QUIET}
        poisoned = {night.number for night in nights if night.data is DayData.POISONED}
        minor = [f"features.{name}={{type: ignore}}" for name in MINOR_COLUMNS]
        super().__init__(folder, max(len(nights), _MOST_DAYS), quiet, poisoned, *minor, *settings)
        self._data = {night.number: night.data for night in nights}
        self._late: list[int] = []

    def deliver(self, number: int) -> None:
        """What a day brings, as its kind says."""
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
            self._rewrite(number - 1, number, _leave_some_out)
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


def _leave_some_out(rows: _Rows) -> _Rows:
    return rows[: int(len(rows) * _CORRECTED_SHARE)]


def _shift(rows: _Rows) -> _Rows:
    return [row | {"trip_miles": f"{float(row['trip_miles'] or 0) + _SHIFT}"} for row in rows]


def _break(rows: _Rows) -> _Rows:
    return [row | {"fare": f"about {row['fare']}"} for row in rows]
