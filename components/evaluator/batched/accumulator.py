"""The accumulated statistics of an evaluation, by slice and bootstrap group.

In a Poisson bootstrap (Chamandy, Muralidharan, Najmi and Naidu, 2012: Estimating Uncertainty for
Massive Data Streams) a resample counts each example a random number of times, drawn from
Poisson(1). Here the number is drawn for a group of examples. The position of an example in the data
is hashed to one of `GROUPS` groups, and only the sums of groups are stored. The number of times is
therefore the same for both models, and does not depend on the batch or process that reads the
example.

If there are few examples, most of them have a group of their own. If there are many, each group is
itself a sample. Equal examples have different positions, and therefore mostly different groups.

Examples that depend on one another, such as the rows of one patient, share a group: the bootstrap
then draws units instead of rows (Cameron, Gelbach and Miller, 2008: Bootstrap-Based Improvements
for Inference with Clustered Errors).

The serialized example is not hashed, because the order of its features differs between runs.
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
    MAX_VALUE_BYTES,
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
"""The number of bootstrap groups. The standard error of a metric then has a relative error of 2 %,
which is 1 / sqrt(2 * GROUPS)."""
RESAMPLES = 1000
"""The number of bootstrap resamples; 25 lie beyond each end of a 95 % interval."""
_SEED = 20
_ROW_BITS = np.uint64(40)
"""The number of bits for the number of a row in its file; the other bits are the file's number."""
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
)
"""The multipliers of SplitMix64 and of MurmurHash3's finalizer."""


class Grouper:
    """Assigns the examples of one file to bootstrap groups."""

    def __init__(self, file: int, dependence: Dependence = INDEPENDENT) -> None:
        self._next = np.uint64(file) << _ROW_BITS
        self._dependence = dependence

    def groups(self, rows: int, columns: pa.RecordBatch) -> np.ndarray:
        """Returns the groups of the next examples, [rows] int64."""
        with np.errstate(over="ignore"):
            row_ids = self._next + np.arange(rows, dtype=np.uint64)
            self._next += np.uint64(rows)
            units = self._dependence.units(columns, row_ids)
            mixed = (units + np.uint64(1)) * _GOLDEN
            for multiplier in (_FIRST, _SECOND):
                mixed = (mixed ^ (mixed >> np.uint64(33))) * multiplier
        return ((mixed ^ (mixed >> np.uint64(33))) % np.uint64(GROUPS)).astype(np.int64)


@functools.cache
def resample_counts() -> np.ndarray:
    """Returns the number of times that each resample draws each group, [resamples, groups]."""
    # The counts of a group are contiguous in memory, because slices select groups.
    drawn = np.random.default_rng(_SEED).poisson(1.0, (GROUPS, RESAMPLES)).astype(np.float64)
    return drawn.T


MAX_REPORTED_SLICES = 1000
"""The maximum number of slices of a kind to report; the largest slices are reported."""
MAX_WAITING_PREDICTIONS = 1 << 20
"""The maximum number of predictions (4 MB) that wait before they are added to the statistics."""


