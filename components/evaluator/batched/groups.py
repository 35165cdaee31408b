"""The groups that examples are drawn in, and how often each resample has drawn each of them.

In a Poisson bootstrap (Chamandy, Muralidharan, Najmi and Naidu, 2012: Estimating Uncertainty for
Massive Data Streams) a resample counts each example by a number of its own from Poisson(1). Here
that number follows from the example's place in the data: it is the same for both models, in
whatever batch or process the example is. The place leads to one of `GROUPS` groups, so that what
groups come to is all that is kept: few examples are alone in theirs, and of many a group is a
sample itself. Equal examples have places of their own: in a table of a few categories they are
draws like any others, and those that shared a group would look like one.

Examples that depend on one another, such as the rows of one patient, go to one group together: then
a unit is drawn, not a row (Cameron, Gelbach and Miller, 2008: Bootstrap-Based Improvements for
Inference with Clustered Errors).

(What an example is serialized to would not do: the order of its features is another in each run.)
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

from components.evaluator.dependence import INDEPENDENT, Dependence

GROUPS = 1024
"""With so many, the standard error of a metric is off by 2 % itself: 1 / sqrt(2 * GROUPS)."""
RESAMPLES = 1000
"""As usual for an interval of 95 %: there are 25 resamples beyond each of its ends."""
_SEED = 20
_FILES_APART = np.uint64(40)
"""Bits of the number of a row in its file."""
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
)
"""Multipliers of SplitMix64 and of MurmurHash3's finalizer."""


class Grouper:
    """Deals the examples of one file to groups, in their order."""

    def __init__(self, file: int, dependence: Dependence = INDEPENDENT) -> None:
        """No example has come up yet.

        Args:
          file: its number among those of the evaluation.
          dependence: which examples are dealt to a group together.
        """
        self._next = np.uint64(file) << _FILES_APART
        self._dependence = dependence

    def groups(self, rows: int, columns: pa.RecordBatch) -> np.ndarray:
        """The groups of the next examples, [rows] int64.

        Args:
          rows: how many there are.
          columns: raw ones, with that by which they depend on one another.
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
def draws() -> np.ndarray:
    """How often each resample has drawn the examples of each group, [resamples, groups]."""
    # Group by group in memory, as slices pick groups.
    drawn = np.random.default_rng(_SEED).poisson(1.0, (GROUPS, RESAMPLES)).astype(np.float64)
    return drawn.T
