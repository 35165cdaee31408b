"""What the workers of a server know of each other: the version that each answers by."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

SPAWN = get_context("spawn")
"""Workers begin anew: TensorFlow does not live through a fork."""
_STARTING, _NO_VERSION = -1, 0
_STALE_SECONDS = 15.0
"""After which a worker that tells nothing does not count: it hangs, or is about to die."""


class Workers:
    """What each worker has told and when, in memory that all processes of the server share."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._versions: Any = SPAWN.RawArray("q", [_STARTING] * count)
        self._told: Any = SPAWN.RawArray("d", count)
        """By the monotonic clock, which Linux has one of for all processes."""

    def tell(self, number: int, version: int | None) -> None:
        """Notes that a worker answers, by the version or by none yet."""
        self._told[number] = time.monotonic()
        self._versions[number] = version or _NO_VERSION

    def tell_gone(self, number: int) -> None:
        """Notes that a worker has died, and is to be started again."""
        self._versions[number] = _STARTING

    def is_up(self, number: int) -> bool:
        """Returns whether a worker has answered since it was started."""
        return bool(self._versions[number] != _STARTING)

    @property
    def up(self) -> int:
        """How many answer, with a version or without."""
        return self._count(_NO_VERSION)

    @property
    def ready(self) -> int:
        """How many answer by a version."""
        return self._count(_NO_VERSION + 1)

    def _count(self, least: int) -> int:
        since = time.monotonic() - _STALE_SECONDS
        told = zip(self._versions, self._told, strict=True)
        return sum(version >= least and when >= since for version, when in told)


@dataclass(frozen=True)
class WorkerPlace:
    """One worker's place among all."""

    workers: Workers
    number: int

    def tell(self, version: int | None) -> None:
        """Notes what this worker answers by."""
        self.workers.tell(self.number, version)
