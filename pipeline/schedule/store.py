"""The scheduler's store: a SQLite file that one scheduler uses at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pipeline.schedule.process_lock import ProcessLock, holder
from trainer_module.errors import ConfigError

STORE_VERSION = 1
"""Of the file, in its `user_version`."""
BUSY_SECONDS = 3.0
"""How long another program may keep the file to itself."""


@contextmanager
def opened_store(path: Path) -> Iterator[None]:
    """Keeps other schedulers off a store, which is made or checked; one that is bad is left alone.

    Raises:
      ConfigError: another scheduler uses it; or it is locked, corrupt, of a newer Scopeline, or
        cannot be written.
    """
    lock = path.with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = ProcessLock(lock)
    except BlockingIOError:
        raise ConfigError(
            f"{path}: another scheduler, process {holder(lock)}, is at work on it; stop that one, "
            "name all pipelines in one command, or give another --output"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror or error}); give a folder that you may "
            "write with --output"
        ) from None
    with closing(held):
        _check(path)
        yield


def _check(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if version > STORE_VERSION:
                raise ConfigError(
                    f"{path}: written by a newer Scopeline (format {version}, this one knows "
                    f"{STORE_VERSION}); use that one, or another --output"
                )
            if found != "ok" or (version == 0 and tables):
                raise sqlite3.DatabaseError(found if found != "ok" else "other tables are in it")
            connection.execute(f"PRAGMA user_version = {STORE_VERSION}")
            connection.commit()
    except sqlite3.OperationalError as error:
        raise ConfigError(
            f"{path}: the scheduler's store cannot be used ({error}); does another program have it "
            "open?"
        ) from None
    except sqlite3.DatabaseError as error:
        raise ConfigError(
            f"{path}: this is no scheduler's store, or it is corrupt ({error}); move it aside, and "
            "a new one is begun: what was run stands in the pipelines' ledgers"
        ) from None
