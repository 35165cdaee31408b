"""Where ML Metadata is kept: a SQLite file in the output folder, or a database of a server.

ML Metadata itself is imported when a store is opened, after everything that is cheaper to check.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from components.disk import disk_full, says_full
from pipeline.config.metadata_url import (
    EXAMPLE,
    MetadataServer,
    MetadataService,
    parse_metadata_url,
)
from pipeline.layout import Layout
from pipeline.records.forgetting import forget_in_file, forget_on_server
from pipeline.records.mysql_store import check_server, copy_server, server_connection
from trainer_module.errors import ConfigError, DiskFullError, TryLaterError, shorten

BUSY_SECONDS = 5.0
"""How long another process may hold the SQLite file."""

SERVICE_SECONDS = 60.0
"""How long a metadata service may take to answer."""

WITHOUT = (
    "then every component runs again, and the new model is not compared with the one in service"
)
_ROOM_OF_A_RUN = 100_000
"""Bytes: what a run writes into the SQLite file is less."""
LEFT = "it was left as it is"


def connection_config(metadata: str | None, layout: Layout) -> Any:
    """Returns how ML Metadata reaches its store.

    Args:
      metadata: the config's key of that name; None for a SQLite file in the output folder.
      layout: of the pipeline.

    Returns:
      A `metadata_store_pb2.ConnectionConfig`, or the `MetadataStoreClientConfig` of a service. It
      holds the password: never to be logged.
    """
    if metadata is None:
        return sqlite_connection(layout.metadata)
    return _connection_to(parse_metadata_url(metadata))


def _connection_to(server: MetadataServer | MetadataService) -> Any:
    return (
        _service_connection(server)
        if isinstance(server, MetadataService)
        else server_connection(server)
    )


def _service_connection(service: MetadataService) -> Any:
    from ml_metadata.proto import metadata_store_pb2

    return metadata_store_pb2.MetadataStoreClientConfig(
        host=service.host, port=service.port, client_timeout_sec=SERVICE_SECONDS
    )


def sqlite_connection(path: Path) -> Any:
    """Returns how ML Metadata reaches a SQLite file, which it makes where there is none.

    Returns:
      A `metadata_store_pb2.ConnectionConfig`.
    """
    from ml_metadata.proto import metadata_store_pb2

    return metadata_store_pb2.ConnectionConfig(
        sqlite=metadata_store_pb2.SqliteMetadataSourceConfig(
            filename_uri=str(path),
            connection_mode=metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE,
        )
    )


def check_store(metadata: str | None, layout: Layout) -> Any:
    """Finds out before a run whether the metadata can be read and written.

    What cannot be used is left as it is. A SQLite file that is not there yet is no problem.

    Args:
      metadata: the config's key of that name; None for a SQLite file in the output folder.
      layout: of the pipeline.

    Returns:
      How ML Metadata reaches the store; None where there is none yet.

    Raises:
      TryLaterError: the file is locked by another process, or the server cannot be reached.
      DiskFullError: nothing more can be written.
      ConfigError: the file is corrupt, or was written by another version of ML Metadata; the
        server refuses the user, or has no such database.
    """
    if metadata is None:
        if not layout.metadata.exists():
            return None
        _check_file(layout)
        connection = sqlite_connection(layout.metadata)
        _open_store(connection, str(layout.metadata))
        return connection
    server = parse_metadata_url(metadata)
    connection = _connection_to(server)
    if isinstance(server, MetadataService):
        _ask_service(connection, server)
    else:
        check_server(server)
        _open_store(connection, str(server))
    return connection


def copy_to_sqlite(metadata: str | None, layout: Layout, path: Path) -> None:
    """Copies all metadata, as of one moment, into a SQLite file of its own.

    Args:
      metadata: the same key, whose store `check_store` has found usable.
      layout: of the pipeline.
      path: the new file; where there is no metadata yet, it is not made.

    Raises:
      ConfigError: the server cannot be used.
    """
    if metadata is not None:
        server = parse_metadata_url(metadata)
        if isinstance(server, MetadataService):
            raise ConfigError(
                f"{server}: a metadata service cannot be copied, which this needs; name the "
                f"database behind it: {EXAMPLE}"
            )
        _open_store(sqlite_connection(path), str(path))
        copy_server(server, path)
    elif layout.metadata.exists():
        with (
            closing(sqlite3.connect(layout.metadata, timeout=BUSY_SECONDS)) as source,
            closing(sqlite3.connect(path)) as target,
        ):
            source.backup(target)


def forget(
    metadata: str | None, layout: Layout, executions: Sequence[int], artifacts: Sequence[int]
) -> None:
    """Deletes executions and artifacts from the store, all of them or none.

    A metadata service, which has no call for it either, keeps them.

    Args:
      metadata: the config's key of that name; None for a SQLite file in the output folder.
      layout: of the pipeline; its lock is held.
      executions: ids, whose events and contexts go with them.
      artifacts: ids, that only these executions have to do with.

    Raises:
      ConfigError: the server cannot be used.
      sqlite3.Error: the file cannot be written.
    """
    if metadata is None:
        forget_in_file(layout.metadata, BUSY_SECONDS, executions, artifacts)
        return
    server = parse_metadata_url(metadata)
    if isinstance(server, MetadataServer):
        forget_on_server(server, executions, artifacts)


def _check_file(layout: Layout) -> None:
    """Whether SQLite reads the whole file, and lets us write.

    Raises:
      ConfigError: it does not.
    """
    path = layout.metadata
    if path.is_file() and path.stat().st_size == 0 and layout.pipeline_root.exists():
        raise _corrupt(path, "it is empty, although components have run")
    try:
        with closing(
            sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise TryLaterError(
                f"{path}: another process has locked the metadata; {LEFT}: close what has it "
                "open, such as a database browser or a backup, and run again"
            ) from None
        if says_full(error):
            raise disk_full(path) from None
        raise ConfigError(
            f"{path}: the metadata cannot be opened ({error}); {LEFT}: mend that, or move it "
            f"aside: {WITHOUT}"
        ) from None
    except sqlite3.DatabaseError as error:
        raise _corrupt(path, str(error)) from None
    if found != "ok":
        raise _corrupt(path, " ".join(found.split()))
    if shutil.disk_usage(path).free < _ROOM_OF_A_RUN:
        raise disk_full(path)
    if tables and "MLMDEnv" not in tables:
        raise _corrupt(path, "its tables are not those of ML Metadata")


def _corrupt(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"{path}: the metadata is corrupt ({found}); {LEFT}: restore a backup, or move it and "
        f"pipeline_root aside: {WITHOUT}"
    )


def _open_store(connection: Any, name: str) -> None:
    """Opens a store with ML Metadata itself, which looks at the version of the tables.

    Args:
      connection: a `metadata_store_pb2.ConnectionConfig`.
      name: what messages call the store.

    Raises:
      ConfigError: it cannot be opened.
    """
    from ml_metadata import MetadataStore

    try:
        MetadataStore(connection)
    except Exception as error:
        if says_full(error):
            raise DiskFullError(f"{name}: the disk of the metadata is full; make room") from None
        versions = re.search(r"version (\d+) is (\w+) than library version (\d+)", str(error))
        if versions is None:
            raise ConfigError(
                f"{name}: ML Metadata cannot use this store ({_first_line(error, connection)}); "
                f"{LEFT}: a server must take the user's login as mysql_native_password; else "
                f"restore a backup, or move it and pipeline_root aside: {WITHOUT}"
            ) from None
        found, how, known = versions.groups()
        relation = "a newer" if how == "greater" else "an older"
        raise ConfigError(
            f"{name}: written by {relation} ML Metadata (schema {found}; this one has {known}); "
            f"{LEFT}: run the Scopeline that wrote it, or begin another store: {WITHOUT}"
        ) from None


def _ask_service(connection: Any, service: MetadataService) -> None:
    """Asks a metadata service for something small.

    Raises:
      TryLaterError: it does not answer.
      ConfigError: it answers otherwise than such a service does.
    """
    from ml_metadata import MetadataStore, errors

    try:
        MetadataStore(connection).get_context_types()
    except Exception as error:
        reason = shorten(error)
        is_away = isinstance(error, (errors.UnavailableError, errors.DeadlineExceededError))
        raise (TryLaterError if is_away else ConfigError)(
            f"{service}: the metadata service cannot be used ({reason}); is it running, and are "
            "host and port right?"
        ) from None


def _first_line(error: Exception, connection: Any) -> str:
    """What ML Metadata says, without a password."""
    text, password = str(error), connection.mysql.password
    # Before it is shortened: a part of a password would not be found.
    return shorten(text.replace(password, "***") if password else text)
