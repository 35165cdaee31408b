"""An iterator that works while its consumer does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")
_AHEAD = 2
"""Elements that wait for the consumer at most."""
_LOOKS_EVERY = 0.1
"""Seconds in which a full queue notices that its consumer has stopped."""


def work_ahead(source: Iterator[_T]) -> Generator[_T, None, None]:
    """The elements of an iterator, which a thread takes from it ahead of the consumer.

    What the iterator raises is raised here. A consumer that stops early stops the thread, too.
    """
    # One element; or none at the end, with what ended it too early.
    waiting: queue.Queue[tuple[list[_T], BaseException | None]] = queue.Queue(_AHEAD)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_fill, args=(source, waiting, stopped), name="work-ahead", daemon=True
    )
    thread.start()
    try:
        while True:
            elements, error = waiting.get()
            if error is not None:
                raise error
            if not elements:
                return
            yield from elements
    finally:
        stopped.set()
        thread.join()


def _fill(source: Iterator[_T], waiting: queue.Queue[Any], stopped: threading.Event) -> None:
    try:
        for element in source:
            if not _put(([element], None), waiting, stopped):
                return
    except BaseException as error:  # It is raised where the elements are taken.
        _put(([], error), waiting, stopped)
    else:
        _put(([], None), waiting, stopped)


def _put(item: Any, waiting: queue.Queue[Any], stopped: threading.Event) -> bool:
    """Whether there was room before the consumer stopped."""
    while not stopped.is_set():
        try:
            waiting.put(item, timeout=_LOOKS_EVERY)
        except queue.Full:
            continue
        return True
    return False
