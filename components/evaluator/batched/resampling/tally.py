"""What the rows of an evaluation come to: the sums of metrics, and those of groups beside them."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow_model_analysis as tfma

from components.evaluator.batched.crowds import (
    MOST_SLICES,
    Crowded,
    Kind,
    Largest,
)
from components.evaluator.batched.measuring import Computations, Found, Measurement
from components.evaluator.batched.reading import Answers
from components.evaluator.batched.resampling.grouped import Grouped, GroupedFound
from components.evaluator.batched.resampling.groups import Grouper
from components.evaluator.batched.resampling.resampler import Resampler
from components.evaluator.batched.rows import Members, ModelRows, padded
from components.evaluator.batched.slices import kind_of
from trainer_module.errors import counted

MOST_WAITING = 1 << 20
"""Numbers that models have said of the rows that wait to be added up together: 4 MB."""


@dataclass(frozen=True)
class TallyFound:
    """What can be sent to another process."""

    found: Found
    grouped: GroupedFound
    rows: np.ndarray
    too_long: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class _Waiting:
    models: Mapping[str, ModelRows]
    members: Members
    groups: np.ndarray


class Tally:
    """Adds up answers; two of the same evaluation add up as well."""

    def __init__(self, measurement: Measurement, grouped: Grouped, grouper: Grouper | None) -> None:
        """There are no rows yet."""
        self._measurement = measurement
        self._grouped = grouped
        self._grouper = grouper
        self._rows = np.zeros(0)
        self._waiting: list[_Waiting] = []
        self._waits = 0

    @property
    def measurement(self) -> Measurement:
        """What metrics are made from."""
        self._add_waiting()
        return self._measurement

    @property
    def grouped(self) -> Grouped:
        """What the metrics of resamples are made from."""
        self._add_waiting()
        return self._grouped

    @property
    def is_crowded(self) -> bool:
        """Whether there are more slices of a kind than are added up."""
        return self._measurement.slicer.is_crowded

    @classmethod
    def start(
        cls,
        config: tfma.EvalConfig,
        columns: list[Kind],
        grouper: Grouper | None,
        largest: Mapping[Kind, Largest] | None = None,
    ) -> Tally:
        """That of a file, without rows.

        Args:
          config: TFMA's.
          columns: of each kind of slices the columns that it is by.
          grouper: deals the file's rows to groups; without one all are in the same, and nothing is
            known of chance.
          largest: of kinds of too many slices, which are measured alone.
        """
        computations = computations_of(config)
        grouped = Resampler.of(config, computations).start()
        return cls(computations.start(columns, largest), grouped, grouper)

    @classmethod
    def resume(cls, config: tfma.EvalConfig, found: TallyFound) -> Tally:
        """One that goes on from what has been found; it takes others, and no rows."""
        computations = computations_of(config)
        grouped = Resampler.of(config, computations).start()
        grouped.resume(found.grouped)
        tally = cls(computations.resume(found.found), grouped, None)
        tally._measurement.slicer.too_long = dict(found.too_long)
        tally._rows = found.rows
        return tally

    def add(self, answers: Answers) -> None:
        """Adds the next batch of the file."""
        members = self._measurement.slicer.members(answers.rows, answers.columns)
        self._rows = padded(self._rows, members.count)
        self._rows += np.bincount(members.slices, minlength=members.count)
        groups = np.zeros(answers.rows, np.int64)
        if self._grouper is not None:
            groups = self._grouper.groups(answers.rows, answers.columns)
        # Twins take as long for a small batch as for a large one, once they have many cells.
        self._waiting.append(_Waiting(answers.models, members, groups))
        self._waits += sum(
            rows.predictions.size + len(members.rows) for rows in answers.models.values()
        )
        if self._waits > MOST_WAITING:
            self._add_waiting()

    def _add_waiting(self) -> None:
        waiting, self._waiting, self._waits = self._waiting, [], 0
        if not waiting:
            return
        firsts = np.cumsum([0, *(len(batch.groups) for batch in waiting)])
        rows = [batch.members.rows + first for batch, first in zip(waiting, firsts, strict=False)]
        members = Members(
            np.concatenate(rows),
            np.concatenate([batch.members.slices for batch in waiting]),
            waiting[-1].members.count,
        )
        models = {
            name: _joined([batch.models[name] for batch in waiting]) for name in waiting[0].models
        }
        self._measurement.add(models, members)
        self._grouped.add(models, members, np.concatenate([batch.groups for batch in waiting]))

    def found(self) -> TallyFound | Crowded:
        """What another process can go on from."""
        slicer = self._measurement.slicer
        if slicer.is_crowded:
            return Crowded()
        return TallyFound(
            self.measurement.found(), self.grouped.found(), self._rows, slicer.too_long
        )

    def merge(self, other: Tally) -> None:
        """Adds what another process, or another file, has come to."""
        ours, theirs = self.measurement.slicer, other.measurement.slicer
        places = np.array([ours.number(key) for key in theirs.keys])
        self.measurement.merge(other.measurement)
        self.grouped.merge(other.grouped, places)
        self._rows = padded(self._rows, len(ours.keys)).copy()
        self._rows[places] += padded(other._rows, len(places))
        for name, (rows, size) in theirs.too_long.items():
            so_far, largest = ours.too_long.get(name, (0, 0))
            ours.too_long[name] = so_far + rows, max(largest, size)

    def reported(self) -> list[int]:
        """The numbers of the slices that are reported: of each kind the largest, largest first."""
        kinds: dict[Kind, list[int]] = defaultdict(list)
        for number, key in enumerate(self.measurement.slicer.keys):
            kinds[kind_of(key)].append(number)
        chosen = [sorted(numbers, key=self._rank)[:MOST_SLICES] for numbers in kinds.values()]
        return sorted((number for numbers in chosen for number in numbers), key=self._rank)

    def _rank(self, number: int) -> tuple[float, str]:
        return -float(self._rows[number]), str(self.measurement.slicer.keys[number])

    def notes(self) -> list[str]:
        """What was left out of slices, in sentences."""
        slicer = self.measurement.slicer
        notes = [
            f"evaluate.slices: {counted(rows, 'row')} left out of the slices by {name}: the value "
            f"is too long to name one, up to {size:,} bytes"
            for name, (rows, size) in sorted(slicer.too_long.items())
        ]
        reported = set(self.reported())
        for kind in sorted(set(slicer.columns)):
            there = [n for n, key in enumerate(slicer.keys) if kind_of(key) == kind]
            kept = [number for number in there if number in reported]
            largest = slicer.largest.get(kind)
            if largest is None and len(kept) == len(there):
                continue
            count = f"{len(there):,}"
            if largest is not None:
                count = f"{'' if largest.is_exact else 'more than '}{largest.distinct:,}"
            rows = int(self._rows[kept].sum())
            notes.append(
                f"evaluate.slices: there are {count} slices by {' and '.join(kind)}; the "
                f"{len(kept):,} of the most examples are measured, with {rows:,} of "
                f"{self.measurement.rows:,} rows. Slice by a column of fewer values"
            )
        return notes


def _joined(batches: list[ModelRows]) -> ModelRows:
    return ModelRows(
        labels=np.concatenate([batch.labels for batch in batches]),
        predictions=np.concatenate([batch.predictions for batch in batches]),
        quantiles=np.concatenate([batch.quantiles for batch in batches]),
        weights=np.concatenate([batch.weights for batch in batches]),
    )


def computations_of(config: tfma.EvalConfig) -> Computations:
    """The computations of a config of which it is known that there are some."""
    return _computations(config.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=4)
def _computations(config: bytes) -> Computations:
    # Kept, as they are asked for with each file, and TFMA takes long to make them.
    found = Computations.of(tfma.EvalConfig.FromString(config))
    assert found is not None  # noqa: S101 - asked before the pipeline was made
    return found
