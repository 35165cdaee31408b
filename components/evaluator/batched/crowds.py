"""Slices by columns of very many values: counted first, so that the largest alone are measured.

To add up metrics takes memory by the slice, so that at most `MOST_TRACKED` slices of a kind are
added up. Where there are more, a pass over their columns counts the rows of each slice, by a hash
of its values. The counts are exact for up to `MOST_COUNTED` slices of a kind; of more they are
those of Misra and Gries (1982), which add up over files (Agarwal et al., 2012: Mergeable
Summaries): a count is too small by no more than rows / MOST_COUNTED. A second pass then measures
the largest slices, of which all metrics are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

Kind = tuple[str, ...]
"""The columns that slices are by."""

MOST_SLICES = 1000
"""Slices of a kind that are reported: those of the most examples."""
MOST_TRACKED = 20_000
"""Slices of a kind that are added up without being counted first."""
MOST_COUNTED = 1 << 20
"""Slices of a kind that are counted at a time: 16 MB."""


@dataclass(frozen=True)
class Crowded:
    """In the place of what rows come to: there are more slices of a kind than are added up."""


@dataclass(frozen=True)
class Largest:
    """The largest slices of a kind of very many."""

    hashes: np.ndarray
    """[slices] uint64, in ascending order."""
    distinct: int
    """How many there are of all sizes, at least."""
    is_exact: bool
    """Whether there are no more than `distinct`."""

    def holds(self, hashes: np.ndarray) -> np.ndarray:
        """Which slices, by their hashes, are among the largest: [slices] bool."""
        places = np.searchsorted(self.hashes, hashes).clip(max=len(self.hashes) - 1)
        return np.asarray(self.hashes[places] == hashes)


class Counts:
    """The rows of the slices of one kind; two of the same kind add up."""

    def __init__(self) -> None:
        """There are no rows yet."""
        self._hashes = np.zeros(0, np.uint64)
        self._rows = np.zeros(0, np.int64)
        self._has_lost = False
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._waits = 0

    def add(self, hashes: np.ndarray, rows: np.ndarray) -> None:
        """Adds rows.

        Args:
          hashes: [slices] uint64, some of which may be the same.
          rows: [slices], those of each.
        """
        self._waiting.append((hashes, rows))
        self._waits += len(hashes)
        if self._waits > MOST_COUNTED:
            self._join()

    def merge(self, other: Counts) -> None:
        """Adds what another process, or another file, has counted."""
        other._join()
        self._has_lost |= other._has_lost
        self.add(other._hashes, other._rows)

    def largest(self) -> Largest | None:
        """The largest, of equal ones some; None if there are few enough to add up all."""
        self._join()
        if len(self._hashes) <= MOST_TRACKED:
            return None
        # By their hashes where they are as large: the same in every run.
        first = np.lexsort((self._hashes, -self._rows))[:MOST_SLICES]
        return Largest(np.sort(self._hashes[first]), len(self._hashes), not self._has_lost)

    def _join(self) -> None:
        hashes = np.concatenate([self._hashes, *(hashes for hashes, _ in self._waiting)])
        rows = np.concatenate([self._rows, *(rows for _, rows in self._waiting)])
        self._waiting, self._waits = [], 0
        distinct, where = np.unique(hashes, return_inverse=True)
        self._hashes = distinct
        self._rows = np.bincount(where, rows, len(distinct)).astype(np.int64)
        if len(self._hashes) > MOST_COUNTED:
            order = np.lexsort((self._hashes, -self._rows))
            kept = np.sort(order[:MOST_COUNTED])
            most_lost = self._rows[order[MOST_COUNTED]]
            self._hashes, self._rows = self._hashes[kept], self._rows[kept] - most_lost
            self._has_lost = True


def add_up(parts: Iterable[Mapping[Kind, Counts]]) -> dict[Kind, Counts]:
    """The counts of several files or processes."""
    total: dict[Kind, Counts] = {}
    for part in parts:
        for kind, counts in part.items():
            total.setdefault(kind, Counts()).merge(counts)
    return total


def find_largest(counts: Mapping[Kind, Counts]) -> dict[Kind, Largest]:
    """The largest slices of the kinds that have too many."""
    found = ((kind, one.largest()) for kind, one in counts.items())
    return {kind: largest for kind, largest in found if largest is not None}
