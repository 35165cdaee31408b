"""What the groups of examples come to, slice by slice, in the twins that metrics are added up by.

To a twin, the examples of a slice that are in one group are a slice of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from components.evaluator.batched.resampling.groups import GROUPS
from components.evaluator.batched.rows import Members, ModelRows
from components.evaluator.batched.twins import Sums, Twin


@dataclass(frozen=True)
class GroupedFound:
    """What can be sent to another process."""

    parts: np.ndarray
    """[parts] slice times GROUPS plus group, of each part that has rows."""
    sums: list[Sums]
    """Of each twin."""


class Grouped:
    """Adds up the parts of slices that are in one group each."""

    def __init__(self, twins: list[Twin], models: list[str]) -> None:
        """There are no rows yet.

        Args:
          twins: empty ones, which are added to.
          models: whose predictions each twin is of.
        """
        self.twins = twins
        self._models = models
        self._parts = self._order = np.zeros(0, np.int64)

    def add(self, batches: Mapping[str, ModelRows], members: Members, groups: np.ndarray) -> None:
        """Adds a batch.

        Args:
          batches: what each model makes of the rows.
          members: the slices that they are in.
          groups: [rows], those that they are in.
        """
        numbers = self._numbers(members.slices * GROUPS + groups[members.rows])
        of_parts = Members(members.rows, numbers, len(self._parts))
        for twin, model in zip(self.twins, self._models, strict=True):
            twin.add(batches[model], of_parts)

    def _numbers(self, parts: np.ndarray) -> np.ndarray:
        """The number of each part, a new one of those that have not come up yet."""
        used, where = np.unique(parts, return_inverse=True)
        new = np.setdiff1d(used, self._parts, assume_unique=True)
        self._parts = np.concatenate([self._parts, new])
        self._order = order = np.argsort(self._parts)
        return order[np.searchsorted(self._parts, used, sorter=order)][where]

    def found(self) -> GroupedFound:
        """What another process can go on from."""
        return GroupedFound(self._parts, [twin.sums for twin in self.twins])

    def resume(self, found: GroupedFound) -> None:
        """Goes on from what has been found."""
        self._parts, self._order = found.parts, np.argsort(found.parts)
        for twin, sums in zip(self.twins, found.sums, strict=True):
            twin.sums = sums

    def merge(self, other: Grouped, places: np.ndarray) -> None:
        """Adds what another process has come to.

        Args:
          other: of the same twins.
          places: [slices of the other], the number that each of its slices has here.
        """
        slices, groups = np.divmod(other._parts, GROUPS)
        numbers = self._numbers(places[slices] * GROUPS + groups)
        for twin, also in zip(self.twins, other.twins, strict=True):
            twin.merge(also, numbers, len(self._parts))

    def parts_of(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The parts of a slice: [parts] their numbers in the twins, and [parts] their groups."""
        bounds = np.array([number, number + 1]) * GROUPS
        first, end = np.searchsorted(self._parts, bounds, sorter=self._order)
        mine = self._order[first:end]
        return mine, self._parts[mine] % GROUPS
