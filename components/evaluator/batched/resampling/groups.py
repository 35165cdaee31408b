"""The groups that examples are drawn in, and how often each resample has drawn each of them.

In a Poisson bootstrap (Chamandy, Muralidharan, Najmi and Naidu, 2012: Estimating Uncertainty for
Massive Data Streams) a resample counts each example by a number of its own from Poisson(1). Here
that number follows from a hash of the example: it is the same for both models, in whatever batch,
file or process the example is. The hash leads to one of `GROUPS` groups, so that what groups come
to is all that is kept: few examples are alone in theirs, and of many a group is a sample itself.
"""

from __future__ import annotations

import functools

import numpy as np

GROUPS = 1024
"""With so many, the standard error of a metric is off by 2 % itself: 1 / sqrt(2 * GROUPS)."""
RESAMPLES = 1000
"""As usual for an interval of 95 %: there are 25 resamples beyond each of its ends."""
REMEMBERED = 1 << 20
"""Distinct examples of a file of which is counted how often they have come up: 100 MB."""
_SEED = 20
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
)
"""Multipliers of SplitMix64 and of MurmurHash3's finalizer."""


class Grouper:
    """Deals the examples of one file to groups.

    Equal ones are dealt apart: in a table of a few categories they are draws like any others, and
    those that shared a group would look like one.
    """

    def __init__(self) -> None:
        """No example has come up yet."""
        self._seen: dict[int, int] = {}

    def groups(self, hashes: np.ndarray) -> np.ndarray:
        """The group of each example, [rows] int64.

        Args:
          hashes: [rows] int64, equal for equal examples alone, as good as.
        """
        turns = np.fromiter(map(self._turn, hashes.tolist()), np.uint64, len(hashes))
        with np.errstate(over="ignore"):
            mixed = hashes.astype(np.uint64) + turns * _GOLDEN
            for multiplier in (_FIRST, _SECOND):
                mixed = (mixed ^ (mixed >> np.uint64(33))) * multiplier
        return ((mixed ^ (mixed >> np.uint64(33))) % np.uint64(GROUPS)).astype(np.int64)

    def _turn(self, example: int) -> int:
        """How many equal ones there were before."""
        turn = self._seen.get(example, 0)
        if turn or len(self._seen) < REMEMBERED:
            self._seen[example] = turn + 1
        return turn


@functools.cache
def draws() -> np.ndarray:
    """How often each resample has drawn the examples of each group, [resamples, groups]."""
    # Group by group in memory, as slices pick groups.
    drawn = np.random.default_rng(_SEED).poisson(1.0, (GROUPS, RESAMPLES)).astype(np.float64)
    return drawn.T
