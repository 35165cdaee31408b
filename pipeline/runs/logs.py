"""Redirects the output of components to a log file, and leaves the screen to the runner."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

from components.compat.older_linux import is_caused_by_older_linux
from pipeline.credentials import mask_credentials
from trainer_module.errors import ConfigError, InternalError, ScopelineError
from trainer_module.typed_words import typed_program

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _LogFormatter(logging.Formatter):
    """A formatter that masks the credentials of the URIs in messages and tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_credentials(super().format(record))


class _LogFile(io.FileIO):
    """A log or a screen that ignores write errors, such as a full disk or a closed pipe."""

    def __init__(self, descriptor: int, on_failure: Callable[[OSError], None]) -> None:
        """Wraps a descriptor without closing it; `on_failure` receives the errors."""
        super().__init__(descriptor, "w", closefd=False)
        self._on_failure = on_failure

    def write(self, data: Any) -> int:
        """Writes a buffer, and returns its length even if a write error dropped bytes."""
        try:
            return super().write(data) or 0
        except OSError as error:
            self._on_failure(error)
            return memoryview(data).nbytes


class _FirstErrorReporter:
    """A callback that reports the first write error of a log on the screen."""

    def __init__(self, log: Path, screen: int) -> None:
        self._log = log
        self._screen: int | None = screen

    def __call__(self, error: OSError) -> None:
        """Reports an error on the screen, the first time only."""
        screen, self._screen = self._screen, None
        if screen is None:
            return
        message = (
            f"{self._log}: cannot be written ({error.strerror}); until the file can be written "
            "again, output is lost"
        )
        with contextlib.suppress(OSError):
            os.write(screen, f"{message}\n".encode())

    def end(self) -> None:
        """Turns off further reports, as the screen is about to be closed."""
        self._screen = None


@contextmanager
def redirected_output(log: Path, verbose: bool) -> Iterator[IO[str]]:
    """Redirects standard output and error, of C++ too, to a log file; yields the screen.

    TensorFlow writes to the file descriptors, not to `sys.stderr`, so these are redirected. A full
    disk is reported on the screen once. Neither a full disk nor a closed screen ends the run.

    Args:
      log: the log file, to which output is appended; its folder must exist.
      verbose: whether the screen shows the output too.

    Yields:
      A text stream to the original standard output.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    on_error = _FirstErrorReporter(log, saved[1])
    target, pump = _open_target(log, saved[1] if verbose else None, on_error)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_open_stream(descriptor, on_error) for descriptor in (1, 2))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LogFormatter(LOG_FORMAT))
    handler.addFilter(lambda record: getattr(record, "is_logged", True))
    root = logging.getLogger()
    level, handlers = root.level, root.handlers
    # Standard error is the log now: with an earlier handler, the log would have each line twice.
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    try:
        # A screen that is gone, as after `| head`, does not end the run.
        with _open_stream(saved[0], _ignore, streams[0].encoding) as console:
            yield console
    finally:
        root.handlers = handlers
        root.setLevel(level)
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams
        for descriptor, original in zip((1, 2), saved, strict=True):
            os.dup2(original, descriptor)
        if pump is not None:
            pump.join(timeout=5)
        on_error.end()
        for original in saved:
            os.close(original)


def _open_stream(
    descriptor: int, on_failure: Callable[[OSError], None], encoding: str | None = None
) -> TextIO:
    """Returns a replacement of `sys.stdout` for Python's own output; the default is UTF-8."""
    return io.TextIOWrapper(
        io.BufferedWriter(_LogFile(descriptor, on_failure)),
        encoding=encoding or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def older_linux_error() -> ConfigError:
    """Returns the error for a library that does not load before `doctor --fix`."""
    return ConfigError(
        f"a library needs a newer Linux than this one; run: {typed_program()} doctor --fix"
    )


@contextmanager
def shortened_errors(action: str, log: Path) -> Iterator[None]:
    """Logs an exception in the block with its traceback, and raises a short error.

    Args:
      action: the message for the log.

    Raises:
      InternalError: an exception other than a ScopelineError was raised.
      ImportError: a library does not load on this Linux before `doctor --fix`.
    """
    try:
        yield
    except ScopelineError:
        raise
    except Exception as error:
        if isinstance(error, ImportError) and is_caused_by_older_linux(error):
            raise  # The command names the remedy.
        logging.getLogger(__name__).exception(action)
        raise InternalError(f"{type(error).__name__}: {error}; full output: {log}") from error


def _open_target(
    log: Path, echo: int | None, on_failure: Callable[[OSError], None]
) -> tuple[int, threading.Thread | None]:
    """Returns a descriptor that writes to the log and, through a thread, to another descriptor."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if echo is None:
        return file, None
    reading, writing = os.pipe()
    echo = os.dup(echo)

    def pump() -> None:
        sinks = [
            io.BufferedWriter(_LogFile(file, on_failure)),
            io.BufferedWriter(_LogFile(echo, _ignore)),
        ]
        with os.fdopen(reading, "rb", buffering=0) as source:
            while chunk := source.read(65536):
                for sink in sinks:
                    sink.write(chunk)
                    sink.flush()
        os.close(file)
        os.close(echo)

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    return writing, thread


def _ignore(error: OSError) -> None:
    """Ignores an error of the screen, so that the log remains complete."""
