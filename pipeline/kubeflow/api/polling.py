"""How often Kubeflow is asked, and for how long it may not answer."""

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

    poll: float = 3.0
    """Between two looks at it."""
    patience: float = 300.0
    """For so long Kubeflow may not answer."""
    timeout: float | None = None
    """For so long it is followed; it goes on by itself."""

    def patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Asks again, ever more slowly, while Kubeflow does not answer.

        Raises:
          UnavailableError, ServerFailedError: it has not for too long.
        """
        until = time.monotonic() + self.patience
        wait = self.poll
        while True:
            try:
                return ask()
            except (UnavailableError, ServerFailedError):
                if time.monotonic() + wait > until:
                    raise
                time.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
