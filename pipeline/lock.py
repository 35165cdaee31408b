"""One run of a pipeline at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from components.disk import disk_full, says_full
from components.example_gen.paths import is_remote
from pipeline.layout import Layout
from trainer_module.errors import ConfigError, ScopelineError, TryLaterError


@contextmanager
def one_at_a_time(layout: Layout) -> Iterator[None]:
    """Makes the pipeline's folder and holds its lock, which a killed process loses.

    Raises:
      TryLaterError: another run holds the lock.
      ConfigError: the folder or the push directory cannot be written.
    """
    make_root(layout)
    try:
        lock = FileLock(layout.lock)
        lock.acquire(blocking=False)
    except Timeout:
        raise TryLaterError(
            f"{layout.root}: another run of `{layout.name}` is under way; "
            "wait for it to end, or give this one another folder with --output"
        ) from None
    except OSError as error:
        raise _unwritable(layout, error) from None
    try:
        _check_serving(layout)
        yield
    finally:
        lock.release()


def make_root(layout: Layout) -> None:
    """Makes the pipeline's folder.

    Raises:
      ConfigError: it cannot be made.
    """
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(layout, error) from None


def _unwritable(layout: Layout, error: OSError) -> ScopelineError:
    if says_full(error):
        return disk_full(layout.root)
    return ConfigError(
        f"{layout.root}: cannot write the output here ({error.strerror or error}); "
        "give a folder that you may write with --output"
    )


def _check_serving(layout: Layout) -> None:
    """Makes a push directory of the user's now: a training that cannot be pushed is wasted."""
    if layout.push_directory is None or is_remote(layout.serving):
        return
    try:
        Path(layout.serving).mkdir(parents=True, exist_ok=True)
        # A file without a name: a stop in this moment leaves nothing.
        tempfile.TemporaryFile(dir=layout.serving).close()
    except OSError as error:
        if says_full(error):
            raise disk_full(Path(layout.serving)) from None
        raise ConfigError(
            f"push.directory: {layout.serving} cannot be written ({error.strerror or error})"
        ) from None
