"""Where ML Metadata is kept: a SQLite file in the output folder, or a database of a server.

ML Metadata itself is imported when a store is opened, after everything that is cheaper to check.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.layout import Layout
from pipeline.metadata_url import PASSWORD_VARIABLE, MetadataServer, parse_metadata_url
from trainer_module.errors import ConfigError

BUSY_SECONDS = 5.0
"""How long another process may hold the SQLite file."""
CONNECT_SECONDS = 5
"""How long a server may take to let us in."""
ANSWER_SECONDS = 60
"""How long it may take to answer one query."""

WITHOUT = (
    "then every component runs again, and the new model is not compared with the one in service"
)
LEFT = "it was left as it is"

_ACCESS_DENIED, _DATABASE_DENIED, _NO_DATABASE, _UNREACHABLE = 1045, 1044, 1049, 2003
"""The error numbers of MySQL that a user can do something about."""


def connection_config(config: PipelineConfig, layout: Layout) -> Any:
    """How ML Metadata reaches its store.

    Args:
      config: a checked config.
      layout: of the pipeline.

    Returns:
      A `metadata_store_pb2.ConnectionConfig`. It holds the password: never to be logged.
    """
    if config.metadata is None:
        return sqlite_connection(layout.metadata)
    from ml_metadata.proto import metadata_store_pb2

    server = parse_metadata_url(config.metadata)
    return metadata_store_pb2.ConnectionConfig(
        mysql=metadata_store_pb2.MySQLDatabaseConfig(
            host=_by_network(server),
            port=server.port,
            database=server.database,
            user=server.user,
            password=server.password,
            # A database that is misspelt would be made, and all history be missing from it.
            skip_db_creation=True,
        )
    )


def sqlite_connection(path: Path) -> Any:
    """How ML Metadata reaches a SQLite file, which it makes where there is none.

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


def check_store(config: PipelineConfig, layout: Layout) -> None:
    """Finds out before a run whether the metadata can be read and written.

    What cannot be used is left as it is. A SQLite file that is not there yet is no problem.

    Args:
      config: a checked config.
      layout: of the pipeline.

    Raises:
      ConfigError: the file is corrupt, is locked by another process, or was written by another
        version of ML Metadata; the server cannot be reached, refuses the user, or has no such
        database.
    """
    if config.metadata is None:
        if layout.metadata.exists():
            _check_file(layout)
            _open_store(sqlite_connection(layout.metadata), str(layout.metadata))
        return
    server = parse_metadata_url(config.metadata)
    with _server(server):
        pass
    _open_store(connection_config(config, layout), str(server))


def copy_to_sqlite(config: PipelineConfig, layout: Layout, path: Path) -> None:
    """Copies all metadata, as of one moment, into a SQLite file of its own.

    Args:
      config: a checked config, whose store `check_store` has found usable.
      layout: of the pipeline.
      path: the new file; where there is no metadata yet, it is not made.

    Raises:
      ConfigError: the server cannot be used.
    """
    if config.metadata is not None:
        _copy_server(parse_metadata_url(config.metadata), path)
    elif layout.metadata.exists():
        with (
            closing(sqlite3.connect(layout.metadata, timeout=BUSY_SECONDS)) as source,
            closing(sqlite3.connect(path)) as target,
        ):
            source.backup(target)


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
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise ConfigError(
                f"{path}: another process has locked the metadata; {LEFT}: close what has it "
                "open, such as a database browser or a backup, and run again"
            ) from None
        raise ConfigError(
            f"{path}: the metadata cannot be opened ({error}); {LEFT}: mend that, or move it "
            f"aside: {WITHOUT}"
        ) from None
    except sqlite3.DatabaseError as error:
        raise _corrupt(path, str(error)) from None
    if verdict != "ok":
        raise _corrupt(path, " ".join(verdict.split()))
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


def _first_line(error: Exception, connection: Any) -> str:
    """What ML Metadata says, without a password."""
    text = " ".join(str(error).split())[:200]
    password = connection.mysql.password
    return text.replace(password, "***") if password else text


def _by_network(server: MetadataServer) -> str:
    """The host; MySQL's clients take `localhost` for a socket file, whatever the port."""
    return "127.0.0.1" if server.host == "localhost" else server.host


@contextmanager
def _server(server: MetadataServer) -> Iterator[Any]:
    """A connection to a server's database, as `pymysql.Connection`; text comes as bytes.

    It speaks latin1 as ML Metadata's own client does, so that it sees the same bytes, UTF-8, for
    whatever character set the database has.

    Raises:
      ConfigError: the server cannot be used.
    """
    import pymysql  # type: ignore[import-untyped]

    try:
        connection = pymysql.connect(
            host=_by_network(server),
            port=server.port,
            user=server.user,
            password=server.password,
            database=server.database,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            charset="latin1",
            use_unicode=False,
        )
    except (pymysql.MySQLError, RuntimeError, OSError) as error:
        # RuntimeError: a way of logging in that needs another package.
        raise ConfigError(f"{server}: {_refusal(server, error)}") from None
    with connection:
        try:
            yield connection
        except (pymysql.MySQLError, OSError) as error:
            raise ConfigError(f"{server}: {_refusal(server, error)}") from None


def _refusal(server: MetadataServer, error: Exception) -> str:
    """Why a server cannot be used, and what to do, without a password."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1] if len(error.args) > 1 else error)
    if code == _ACCESS_DENIED:
        is_set = "has a wrong password for" if server.password else "is not set, the password of"
        return (
            f"the metadata server refuses access; {PASSWORD_VARIABLE} {is_set} {server.user!r}, "
            "or there is no such user"
        )
    if code in (_NO_DATABASE, _DATABASE_DENIED):
        return (
            f"the metadata server has no database {server.database!r} for {server.user!r}; make "
            f"it: CREATE DATABASE `{server.database}`, and GRANT ALL on it to the user"
        )
    if code == _UNREACHABLE:
        return (
            f"the metadata server cannot be reached ({text}); is it running, and are host and "
            "port right?"
        )
    return f"the metadata server cannot be used ({text})"


def _copy_server(server: MetadataServer, path: Path) -> None:
    """Copies a server's tables, row by row, into those that ML Metadata makes in a file."""
    _open_store(sqlite_connection(path), str(path))
    with _server(server) as source, closing(sqlite3.connect(path)) as target, source.cursor() as c:
        c.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        c.execute("SHOW TABLES")
        there = {name.decode() for (name,) in c.fetchall()}
        for (table,) in target.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall():
            if table in there:  # All are, once ML Metadata has opened the database.
                _copy_table(table, c, target)
        target.commit()


def _copy_table(table: str, source: Any, target: sqlite3.Connection) -> None:
    described = target.execute(f"PRAGMA table_info(`{table}`)").fetchall()
    columns = {name: kind for _, name, kind, *_ in described}
    names = ", ".join(f"`{name}`" for name in columns)
    places = ", ".join("?" * len(columns))
    is_blob = [kind == "BLOB" for kind in columns.values()]
    source.execute(f"SELECT {names} FROM `{table}`")  # noqa: S608 - names of our own tables
    target.executemany(
        f"INSERT OR REPLACE INTO `{table}` ({names}) VALUES ({places})",  # noqa: S608
        (
            [
                value.decode() if isinstance(value, bytes) and not blob else value
                for value, blob in zip(row, is_blob, strict=True)
            ]
            for row in source
        ),
    )