class Parts:
    """The numbers of parts; a part is the rows of one slice that are in one bootstrap group."""

    def __init__(self) -> None:
        self.keys = self._order = np.zeros(0, np.int64)
        """[parts], the key of each part that has rows: its slice times GROUPS, plus its group."""

    def number(self, keys: np.ndarray) -> np.ndarray:
        """Returns the numbers of the parts with some keys, and numbers new parts."""
        used, inverse = np.unique(keys, return_inverse=True)
        new = np.setdiff1d(used, self.keys, assume_unique=True)
        self.keys = np.concatenate([self.keys, new])
        self._order = np.argsort(self.keys)
        return self._order[np.searchsorted(self.keys, used, sorter=self._order)][inverse]

    def find(self, slice_number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of the parts of a slice, [parts], and their groups, [parts]."""
        bounds = np.array([slice_number, slice_number + 1]) * GROUPS
        first, end = np.searchsorted(self.keys, bounds, sorter=self._order)
        numbers = self._order[first:end]
        return numbers, self.keys[numbers] % GROUPS


class Accumulator:
    """The accumulated statistics of an evaluation.

    Accumulators of different files and processes can be merged. Statistics of resampled metrics
    are sums by part, and other statistics are sums by slice. The pickled state leaves out TFMA's
    objects, because some of them cannot be pickled.
    """

    def __init__(
        self, config: tfma.EvalConfig, columns: list[Kind], grouper: Grouper | None = None
    ) -> None:
        """Creates an empty accumulator for a file.

        Args:
          grouper: assigns the file's rows to bootstrap groups; if None, all rows are in one group,
            and there are no intervals.
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
        # Batches are joined: if statistics have many cells, a small batch takes as long as a large
        # batch.
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
        numbers = self.slicer.merge(other.slicer)
        slices, groups = np.divmod(other._parts.keys, GROUPS)
        is_kept = numbers[slices] >= 0
        parts = np.full(len(slices), -1)
        parts[is_kept] = self._parts.number(numbers[slices[is_kept]] * GROUPS + groups[is_kept])
        for (source, ours), theirs in zip(self._sources, other._statistics, strict=True):
            if source.resampled:
                ours.merge(theirs, parts, len(self._parts.keys))
            else:
                ours.merge(theirs, numbers, len(self.slicer.keys))
        self._rows = pad(self._rows, len(self.slicer.keys)).copy()
        self._rows[numbers[numbers >= 0]] += pad(other._rows, len(numbers))[numbers >= 0]

    def reported_slices(self) -> list[int]:
        """Returns the numbers of the slices to report: the largest slices of each kind, largest
        first.
        """
        kinds: dict[Kind, list[int]] = defaultdict(list)
        for number, key in enumerate(self.slicer.keys):
            if kind_of(key) not in self.slicer.crowded:
                kinds[kind_of(key)].append(number)
        largest = [
            sorted(numbers, key=self._rank)[:MAX_REPORTED_SLICES] for numbers in kinds.values()
        ]
        return sorted((number for numbers in largest for number in numbers), key=self._rank)

    def _rank(self, number: int) -> tuple[float, str]:
        return -float(self._rows[number]), str(self.slicer.keys[number])

    def results(self, numbers: Iterable[int] | None = None) -> Iterator[tuple[SliceKey, Metrics]]:
        """Yields each slice's metrics and plots, with the differences to the model in service."""
        self._add_waiting()
        keys = self.slicer.keys
        for number in range(len(keys)) if numbers is None else numbers:
            parts, own_number = self._parts.find(number)[0], np.array([number])
            statistics = [
                (statistic, parts if source.resampled else own_number)
                for source, statistic in self._sources
            ]
            yield keys[number], self.computations.results(statistics)

    def groups_of(self, number: int) -> np.ndarray:
        """Returns the bootstrap groups that have rows of a slice, [groups]."""
        self._add_waiting()
        return self._parts.find(number)[1]

    def resampled(self, number: int, counts: np.ndarray) -> dict[tuple[str, str], Values]:
        """Returns the values of a slice's metrics in all resamples, by model and metric name.

        Args:
          counts: [resamples, GROUPS], the number of times that each group is drawn.
        """
        self._add_waiting()
        parts, groups = self._parts.find(number)
        # The counts of a group are contiguous in memory, as in `resample_counts`.
        drawn = counts.T[groups].T
        resampled: dict[tuple[str, str], Values] = {}
        for source, statistic in self._sources:
            if source.resampled:
                values = statistic.resampled(parts, drawn)
                for name, index in source.resampled.items():
                    resampled[source.model, name] = values[index]
        return resampled

    def notes(self) -> list[str]:
        """Returns sentences about the rows and slices that were left out."""
        notes = [
            f"evaluate.slices: the slices by {name} leave out {counted(rows, 'row')}, because "
            f"their values have up to {size:,} bytes; at most {MAX_VALUE_BYTES:,} bytes are "
            "possible"
            for name, (rows, size) in sorted(self.slicer.too_long.items())
        ]
        reported = set(self.reported_slices())
        for kind in sorted(set(self.slicer.columns)):
            columns = " and ".join(kind)
            advice = "Slice by a column with fewer values"
            if kind in self.slicer.crowded:
                notes.append(
                    f"evaluate.slices: there are more than {MAX_TRACKED_SLICES:,} slices by "
                    f"{columns}, and none of these slices is measured. {advice}"
                )
                continue
            all_numbers = [n for n, key in enumerate(self.slicer.keys) if kind_of(key) == kind]
            reported_numbers = [number for number in all_numbers if number in reported]
            if len(reported_numbers) < len(all_numbers):
                notes.append(
                    f"evaluate.slices: there are {len(all_numbers):,} slices by {columns}; only "
                    f"the {len(reported_numbers):,} largest are measured, with "
                    f"{int(self._rows[reported_numbers].sum()):,} of {self.rows:,} rows. {advice}"
                )
        return notes
