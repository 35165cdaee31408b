"""What SIGTERM and Ctrl-C do: a stop that nothing can swallow.

What a signal's handler raises is lost where the main thread happens to be in a `__del__` or in a
callback of a library: Python prints it and goes on. So the handler leaves a mark as well, which is
looked at before each component and right before a push; and a thread raises again, every second,
until the main thread has unwound. Should that take too long, the thread ends the process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import psutil

from components.processes.ending import (
    CHILDREN_GRACE_SECONDS,
    RUN_GRACE_SECONDS,
    Step,
    end_processes,
)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AGAIN_SECONDS = 1.0
"""How long what a stop has raised may take to end the work, until it is raised again."""
LAST_WORDS_SECONDS = 5.0
"""How long it may take to write down that a process is ended."""


logger = logging.getLogger(__name__)


class _State:
    """What is known of a stop; the main thread's handler and the watch share it."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The first that came."""
        self.deferrals = 0
        """Blocks that a stop waits for."""
        self.is_settled = False
        """Whether there is nothing left that a stop could keep from happening."""
        self.is_watched = False
        self.is_repeated = False
        """Whether the next signal is the watch's own."""
        self.end = threading.Lock()
        """Held by whoever ends the work: the main thread, or the watch."""


_state = _State()


def obey_signals() -> None:
    """Lets SIGTERM and Ctrl-C stop this process from now on, as this module says."""
    global _state
    _state = _State()
    for number in SIGNALS:
        # A shell has what it runs in the background ignore Ctrl-C.
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextmanager
def handled(
    handle: Callable[[int, FrameType | None], object], signals: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Has signals handled in another way in a `with` block of the main thread, and as before then.

    Args:
      handle: as `signal.signal` takes it.
      signals: which.
    """
    earlier = [(number, signal.signal(number, handle)) for number in signals]
    try:
        yield
    finally:
        for number, handler in earlier:
            signal.signal(number, handler)


def is_obeyed() -> bool:
    """Returns whether SIGTERM does here what this module says."""
    return signal.getsignal(signal.SIGTERM) is _handle


def told_by() -> str | None:
    """Returns the name of the signal that has told this process to stop; None if none has."""
    return None if _state.signal is None else signal.Signals(_state.signal).name


def check_stop() -> None:
    """Returns if the work may go on.

    Raises:
      KeyboardInterrupt: it was told to stop.
    """
    if _state.signal is not None and not _state.is_settled:
        raise KeyboardInterrupt


def settle() -> None:
    """Says that nothing is left to be stopped, or that it must not be: later signals only mark."""
    _state.is_settled = True


def pass_last_chance() -> None:
    """The last moment at which a stop prevents what follows; from now on it is too late for one.

    Raises:
      KeyboardInterrupt: this process was told to stop.
    """
    was_settled = _state.is_settled
    # First, so that no signal fits between the look and what follows.
    settle()
    if _state.signal is not None and not was_settled:
        _state.is_settled = False
        raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """Lets a stop wait for the end of a `with` block, such as of one that cleans up.

    Raises:
      KeyboardInterrupt: at the end, if this process was told to stop meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Nothing is raised there.
        return
    state = _state
    state.deferrals += 1
    try:
        yield
    finally:
        state.deferrals -= 1
    check_stop()


def attempt(
    work: Callable[[], None], last_words: Callable[[], None], exit_code: int
) -> BaseException | None:
    """Does work in the main thread, and sees to it that a stop ends it in time.

    Args:
      work: to be done.
      last_words: writes down that it was stopped, where the main thread is stuck.
      exit_code: of the process then.

    Returns:
      What the work has raised: a KeyboardInterrupt if it was stopped, whatever came of that, and
      then no process is left that it had started. None if it was done, although a stop may have
      come too late.
    """
    _state.is_settled = False
    with _watched(last_words, exit_code):
        try:
            work()
        except BaseException as error:
            was_stopped = _state.signal is not None and not _state.is_settled
            _finish_unwinding()
            logger.exception("The work ended early")
            if not was_stopped:
                return error
        else:
            _finish_unwinding()
            return None
    end_children()
    return KeyboardInterrupt()


@contextmanager
def _watched(last_words: Callable[[], None], exit_code: int) -> Iterator[None]:
    """Watches the main thread in a `with` block; takes what `attempt` does."""
    state, has_ended = _state, threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def watch() -> None:
        if _wait_for_signal(reading) and not _repeat(state, has_ended):
            _end_process(last_words, exit_code)

    thread = threading.Thread(target=watch, name="stop", daemon=True)
    # Written to at once: a handler waits for the main thread, which a library may have for long.
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    state.is_watched = True
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        state.is_watched = False
        signal.set_wakeup_fd(before)
        os.close(writing)
        thread.join(AGAIN_SECONDS)
        os.close(reading)


def _finish_unwinding() -> None:
    """The main thread has come back from its work: nothing is raised any more.

    It does not return where the watch has begun to end the process.
    """
    settle()
    if not _state.end.acquire(blocking=False):
        threading.Event().wait()
    _state.end.release()


def end_children() -> None:
    """Ends all processes that this one has started: tells them twice, then kills them."""
    children, each = psutil.Process().children(recursive=True), CHILDREN_GRACE_SECONDS / 2
    end_processes(
        children,
        [Step(signal.SIGTERM, each), Step(signal.SIGTERM, each), Step(signal.SIGKILL, each)],
    )
    psutil.wait_procs(children, timeout=0)  # None stays as a zombie.


def leave(code: int) -> NoReturn:
    """Ends the process as `sys.exit` does, but waits for no thread if it was told to stop."""
    if _state.signal is None:
        sys.exit(code)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _handle(number: int, frame: FrameType | None) -> None:
    del frame
    is_first = _state.signal is None
    if is_first:
        _state.signal = number
    is_repeated, _state.is_repeated = _state.is_repeated, False
    if _state.deferrals or _state.is_settled:
        return
    # Of several that come at once, such as of a user in a hurry, one is enough: more would hit
    # what cleans up after the first.
    if is_first or is_repeated or not _state.is_watched:
        raise KeyboardInterrupt


def _wait_for_signal(reading: int) -> bool:
    """Returns whether one of the signals came; false at the end of what is watched."""
    while numbers := os.read(reading, 64):
        if any(number in SIGNALS for number in numbers):
            return True
    return False


def _repeat(state: _State, has_ended: threading.Event) -> bool:
    """Raises in the main thread until the work has ended; false if it has not in time."""
    main = threading.main_thread().ident
    for _ in range(round(RUN_GRACE_SECONDS / AGAIN_SECONDS)):
        if has_ended.wait(AGAIN_SECONDS) or state.is_settled:
            return True
        if main is not None and not state.deferrals:
            state.is_repeated = True
            signal.pthread_kill(main, signal.SIGTERM)
    # What has begun that must not be cut in two is waited for.
    return state.is_settled or not state.end.acquire(blocking=False)


def _end_process(last_words: Callable[[], None], exit_code: int) -> NoReturn:
    thread = threading.Thread(target=last_words, daemon=True)
    thread.start()
    thread.join(LAST_WORDS_SECONDS)
    try:
        end_children()
    finally:
        os._exit(exit_code)
