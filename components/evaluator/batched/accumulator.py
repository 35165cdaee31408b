"""The accumulated statistics of an evaluation, slice by slice and bootstrap group by group.

In a Poisson bootstrap (Chamandy, Muralidharan, Najmi and Naidu, 2012: Estimating Uncertainty for
Massive Data Streams) a resample counts each example a random number of times, drawn from
Poisson(1). Here the number follows from the example's position in the data: it is the same for both
models, whatever batch or process reads the example. The position is hashed to one of `GROUPS`
groups, so that only the sums of groups are stored: with few examples each mostly has a group of its
own, and with many a group is itself a sample. Equal examples have different positions: in a table
of a few categories each is a draw of its own, whereas examples that share a group are drawn
together.

Examples that depend on one another, such as the rows of one patient, share a group: the bootstrap
then draws units, not rows (Cameron, Gelbach and Miller, 2008: Bootstrap-Based Improvements for
Inference with Clustered Errors).

A hash of the serialized example would not do, as the order of its features differs between runs.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_model_analysis as tfma

from components.evaluator.batched.computations import Metrics, Source, computations_of
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import (
    MAX_TRACKED_SLICES,
    Kind,
    ModelRows,
    SliceKey,
    SliceMembership,
    Slicer,
    kind_of,
)
from components.evaluator.batched.statistics import Statistic, Values, pad
from components.evaluator.dependence import INDEPENDENT, Dependence
from trainer_module.errors import counted

GROUPS = 1024
"""The number of bootstrap groups; the standard error of a metric then has a relative error of 2 %:
1 / sqrt(2 * GROUPS)."""
RESAMPLES = 1000
"""The number of bootstrap resamples; 25 lie beyond each end of a 95 % interval."""
_SEED = 20
_FILES_APART = np.uint64(40)
"""The number of bits for a row's number in its file."""
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
)
"""The multipliers of SplitMix64 and of MurmurHash3's finalizer."""


class Grouper:
    """The assignment of one file's examples to bootstrap groups, in their order."""

    def __init__(self, file: int, dependence: Dependence = INDEPENDENT) -> None:
        """Creates a grouper at the beginning of a file.

        Args:
          file: the file's number in the evaluation.
          dependence: the examples that share a group.
        """
        self._next = np.uint64(file) << _FILES_APART
        self._dependence = dependence

    def groups(self, rows: int, columns: pa.RecordBatch) -> np.ndarray:
        """Returns the groups of the next examples, [rows] int64.

        Args:
          rows: the number of examples.
          columns: raw columns, including the one by which examples depend on one another.
        """
        with np.errstate(over="ignore"):
            places = self._next + np.arange(rows, dtype=np.uint64)
            self._next += np.uint64(rows)
            units = self._dependence.units(columns, places)
            mixed = (units + np.uint64(1)) * _GOLDEN
            for multiplier in (_FIRST, _SECOND):
                mixed = (mixed ^ (mixed >> np.uint64(33))) * multiplier
        return ((mixed ^ (mixed >> np.uint64(33))) % np.uint64(GROUPS)).astype(np.int64)


@functools.cache
def resample_counts() -> np.ndarray:
    """Returns how often each resample draws the examples of each group, [resamples, groups]."""
    # Contiguous by group in memory, as slices select groups.
    drawn = np.random.default_rng(_SEED).poisson(1.0, (GROUPS, RESAMPLES)).astype(np.float64)
    return drawn.T


MAX_REPORTED_SLICES = 1000
"""The most slices of a kind that are reported, largest first."""
MAX_WAITING_PREDICTIONS = 1 << 20
"""The most predictions that wait to be added up together: 4 MB."""


