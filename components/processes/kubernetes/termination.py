"""Lets a process that is told to end clean up first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from components.stopping import is_obeyed


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into SystemExit in a `with` block of the main thread; a second one is ignored.

    Kubernetes sends it to the processes of a pod, and SIGKILL half a minute later. A process that
    obeys it already is left to do so.
    """
    if is_obeyed() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Cleaning up is not to be interrupted.
    raise SystemExit(128 + number)
