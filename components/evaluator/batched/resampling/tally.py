"""What the rows of an evaluation come to: the sums of metrics, and those of groups beside them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import tensorflow_model_analysis as tfma

from components.evaluator.batched.measuring import Computations, Found, Measurement
from components.evaluator.batched.reading import Answers
from components.evaluator.batched.resampling.grouped import Grouped, GroupedFound
from components.evaluator.batched.resampling.groups import Grouper
from components.evaluator.batched.resampling.resampler import Resampler
from components.evaluator.batched.rows import padded
from components.evaluator.batched.slices import SliceKey

MOST_SLICES = 1000
"""Slices of a kind that are reported: those of the most examples."""

Kind = tuple[str, ...]
"""The columns that slices are by."""


@dataclass(frozen=True)
class TallyFound:
    """What can be sent to another process."""

    found: Found
    grouped: GroupedFound
    rows: np.ndarray
    full: set[Kind]
    incomplete: set[SliceKey]
    too_long: dict[str, tuple[int, int]]


class Tally:
    """Adds up answers; two of the same evaluation add up as well.

    Attributes:
      measurement: what metrics are made from.
      grouped: what the metrics of resamples are made from.
    """

    def __init__(self, measurement: Measurement, grouped: Grouped, by_groups: bool) -> None:
        """There are no rows yet."""
        self.measurement = measurement
        self.grouped = grouped
        self._grouper = Grouper() if by_groups else None
        self._rows = np.zeros(0)
        self._incomplete: set[SliceKey] = set()

    @classmethod
    def start(cls, config: tfma.EvalConfig, columns: list[Kind], by_groups: bool) -> Tally:
        """That of an evaluation, without rows.

        Args:
          config: TFMA's.
          columns: of each kind of slices the columns that it is by.
          by_groups: whether rows are dealt to groups; else all are in one, and nothing is known of
            chance.
        """
        computations = computations_of(config)
        grouped = Resampler.of(config, computations).start()
        return cls(computations.start(columns), grouped, by_groups)

    @classmethod
    def resume(cls, config: tfma.EvalConfig, found: TallyFound) -> Tally:
        """One that goes on from what has been found; it takes others, and no rows."""
        computations = computations_of(config)
        grouped = Resampler.of(config, computations).start()
        grouped.resume(found.grouped)
        tally = cls(computations.resume(found.found), grouped, by_groups=False)
        slicer = tally.measurement.slicer
        slicer.full, slicer.too_long = set(found.full), dict(found.too_long)
        tally._rows, tally._incomplete = found.rows, set(found.incomplete)
        return tally

    def add(self, answers: Answers) -> None:
        """Adds a batch of the file."""
        members = self.measurement.slicer.members(len(answers.hashes), answers.columns)
        self.measurement.add(answers.models, members)
        self._rows = padded(self._rows, members.count)
        self._rows += np.bincount(members.slices, minlength=members.count)
        groups = np.zeros(len(answers.hashes), np.int64)
        if self._grouper is not None:
            groups = self._grouper.groups(answers.hashes)
        self.grouped.add(answers.models, members, groups)

    def found(self) -> TallyFound:
        """What another process can go on from."""
        slicer = self.measurement.slicer
        return TallyFound(
            self.measurement.found(),
            self.grouped.found(),
            self._rows,
            slicer.full,
            self._incomplete,
            slicer.too_long,
        )

    def merge(self, other: Tally) -> None:
        """Adds what another process, or another file, has come to."""
        ours, theirs = self.measurement.slicer, other.measurement.slicer
        # Of what one has left out the other's is not all that there is.
        self._incomplete |= other._incomplete
        self._incomplete |= {k for k in ours.keys if _kind(k) in theirs.full and k not in theirs}
        self._incomplete |= {k for k in theirs.keys if _kind(k) in ours.full and k not in ours}
        places = np.array([ours.number(key) for key in theirs.keys])
        self.measurement.merge(other.measurement)
        self.grouped.merge(other.grouped, places)
        self._rows = padded(self._rows, len(ours.keys)).copy()
        self._rows[places] += padded(other._rows, len(places))
        ours.full |= theirs.full
        for name, (rows, size) in theirs.too_long.items():
            so_far, largest = ours.too_long.get(name, (0, 0))
            ours.too_long[name] = so_far + rows, max(largest, size)

    def reported(self) -> list[int]:
        """The numbers of the slices that are reported: of each kind the largest, largest first."""
        kinds: dict[Kind, list[int]] = defaultdict(list)
        for number, key in enumerate(self.measurement.slicer.keys):
            if key not in self._incomplete:
                kinds[_kind(key)].append(number)
        chosen = [sorted(numbers, key=self._rank)[:MOST_SLICES] for numbers in kinds.values()]
        return sorted((number for numbers in chosen for number in numbers), key=self._rank)

    def _rank(self, number: int) -> tuple[float, str]:
        return -float(self._rows[number]), str(self.measurement.slicer.keys[number])

    def notes(self) -> list[str]:
        """What was left out of slices, in sentences."""
        slicer = self.measurement.slicer
        notes = [
            f"evaluate.slices: {rows:,} rows have a value of {name} that is too long to name a "
            f"slice, up to {size:,} bytes; they are in no slice by it"
            for name, (rows, size) in sorted(slicer.too_long.items())
        ]
        reported = set(self.reported())
        for kind in sorted(set(slicer.columns)):
            there = [n for n, key in enumerate(slicer.keys) if _kind(key) == kind]
            kept = [number for number in there if number in reported]
            if len(kept) == len(there) and kind not in slicer.full:
                continue
            count = f"more than {len(there):,}" if kind in slicer.full else f"{len(there):,}"
            rows = int(self._rows[kept].sum())
            notes.append(
                f"evaluate.slices: there are {count} slices by {' and '.join(kind)}; the "
                f"{len(kept):,} of the most examples are measured, with {rows:,} of "
                f"{self.measurement.rows:,} rows. Slice by a column of fewer values"
            )
        return notes


def computations_of(config: tfma.EvalConfig) -> Computations:
    """The computations of a config of which it is known that there are some."""
    found = Computations.of(config)
    assert found is not None  # noqa: S101 - asked before the pipeline was made
    return found


def _kind(key: SliceKey) -> Kind:
    return tuple(name for name, _ in key)
