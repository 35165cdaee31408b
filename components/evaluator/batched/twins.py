"""Twins of TFMA's combiners: they add up whole batches, and TFMA makes the metrics of their sums.

A twin accumulates what its combiner would have accumulated over the same examples, for all slices
at once. At the end it fills an accumulator of the combiner's own, whose `extract_output` and the
computations that follow from it stay TFMA's: values and formats are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, TypeVar

import apache_beam as beam
import numpy as np

from components.compat.tfma import Combiners, is_plain, name_of
from components.evaluator.batched.rows import Members, ModelRows, padded
from trainer_module.compat.insides import Known, is_known

Sums = tuple[np.ndarray, ...]
"""What a twin has added up."""

TWINS: dict[str, type[Twin]] = {}
"""By what `name_of` calls the type of the combiner."""

SomeTwin = TypeVar("SomeTwin", bound="type[Twin]")


class Twin(ABC):
    """Adds up for many slices at once what a combiner of TFMA's adds up for one."""

    known: ClassVar[Known] = {}
    """The code whose sums and options a twin reproduces: with other code TFMA measures itself.
    None of a combiner of ours."""

    def __init__(self, combiner: Any) -> None:
        self.combiner = combiner

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """Whether the combiner has no options that this twin does not know."""
        return is_plain(combiner)

    @abstractmethod
    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the rows of a batch."""

    @abstractmethod
    def merge(self, other: Any, places: np.ndarray, count: int) -> None:
        """Adds what another twin of the same combiner has added up.

        Args:
          other: the other twin.
          places: [slices of the other], the number that each of its slices has here.
          count: slices that there are here, with those of the other.
        """

    @property
    @abstractmethod
    def sums(self) -> Sums:
        """What has been added up, as arrays: what other processes are sent."""

    @sums.setter
    @abstractmethod
    def sums(self, sums: Sums) -> None:
        """Goes on from what another twin of the same combiner has added up."""

    @abstractmethod
    def accumulator(self, number: int) -> Any:
        """What the combiner would have accumulated of a slice."""

    def output(self, number: int) -> dict[Any, Any]:
        """What the combiner gives for a slice, by TFMA's keys."""
        found: dict[Any, Any] = self.combiner.extract_output(self.accumulator(number))
        return found


def twin_for(combiners: Combiners | type[beam.CombineFn]) -> Callable[[SomeTwin], SomeTwin]:
    """Registers a twin for combiners of TFMA's, or for one of ours."""

    def register(twin: SomeTwin) -> SomeTwin:
        if isinstance(combiners, Combiners):
            twin.known = combiners.known
            TWINS.update(dict.fromkeys(combiners.names, twin))
        else:
            TWINS[name_of(combiners)] = twin
        return twin

    return register


def find_twin(combiner: Any) -> Twin | None:
    """The twin of a combiner; None where no twin does what the combiner does."""
    twin = TWINS.get(name_of(type(combiner)))
    if twin is None or not (_is_known(twin) and twin.suits(combiner)):
        return None
    return twin(combiner)


@cache
def _is_known(twin: type[Twin]) -> bool:
    return is_known(twin.known, "measured by TFMA itself")


class SumTwin(Twin):
    """Base of the twins whose state is numbers that add up, [slices, width]."""

    width: int

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        self.totals = np.zeros((0, self.width))

    @property
    def sums(self) -> Sums:
        """The totals."""
        return (self.totals,)

    @sums.setter
    def sums(self, sums: Sums) -> None:
        (self.totals,) = sums

    @abstractmethod
    def values(self, batch: ModelRows) -> np.ndarray:
        """What each row adds, [rows, width]."""

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the values of the rows, by slice."""
        self.totals = padded(self.totals, members.count) + members.total(self.values(batch))

    def merge(self, other: SumTwin, places: np.ndarray, count: int) -> None:
        """Adds the totals of the other one."""
        self.totals = padded(self.totals, count).copy()
        self.totals[places] += padded(other.totals, len(places))