class Parts:
    """The numbering of the parts that rows are added up by: the rows of a slice in one group."""

    def __init__(self) -> None:
        """Creates an empty numbering."""
        self.keys = self._order = np.zeros(0, np.int64)
        """[parts] slice times GROUPS plus group, of each part that has rows."""

    def number(self, keys: np.ndarray) -> np.ndarray:
        """Returns the number of each part, a new one for a new part."""
        used, where = np.unique(keys, return_inverse=True)
        new = np.setdiff1d(used, self.keys, assume_unique=True)
        self.keys = np.concatenate([self.keys, new])
        self._order = np.argsort(self.keys)
        return self._order[np.searchsorted(self.keys, used, sorter=self._order)][where]

    def of(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the parts of a slice: [parts] their numbers, and [parts] their groups."""
        bounds = np.array([number, number + 1]) * GROUPS
        first, end = np.searchsorted(self.keys, bounds, sorter=self._order)
        mine = self._order[first:end]
        return mine, self.keys[mine] % GROUPS


class Accumulator:
    """The accumulated statistics of an evaluation; the accumulators of files and processes can be
    merged.

    Statistics of resampled metrics are added up by parts, the others by slices. The pickled state
    leaves out TFMA's objects, as some cannot be pickled.
    """

    def __init__(
        self, config: tfma.EvalConfig, columns: list[Kind], grouper: Grouper | None = None
    ) -> None:
        """Creates an empty accumulator for a file.

        Args:
          config: TFMA's config.
          columns: the columns of each kind of slice.
          grouper: assigns the file's rows to bootstrap groups; without it all rows are in one
            group, and there are no intervals.
        """
        self.config = config
        self.slicer = Slicer(columns)
        self._parts = Parts()
        self.computations = computations_of(config)
        self._statistics = self.computations.start()
        self._grouper = grouper
        self._rows = np.zeros(0)
        self._waiting: list[tuple[Mapping[str, ModelRows], SliceMembership, np.ndarray]] = []
        self._waiting_size = 0

    def __getstate__(self) -> dict[str, Any]:
        self._add_waiting()
        sums = [statistic.sums for statistic in self._statistics]
        left_out = {"computations": None, "_grouper": None}
        return {**vars(self), **left_out, "_statistics": sums}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.computations = computations_of(self.config)
        self._statistics = self.computations.start()
        for statistic, sums in zip(self._statistics, state["_statistics"], strict=True):
            statistic.sums = sums

    @property
    def _sources(self) -> Iterator[tuple[Source, Statistic]]:
        return zip(self.computations.base, self._statistics, strict=True)

    @property
    def rows(self) -> int:
        """The number of rows that have been added."""
        return int(self._rows[:1].sum())

    def add(self, batch: PredictedBatch) -> None:
        """Adds the next batch of the file."""
        members = self.slicer.members(batch.rows, batch.columns)
        self._rows = pad(self._rows, members.count)
        self._rows += np.bincount(members.slices, minlength=members.count)
        groups = np.zeros(batch.rows, np.int64)
        if self._grouper is not None:
            groups = self._grouper.groups(batch.rows, batch.columns)
        # Statistics take as long for a small batch as for a large one, once they have many cells.
        self._waiting.append((batch.models, members, groups))
        self._waiting_size += sum(
            rows.predictions.size + len(members.rows) for rows in batch.models.values()
        )
        if self._waiting_size > MAX_WAITING_PREDICTIONS:
            self._add_waiting()

    def _add_waiting(self) -> None:
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        if not waiting:
            return
        models, members, groups = zip(*waiting, strict=True)
        firsts = np.cumsum([0, *map(len, groups)])
        rows = [one.rows + first for one, first in zip(members, firsts, strict=False)]
        by_slice = SliceMembership(
            np.concatenate(rows),
            np.concatenate([one.slices for one in members]),
            members[-1].count,
        )
        keys = by_slice.slices * GROUPS + np.concatenate(groups)[by_slice.rows]
        numbers = self._parts.number(keys)
        by_part = SliceMembership(by_slice.rows, numbers, len(self._parts.keys))
        joined = {name: ModelRows.concatenate([one[name] for one in models]) for name in models[0]}
        for source, statistic in self._sources:
            is_resampled = bool(source.resampled)
            statistic.add(joined[source.model], by_part if is_resampled else by_slice)

    def merge(self, other: Accumulator) -> None:
        """Adds the accumulator of another process or file."""
        self._add_waiting()
        other._add_waiting()
        places = self.slicer.merge(other.slicer)
        slices, groups = np.divmod(other._parts.keys, GROUPS)
        kept = places[slices] >= 0
        parts = np.full(len(slices), -1)
        parts[kept] = self._parts.number(places[slices[kept]] * GROUPS + groups[kept])
        for (source, ours), theirs in zip(self._sources, other._statistics, strict=True):
            if source.resampled:
                ours.merge(theirs, parts, len(self._parts.keys))
            else:
                ours.merge(theirs, places, len(self.slicer.keys))
        self._rows = pad(self._rows, len(self.slicer.keys)).copy()
        self._rows[places[places >= 0]] += pad(other._rows, len(places))[places >= 0]

    def reported_slices(self) -> list[int]:
        """Returns the numbers of the slices to report: the largest of each kind, largest first."""
        kinds: dict[Kind, list[int]] = defaultdict(list)
        for number, key in enumerate(self.slicer.keys):
            if kind_of(key) not in self.slicer.crowded:
                kinds[kind_of(key)].append(number)
        chosen = [
            sorted(numbers, key=self._rank)[:MAX_REPORTED_SLICES] for numbers in kinds.values()
        ]
        return sorted((number for numbers in chosen for number in numbers), key=self._rank)

    def _rank(self, number: int) -> tuple[float, str]:
        return -float(self._rows[number]), str(self.slicer.keys[number])

    def results(self, numbers: Iterable[int] | None = None) -> Iterator[tuple[SliceKey, Metrics]]:
        """Yields the metrics and plots of each slice, with the differences to the model in service.

        Args:
          numbers: the numbers of the slices; by default all.
        """
        self._add_waiting()
        keys = self.slicer.keys
        for number in range(len(keys)) if numbers is None else numbers:
            parts, itself = self._parts.of(number)[0], np.array([number])
            gathered = [(one, parts if s.resampled else itself) for s, one in self._sources]
            yield keys[number], self.computations.results(gathered)

    def groups_of(self, number: int) -> np.ndarray:
        """Returns the groups that rows of a slice are in, [groups]."""
        self._add_waiting()
        return self._parts.of(number)[1]

    def resampled(self, number: int, counts: np.ndarray) -> dict[tuple[str, str], Values]:
        """Returns the resampled metrics of a slice by model and metric name, [resamples] each.

        Args:
          number: the slice's number.
          counts: [resamples, GROUPS], how often each group is drawn.
        """
        self._add_waiting()
        parts, groups = self._parts.of(number)
        # Contiguous by group in memory, as `resample_counts` are.
        drawn = counts.T[groups].T
        found: dict[tuple[str, str], Values] = {}
        for source, statistic in self._sources:
            if source.resampled:
                values = statistic.resampled(parts, drawn)
                for name, place in source.resampled.items():
                    found[source.model, name] = values[place]
        return found

    def notes(self) -> list[str]:
        """Returns sentences about the rows and slices that were left out."""
        notes = [
            f"evaluate.slices: {counted(rows, 'row')} left out of the slices by {name}: their "
            f"values are too long for the name of a slice, up to {size:,} bytes"
            for name, (rows, size) in sorted(self.slicer.too_long.items())
        ]
        reported = set(self.reported_slices())
        for kind in sorted(set(self.slicer.columns)):
            by, advice = " and ".join(kind), "Slice by a column with fewer values"
            if kind in self.slicer.crowded:
                notes.append(
                    f"evaluate.slices: there are more than {MAX_TRACKED_SLICES:,} slices by {by}, "
                    f"and none of them is measured. {advice}"
                )
                continue
            there = [n for n, key in enumerate(self.slicer.keys) if kind_of(key) == kind]
            kept = [number for number in there if number in reported]
            if len(kept) < len(there):
                notes.append(
                    f"evaluate.slices: there are {len(there):,} slices by {by}; only the "
                    f"{len(kept):,} largest are measured, with {int(self._rows[kept].sum()):,} of "
                    f"{self.rows:,} rows. {advice}"
                )
        return notes
