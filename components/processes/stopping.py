"""Handling of SIGTERM and Ctrl-C: a stop that no other code can suppress.

The handler of the signals raises an exception. If the main thread is in a `__del__` or in a
callback of a library, Python prints this exception and continues. Therefore:

- The handler also sets a flag, which is checked before each component and right before a push.
- A thread raises the exception again every second, until the work in the main thread has ended.
- After a grace period, the thread ends the process.
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
REPEAT_SECONDS = 1.0
"""The interval at which the exception is raised again."""
RECORD_SECONDS = 5.0
"""The timeout for recording the stop before the process is ended."""


logger = logging.getLogger(__name__)


class _State:
    """The state of a stop, which the main thread's handler and the watching thread share."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.deferrals = 0
        """The number of active blocks that defer a stop."""
        self.is_settled = False
        """Whether signals are ignored, as there is nothing left to stop."""
        self.is_watched = False
        self.is_repeated = False
        """Whether the next signal comes from the watching thread."""
        self.end = threading.Lock()
        """A lock of the thread that ends the work, which is the main or the watching thread."""


_state = _State()


def install_handlers() -> None:
    """Installs the handlers by which SIGTERM and Ctrl-C stop this process."""
    global _state
    _state = _State()
    for number in SIGNALS:
        # Shells make background processes ignore Ctrl-C.
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextmanager
def handle_signals(
    handle: Callable[[int, FrameType | None], object], signals: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Installs a signal handler in a `with` block of the main thread.

    At the end of the block, the earlier handlers are restored.
    """
    earlier = [(number, signal.signal(number, handle)) for number in signals]
    try:
        yield
    finally:
        for number, handler in earlier:
            signal.signal(number, handler)


def handles_sigterm() -> bool:
    """Returns whether this module handles SIGTERM."""
    return signal.getsignal(signal.SIGTERM) is _handle


def received_signal() -> str | None:
    """Returns the name of the signal that has stopped this process, or None without a signal."""
    return None if _state.signal is None else signal.Signals(_state.signal).name


def check_stop() -> None:
    """Raises KeyboardInterrupt if a signal has stopped this process.

    Raises:
      KeyboardInterrupt: a signal was received and signals are not ignored.
    """
    if _state.signal is not None and not _state.is_settled:
        raise KeyboardInterrupt


def ignore_signals() -> None:
    """Ignores later signals, as there is nothing left that may be stopped.

    The signals are only recorded.
    """
    _state.is_settled = True


def commit_or_abort() -> None:
    """Raises KeyboardInterrupt if a signal has stopped this process. Later signals are ignored.

    Raises:
      KeyboardInterrupt: a signal was received.
    """
    was_settled = _state.is_settled
    # Signals are ignored before the check, so that none can arrive between check and commit.
    ignore_signals()
    if _state.signal is not None and not was_settled:
        _state.is_settled = False
        raise KeyboardInterrupt


@contextmanager
def defer_stop() -> Iterator[None]:
    """Defers a stop to the end of a `with` block, such as a block that cleans up.

    Raises:
      KeyboardInterrupt: at the end of the block, if a signal was received.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals raise exceptions only in the main thread.
        return
    state = _state
    state.deferrals += 1
    try:
        yield
    finally:
        state.deferrals -= 1
    check_stop()


def attempt(
    work: Callable[[], None], record_stop: Callable[[], None], exit_code: int
) -> BaseException | None:
    """Calls a function in the main thread. A stop ends the call within the grace period.

    Args:
      record_stop: records the stop if the main thread does not react to it.
      exit_code: the exit code of the process if the main thread does not react to a stop.

    Returns:
      None if the function returned, even if a stop came too late. A KeyboardInterrupt if the
        function was stopped, in which case all child processes have been ended. Otherwise, the
        error that the function raised.
    """
    with _watched(record_stop, exit_code):
        try:
            _state.is_settled = False
            work()
        except BaseException as error:
            was_stopped = _state.signal is not None and not _state.is_settled
            _finish_unwinding()
            logger.exception("The work ended early, with an error")
            if not was_stopped:
                return error
        else:
            _finish_unwinding()
            return None
    end_children()
    return KeyboardInterrupt()


def attempt_last(work: Callable[[], None], record_stop: Callable[[], None], exit_code: int) -> bool:
    """Calls a function after `attempt`, such as one that writes a report. A stop ends only this
    call; before and after it, signals are ignored.

    Returns:
      Whether the function returned.

    Raises:
      Exception: the error of the function.
    """
    try:
        error = attempt(work, record_stop, exit_code)
    except KeyboardInterrupt as stop:  # The signal arrived when the function had just returned.
        error = stop
    ignore_signals()
    if error is not None and not isinstance(error, KeyboardInterrupt):
        raise error
    return error is None


@contextmanager
def _watched(record_stop: Callable[[], None], exit_code: int) -> Iterator[None]:
    """Watches the main thread in a `with` block."""
    state, has_ended = _state, threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def watch() -> None:
        if _wait_for_signal(reading) and not _repeat(state, has_ended):
            _end_process(record_stop, exit_code)

    thread = threading.Thread(target=watch, name="stop", daemon=True)
    # A signal is written to this descriptor immediately. A handler in Python, in contrast, only
    # runs after the main thread has returned from a library's C code.
    earlier_descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    state.is_watched = True
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        state.is_watched = False
        signal.set_wakeup_fd(earlier_descriptor)
        os.close(writing)
        thread.join(REPEAT_SECONDS)
        os.close(reading)


def _finish_unwinding() -> None:
    """Ignores later signals, as the main thread has returned from its work.

    If the watching thread has begun to end the process, this function does not return.
    """
    ignore_signals()
    if not _state.end.acquire(blocking=False):
        threading.Event().wait()
    _state.end.release()


def end_children() -> None:
    """Ends all child processes: sends SIGTERM twice, then SIGKILL."""
    children = psutil.Process().children(recursive=True)
    signals = (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL)
    end_processes(children, [Step(number, CHILDREN_GRACE_SECONDS / 2) for number in signals])
    psutil.wait_procs(children, timeout=0)  # Reaps zombies.


def exit_process(code: int) -> NoReturn:
    """Ends the process as `sys.exit` does. After a stop, the process does not wait for threads."""
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
    # Later signals in quick succession raise no exception, as they would interrupt the cleanup.
    if is_first or is_repeated or not _state.is_watched:
        raise KeyboardInterrupt


def _wait_for_signal(reading: int) -> bool:
    """Returns True after one of `SIGNALS` was received, or False when the watched block ends."""
    while numbers := os.read(reading, 64):
        if any(number in SIGNALS for number in numbers):
            return True
    return False


def _repeat(state: _State, has_ended: threading.Event) -> bool:
    """Repeats the signal until the work has ended.

    Returns:
      Whether the work has ended or may not be stopped. If not, the grace period has passed.
    """
    main = threading.main_thread().ident
    for _ in range(round(RUN_GRACE_SECONDS / REPEAT_SECONDS)):
        if has_ended.wait(REPEAT_SECONDS) or state.is_settled:
            return True
        if main is not None and not state.deferrals:
            state.is_repeated = True
            signal.pthread_kill(main, signal.SIGTERM)
    # The process is not ended while it ignores signals, or if the main thread has the lock.
    return state.is_settled or not state.end.acquire(blocking=False)


def _end_process(record_stop: Callable[[], None], exit_code: int) -> NoReturn:
    """Records the stop, ends all child processes, and ends this process."""
    thread = threading.Thread(target=record_stop, daemon=True)
    thread.start()
    thread.join(RECORD_SECONDS)
    try:
        end_children()
    finally:
        os._exit(exit_code)
