"""Deletes records from a store of ML Metadata, whose own client cannot delete.

Each run adds about 40 KB of records. Without deletion, the store would become large and slow.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pipeline.config.metadata_url import MetadataServer
from pipeline.records.mysql_store import logged_in

logger = logging.getLogger(__name__)

_Execute = Callable[[str, Sequence[int]], Iterable[Any]]
"""A function that runs a statement with a list of ids in place of `?`, and returns the rows."""

_BATCH_SIZE = 500
"""The largest number of ids in a statement, as servers limit the length of statements."""
_MAX_FREE_SHARE = 0.25
"""The share of free pages above which a SQLite file is compacted."""

CONTEXTS_OF_RUNS = ("pipeline_run", "execution_cache")
"""The types of contexts that are deleted if all their executions are deleted; contexts of
pipelines and nodes are kept.
"""


def forget_in_file(
    path: Path, timeout: float, executions: Sequence[int], artifacts: Sequence[int]
) -> None:
    """Deletes executions and artifacts from a SQLite file in one transaction.

    Args:
      timeout: the time limit for waiting for another process, in seconds.
      executions: ids of executions, deleted with their events and contexts.
      artifacts: ids of artifacts that only these executions use.

    Raises:
      sqlite3.Error: the deletion failed; the file is unchanged.
    """
    with closing(sqlite3.connect(path, timeout=timeout, isolation_level=None)) as connection:

        def execute(statement: str, ids: Sequence[int]) -> Iterable[Any]:
            placeholders = ", ".join("?" * len(ids))
            return connection.execute(statement.replace("?", placeholders), ids).fetchall()

        connection.execute("BEGIN IMMEDIATE")
        _forget(execute, executions, artifacts)
        connection.execute("COMMIT")
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        if free > _MAX_FREE_SHARE * pages:
            _shrink(connection, path)


def _shrink(connection: sqlite3.Connection, path: Path) -> None:
    """Compacts a file. If this fails, the file keeps its size, and new records use free pages."""
    try:
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        # VACUUM fails if there is no room for a copy of the file, or another process reads it.
        logger.warning("%s: the file could not be compacted after a deletion (%s)", path, error)


def forget_on_server(
    server: MetadataServer, executions: Sequence[int], artifacts: Sequence[int]
) -> None:
    """Deletes executions and artifacts from a MySQL or MariaDB database in one transaction.

    Args:
      executions: ids of executions, deleted with their events and contexts.
      artifacts: ids of artifacts that only these executions use.

    Raises:
      ConfigError: the server cannot be used.
    """
    with logged_in(server) as connection, connection.cursor() as cursor:

        def execute(statement: str, ids: Sequence[int]) -> Iterable[Any]:
            placeholders = ", ".join(["%s"] * len(ids))
            cursor.execute(statement.replace("?", placeholders), ids)
            return list(cursor.fetchall())

        connection.begin()
        _forget(execute, executions, artifacts)
        connection.commit()


def _forget(execute: _Execute, executions: Sequence[int], artifacts: Sequence[int]) -> None:
    """Deletes executions, artifacts and the rows that refer to them, in the order of references."""
    contexts = _contexts_of(execute, executions)
    for column, ids in (("execution_id", executions), ("artifact_id", artifacts)):
        events = f"SELECT `id` FROM `Event` WHERE `{column}` IN (?)"  # noqa: S608 - our own names
        for batch in _batches(ids):
            execute(f"DELETE FROM `EventPath` WHERE `event_id` IN ({events})", batch)  # noqa: S608
            execute(f"DELETE FROM `Event` WHERE `{column}` IN (?)", batch)  # noqa: S608
    _delete(execute, executions, "execution_id", ["Association", "ExecutionProperty"], "Execution")
    _delete(execute, artifacts, "artifact_id", ["Attribution", "ArtifactProperty"], "Artifact")
    empty = [context for batch in _batches(contexts) for (context,) in execute(_EMPTY, batch)]
    # Attributions may also refer to artifacts that are kept, as other executions use them.
    referring = ["Attribution", "ParentContext", "ContextProperty"]
    _delete(execute, empty, "context_id", referring, "Context")


_EMPTY = """
SELECT `id` FROM `Context` WHERE `id` IN (?)
AND NOT EXISTS (SELECT 1 FROM `Association` WHERE `context_id` = `Context`.`id`)"""


def _contexts_of(execute: _Execute, executions: Sequence[int]) -> list[int]:
    """Returns the ids of the contexts of runs and of cache keys to which executions belong."""
    kinds = ", ".join(f"'{name}'" for name in CONTEXTS_OF_RUNS)
    query = (
        "SELECT DISTINCT `Context`.`id` FROM `Association` "  # noqa: S608 - our own names
        "JOIN `Context` ON `Context`.`id` = `Association`.`context_id` "
        "JOIN `Type` ON `Type`.`id` = `Context`.`type_id` "
        f"WHERE `Type`.`name` IN ({kinds}) AND `Association`.`execution_id` IN (?)"
    )
    rows = (row for batch in _batches(executions) for row in execute(query, batch))
    return sorted({context for (context,) in rows})


def _delete(
    execute: _Execute, ids: Sequence[int], column: str, referring: Iterable[str], table: str
) -> None:
    """Deletes rows of a table by id, after the rows of other tables that refer to them."""
    for batch in _batches(ids):
        for other in referring:
            execute(f"DELETE FROM `{other}` WHERE `{column}` IN (?)", batch)  # noqa: S608
        execute(f"DELETE FROM `{table}` WHERE `id` IN (?)", batch)  # noqa: S608


def _batches(ids: Sequence[int]) -> Iterator[list[int]]:
    return (list(ids[first : first + _BATCH_SIZE]) for first in range(0, len(ids), _BATCH_SIZE))
