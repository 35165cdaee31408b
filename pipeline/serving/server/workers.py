"""What the workers of a server know of each other: the version that each answers by."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

SPAWN = get_context("spawn")
"""Workers begin anew: TensorFlow does not live through a fork."""
_STARTING, _NO_VERSION = -1, 0


class Workers:
    """A number for each worker, in memory that all processes of the server share."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._versions: Any = SPAWN.RawArray("q", [_STARTING] * count)

    def tell(self, number: int, version: int | None) -> None:
        """Notes that a worker answers, by the version or by none yet."""
        self._versions[number] = version or _NO_VERSION

    def tell_gone(self, number: int) -> None:
        """Notes that a worker has died, and is to be started again."""
        self._versions[number] = _STARTING

    def is_up(self, number: int) -> bool:
        """Whether a worker has answered since it was started."""
        return bool(self._versions[number] != _STARTING)

    @property
    def up(self) -> int:
        """How many answer, with a version or without."""
        return sum(version != _STARTING for version in self._versions)

    @property
    def ready(self) -> int:
        """How many answer by a version."""
        return sum(version > _NO_VERSION for version in self._versions)


@dataclass(frozen=True)
class WorkerPlace:
    """One worker's place among all."""

    workers: Workers
    number: int

    def tell(self, version: int | None) -> None:
        """Notes what this worker answers by."""
        self.workers.tell(self.number, version)
