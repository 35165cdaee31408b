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

from tools.siege.clients import LOST, Orders
from tools.siege.models import ROOT

_SURE = 10
"""The number of consecutive answers after which a version counts as served."""
_END_SECONDS = 40


class CompletedRequest(NamedTuple):
    """A completed request of a client."""

    client: int
    began: float
    """The start by the monotonic clock, in seconds."""
    seconds: float
    version: int | None
    """The version in the answer; None if the protocol does not name it."""
    mark: str
    """The mark of the model that the answer matches, `other`, or `lost`."""
    troubles: list[str]
    """The errors of earlier tries."""


class Load:
    """Clients that send requests all the time."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        """Starts the clients' process.

        Args:
          orders: the configuration of the clients.
          folder: the folder for the file of the configuration.
        """
        self._clients = orders.clients
        orders.write(folder / "orders.json")
        command = [sys.executable, "-m", "tools.siege.clients", str(folder / "orders.json")]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.all: list[CompletedRequest] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with self._more:
                self.all.append(CompletedRequest(*json.loads(line)))
                self._more.notify_all()

    def stop(self) -> None:
        """Ends the clients' process."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        finally:
            self._process.kill()
        self._reader.join()

    def _wait(self, found: Callable[[], bool], seconds: float) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError("the clients have ended")
        with self._more:
            return self._more.wait_for(found, seconds)

    def wait_for_version(self, number: int, seconds: float) -> bool:
        """Returns whether a version comes to answer all new requests within some seconds."""
        now = time.monotonic()

        def is_there() -> bool:
            told = [one.version for one in self.all[-6 * _SURE :] if one.began > now]
            told = [version for version in told if version is not None]
            return len(told) >= _SURE and set(told[-_SURE:]) == {number}

        return self._wait(is_there, seconds)

    def wait_for_all(self, since: float, seconds: float) -> bool:
        """Returns whether each client gets an answer to a request that began after a given time."""

        def is_there() -> bool:
            recent = self.all[-20 * self._clients :]
            clients = {one.client for one in recent if one.began >= since and one.mark != LOST}
            return len(clients) == self._clients

        return self._wait(is_there, seconds)

    def between(self, start: float, end: float) -> list[CompletedRequest]:
        """Returns the requests that were in progress at any time of an interval."""
        with self._more:
            recent = list(self.all)
        return [one for one in recent if one.began < end and one.began + one.seconds > start]


def is_right(asked: CompletedRequest, marks: Mapping[int, str | None]) -> bool:
    """Returns whether an answer is that of the version which it names.

    Args:
      asked: the answered request.
      marks: the marks of the models by version; None for a version that must not answer.
    """
    if asked.version is None:
        return asked.mark in marks.values()
    return asked.mark == marks.get(asked.version)


def longest(asked: list[CompletedRequest]) -> float:
    """Returns the seconds of the slowest request; 0 if there are none."""
    return max((one.seconds for one in asked), default=0.0)


def wait_until(found: Callable[[], bool], seconds: float, pause: float = 0.05) -> bool:
    """Returns whether a condition becomes true within some seconds."""
    until = time.monotonic() + seconds
    while not found():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
