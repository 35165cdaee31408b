"""The store of ML Metadata: a SQLite file in the output folder, a database, or a service.

ML Metadata itself is imported when a store is opened, after all faster checks.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from components.disk import disk_full, is_disk_full
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
"""The time limit for waiting while another process locks the SQLite file, in seconds."""

SERVICE_SECONDS = 60.0
"""The time limit for a response of a metadata service, in seconds."""

WITHOUT_METADATA = (
    "then every component runs again, and the new model is not compared with the model in service"
)
_MAX_RUN_BYTES = 100_000
"""The largest number of bytes that a run writes into the SQLite file."""
UNCHANGED = "the store was not changed"


def connection_config(metadata: str | None, layout: Layout) -> Any:
    """Returns the connection settings of the metadata store.

    Args:
      metadata: the config's key `metadata`, or None for a SQLite file in the output folder.

    Returns:
      A `metadata_store_pb2.ConnectionConfig`, or the `MetadataStoreClientConfig` of a service. It
      contains the password and must not be logged.
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
    """Returns the connection settings of a SQLite file, which ML Metadata creates if necessary.

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
    """Checks before a run that the metadata can be read and written.

    An unusable store is not changed. The SQLite file may not exist yet.

    Args:
      metadata: the config's key `metadata`, or None for a SQLite file in the output folder.

    Returns:
      The connection settings of the store, or None if there is no file yet.

    Raises:
      TryLaterError: the file is locked by another process, or the server is unreachable.
      DiskFullError: the disk is full.
      ConfigError: the file is corrupt, or was written by another version of ML Metadata; the server
        refuses the user, or has no such database.
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
        _check_service(connection, server)
    else:
        check_server(server)
        _open_store(connection, str(server))
    return connection


def copy_to_sqlite(metadata: str | None, layout: Layout, path: Path) -> None:
    """Copies a snapshot of all metadata into a new SQLite file.

    Args:
      metadata: the config's key `metadata`, whose store passed `check_store`.
      path: the new file, which is not created if there is no metadata yet.

    Raises:
      ConfigError: the server cannot be used.
    """
    if metadata is not None:
        server = parse_metadata_url(metadata)
        if isinstance(server, MetadataService):
            raise ConfigError(
                f"{server}: this command copies the metadata, which a metadata service does not "
                f"support; write the URL of the service's database into `metadata`: {EXAMPLE}"
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
    """Deletes executions and artifacts from the store in one transaction.

    A metadata service is not changed, as its API cannot delete.

    Args:
      metadata: the config's key `metadata`, or None for a SQLite file in the output folder.
      layout: the layout of the pipeline; the caller holds the lock of a run.
      executions: ids of executions, deleted with their events and contexts.
      artifacts: ids of artifacts that only these executions use.

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
    """Checks that SQLite can read the whole file and write to it.

    Raises:
      TryLaterError: another process has locked the file.
      DiskFullError: there is no room for a run's metadata.
      ConfigError: the file is corrupt, or is not a store of ML Metadata.
    """
    path = layout.metadata
    if path.is_file() and path.stat().st_size == 0 and layout.pipeline_root.exists():
        raise _corrupt(path, "the file is empty, although components have run")
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
                f"{path}: another process has locked the metadata; {UNCHANGED}. End that process, "
                "such as a database browser or a backup, and run again"
            ) from None
        if is_disk_full(error):
            raise disk_full(path) from None
        raise ConfigError(
            f"{path}: the metadata cannot be opened ({error}); {UNCHANGED}. Correct the cause, or "
            f"move the file away: {WITHOUT_METADATA}"
        ) from None
    except sqlite3.DatabaseError as error:
        raise _corrupt(path, str(error)) from None
    if found != "ok":
        raise _corrupt(path, " ".join(found.split()))
    if shutil.disk_usage(path).free < _MAX_RUN_BYTES:
        raise disk_full(path)
    if tables and "MLMDEnv" not in tables:
        raise _corrupt(path, "the file contains other tables than those of ML Metadata")


def _corrupt(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{path}: the metadata is corrupt ({reason}); {UNCHANGED}. Restore a backup, or move this "
        f"file and the folder pipeline_root away: {WITHOUT_METADATA}"
    )


def _open_store(connection: Any, name: str) -> None:
    """Opens a store with ML Metadata itself, which checks the version of the tables.

    Args:
      name: the name of the store in messages.

    Raises:
      ConfigError: the store cannot be opened.
    """
    from ml_metadata import MetadataStore

    try:
        MetadataStore(connection)
    except Exception as error:
        if is_disk_full(error):
            raise DiskFullError(
                f"{name}: the disk with the metadata is full; delete files, and run again"
            ) from None
        versions = re.search(r"version (\d+) is (\w+) than library version (\d+)", str(error))
        if versions is None:
            raise ConfigError(
                f"{name}: ML Metadata cannot use this store ({_first_line(error, connection)}); "
                f"{UNCHANGED}. If the store is on a server, check that the server accepts "
                "mysql_native_password for this user. Otherwise restore a backup, or move the "
                f"store and the folder pipeline_root away: {WITHOUT_METADATA}"
            ) from None
        found, comparison, known = versions.groups()
        relation = "a newer" if comparison == "greater" else "an older"
        raise ConfigError(
            f"{name}: written by {relation} version of ML Metadata (schema {found}; the installed "
            f"version has {known}); {UNCHANGED}. Use the version of Scopeline that wrote the "
            f"store, or another store: {WITHOUT_METADATA}"
        ) from None


def _check_service(connection: Any, service: MetadataService) -> None:
    """Checks that a metadata service responds.

    Raises:
      TryLaterError: the service does not respond.
      ConfigError: the server is no metadata service.
    """
    from ml_metadata import MetadataStore, errors

    try:
        MetadataStore(connection).get_context_types()
    except Exception as error:
        reason = shorten(error)
        is_unreachable = isinstance(error, (errors.UnavailableError, errors.DeadlineExceededError))
        raise (TryLaterError if is_unreachable else ConfigError)(
            f"{service}: the metadata service cannot be used ({reason}); check that the service is "
            "running, and check host and port in `metadata`"
        ) from None


def _first_line(error: Exception, connection: Any) -> str:
    """Returns the first line of ML Metadata's error message, without the password."""
    text, password = str(error), connection.mysql.password
    # The password is replaced before the text is shortened, which may cut the password.
    return shorten(text.replace(password, "***") if password else text)
