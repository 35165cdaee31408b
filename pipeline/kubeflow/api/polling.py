"""How often Kubeflow is asked about a run, and for how long a call is repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pipeline.kubeflow.api.errors import ServerFailedError, UnavailableError

_LONGEST_WAIT = 30.0
"""Seconds."""
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Polling:
    """How a run is followed; all in seconds."""

    interval: float = 3.0
    """Between two calls that read the run."""
    retry_seconds: float = 300.0
    """How long a call is repeated while Kubeflow does not answer."""
    timeout: float | None = None
    """How long the run is followed at most; it goes on by itself after that."""

    def retry(self, call: Callable[[], Answer]) -> Answer:
        """Makes a call, and repeats it ever more slowly while Kubeflow does not answer.

        Raises:
          UnavailableError, ServerFailedError: there was no answer for `retry_seconds`.
        """
        deadline = time.monotonic() + self.retry_seconds
        wait = self.interval
        while True:
            try:
                return call()
            except (UnavailableError, ServerFailedError):
                if time.monotonic() + wait > deadline:
                    raise
                time.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
