"""Sends what components print to a file, and leaves the screen to the runner."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trainer_module.errors import InternalError, ScopelineError

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def captured(log: Path, verbose: bool) -> Iterator[IO[str]]:
    """Sends standard output and error, of C++ as well, to a log file; yields the screen.

    TensorFlow writes to the file descriptors, not to `sys.stderr`, so these are redirected.

    Args:
      log: the file, appended to; its folder exists.
      verbose: whether the screen shows it too.

    Yields:
      A text stream to where standard output went before.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target, pump = _open_target(log, saved[1] if verbose else None)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with os.fdopen(os.dup(saved[0]), "w", buffering=1) as console:
            yield console
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), saved, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
        if pump is not None:
            pump.join(timeout=5)


@contextmanager
def told_briefly(what: str, log: Path) -> Iterator[None]:
    """Logs what breaks in a `with` block with its traceback, and tells the user of it in a line.

    Args:
      what: what could not be done, for the log.
      log: where everything that was said is.

    Raises:
      InternalError: something broke that is not said in the user's terms.
    """
    try:
        yield
    except ScopelineError:
        raise
    except Exception as error:
        logging.getLogger(__name__).exception(what)
        raise InternalError(
            f"{type(error).__name__}: {error}; everything that was said: {log}"
        ) from error


def _open_target(log: Path, echo: int | None) -> tuple[int, threading.Thread | None]:
    """A descriptor that writes to the log and, by way of a thread, to another descriptor."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if echo is None:
        return file, None
    reading, writing = os.pipe()
    echo = os.dup(echo)

    def pump() -> None:
        with os.fdopen(reading, "rb", buffering=0) as source:
            while chunk := source.read(65536):
                os.write(file, chunk)
                os.write(echo, chunk)
        os.close(file)
        os.close(echo)

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    return writing, thread
