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
"""The seconds after which a worker without an update no longer counts, as it hangs or has died."""


class Workers:
    """The last update of each worker, in memory that all processes of the server share."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._versions: Any = SPAWN.RawArray("q", [_STARTING] * count)
        self._reported: Any = SPAWN.RawArray("d", count)
        """The times of the updates by the monotonic clock, which all processes on Linux share."""

    def report(self, number: int, version: int | None) -> None:
        """Records that a worker is running, and the version that it serves, if any."""
        self._reported[number] = time.monotonic()
        self._versions[number] = version or _NO_VERSION

    def report_exit(self, number: int) -> None:
        """Records that a worker has died, and will be restarted."""
        self._versions[number] = _STARTING

    def is_running(self, number: int) -> bool:
        """Returns whether a worker has been running since its last start."""
        return bool(self._versions[number] != _STARTING)

    @property
    def running(self) -> int:
        """The number of running workers, with or without a version."""
        return self._count(_NO_VERSION)

    @property
    def ready(self) -> int:
        """The number of workers that serve a version."""
        return self._count(_NO_VERSION + 1)

    def _count(self, least: int) -> int:
        since = time.monotonic() - _STALE_SECONDS
        told = zip(self._versions, self._reported, strict=True)
        return sum(version >= least and when >= since for version, when in told)


@dataclass(frozen=True)
class WorkerPlace:
    """The place of one worker among all."""

    workers: Workers
    number: int

    def report(self, version: int | None) -> None:
        """Records the version that this worker serves."""
        self.workers.report(self.number, version)
