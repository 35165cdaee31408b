"""One run of a pipeline at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from pipeline.layout import Layout
from trainer_module.errors import ConfigError


@contextmanager
def one_at_a_time(layout: Layout) -> Iterator[None]:
    """Makes the pipeline's folder and holds its lock, which a killed process loses.

    Raises:
      ConfigError: the folder cannot be written, or another run holds the lock.
    """
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(layout.lock)
        lock.acquire(blocking=False)
    except Timeout:
        raise ConfigError(
            f"{layout.root}: another run of `{layout.name}` is under way; "
            "wait for it to end, or give this one another folder with --output"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{layout.root}: cannot write the output here ({error.strerror or error}); "
            "give a folder that you may write with --output"
        ) from None
    try:
        yield
    finally:
        lock.release()
