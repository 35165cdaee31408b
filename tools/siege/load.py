"""The clients' process, and the results of their requests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.siege.clients import LOST, ClientConfig
from tools.siege.models import ROOT

_MIN_ANSWERS = 10
"""The number of consecutive answers of a version after which it counts as in service."""
_END_SECONDS = 40


class CompletedRequest(NamedTuple):
    """A completed request of a client."""

    client: int
    began: float
    """The start by the monotonic clock, in seconds."""
    seconds: float
    version: int | None
    """The version in the answer, or None if the protocol does not return it."""
    mark: str
    """The mark of the model that the answer matches, `other`, or `lost`."""
    troubles: list[str]
    """The errors of earlier tries."""


class Load:
    """Clients that send requests until `stop`."""

    def __init__(self, config: ClientConfig, folder: Path) -> None:
        """Starts the clients' process.

        Args:
          folder: the folder for the file of the configuration.
        """
        self._clients = config.clients
        config.write(folder / "clients.json")
        command = [sys.executable, "-m", "tools.siege.clients", str(folder / "clients.json")]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.completed: list[CompletedRequest] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with self._more:
                self.completed.append(CompletedRequest(*json.loads(line)))
                self._more.notify_all()

    def stop(self) -> None:
        """Ends the clients' process."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        finally:
            self._process.kill()
        self._reader.join()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError("the clients have ended")
        with self._more:
            return self._more.wait_for(condition, seconds)

    def wait_for_version(self, number: int, seconds: float) -> bool:
        """Returns whether a version answers all new requests within some seconds."""
        now = time.monotonic()

        def is_fulfilled() -> bool:
            recent = [
                request.version
                for request in self.completed[-6 * _MIN_ANSWERS :]
                if request.began > now
            ]
            versions = [version for version in recent if version is not None]
            return len(versions) >= _MIN_ANSWERS and set(versions[-_MIN_ANSWERS:]) == {number}

        return self._wait(is_fulfilled, seconds)

    def wait_for_all(self, since: float, seconds: float) -> bool:
        """Returns whether each client gets an answer to a request that it began after `since`."""

        def is_fulfilled() -> bool:
            recent = self.completed[-20 * self._clients :]
            clients = {r.client for r in recent if r.began >= since and r.mark != LOST}
            return len(clients) == self._clients

        return self._wait(is_fulfilled, seconds)

    def between(self, start: float, end: float) -> list[CompletedRequest]:
        """Returns the requests that were in progress during any part of an interval."""
        with self._more:
            recent = list(self.completed)
        return [r for r in recent if r.began < end and r.began + r.seconds > start]


def is_correct(request: CompletedRequest, marks: Mapping[int, str | None]) -> bool:
    """Returns whether an answer is correct: the answer of the version that it names.

    Args:
      marks: the marks of the models by version, or None for a version that must not answer.
    """
    if request.version is None:
        return request.mark in marks.values()
    return request.mark == marks.get(request.version)


def longest(requests: list[CompletedRequest]) -> float:
    """Returns the duration of the slowest request in seconds, or 0 without requests."""
    return max((request.seconds for request in requests), default=0.0)


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.05) -> bool:
    """Returns whether a condition becomes true within some seconds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
