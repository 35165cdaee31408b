"""The shared state of a server's workers: which are running, and which version each serves."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

SPAWN = get_context("spawn")
"""The context that spawns workers, as TensorFlow does not support forks."""
_STARTING, _NO_VERSION = -1, 0
_STALE_SECONDS = 15.0
"""The seconds without an update after which a worker counts as dead."""


class Workers:
    """The versions that the workers serve, in memory that all processes of the server share."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._versions: Any = SPAWN.RawArray("q", [_STARTING] * count)
        self._report_times: Any = SPAWN.RawArray("d", count)
        """The times of the updates by the monotonic clock, which all processes on Linux share."""

    def report(self, number: int, version: int | None) -> None:
        """Records that a worker is running, and the version that it serves, or None."""
        self._report_times[number] = time.monotonic()
        self._versions[number] = version or _NO_VERSION

    def report_exit(self, number: int) -> None:
        """Records that a worker has died, and will be restarted."""
        self._versions[number] = _STARTING

    def is_running(self, number: int) -> bool:
        """Returns whether a worker has sent an update since its last start."""
        return bool(self._versions[number] != _STARTING)

    @property
    def running(self) -> int:
        """The number of running workers, with or without a version."""
        return self._count(_NO_VERSION)

    @property
    def ready(self) -> int:
        """The number of workers that serve a version."""
        return self._count(_NO_VERSION + 1)

    def _count(self, min_version: int) -> int:
        since = time.monotonic() - _STALE_SECONDS
        updates = zip(self._versions, self._report_times, strict=True)
        return sum(version >= min_version and at >= since for version, at in updates)


@dataclass(frozen=True)
class WorkerSlot:
    """The number of a worker, and the state of all workers."""

    workers: Workers
    number: int

    def report(self, version: int | None) -> None:
        """Records the version that this worker serves."""
        self.workers.report(self.number, version)
