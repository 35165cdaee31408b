"""Connects to metadata in a MySQL or MariaDB database, and copies it to SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pipeline.config.metadata_url import PASSWORD_VARIABLE, MetadataServer
from trainer_module.errors import ConfigError, TryLaterError

CONNECT_SECONDS = 5
"""The time limit for connecting, in seconds."""
RESPONSE_SECONDS = 60
"""The time limit for the response to a query, in seconds."""

_ACCESS_DENIED, _DATABASE_DENIED, _NO_DATABASE = 1045, 1044, 1049
"""The error numbers of MySQL for wrong access rights and a missing database."""
_UNREACHABLE = (1040, 1053, 2003, 2006, 2013)
"""The error numbers of a server that is overloaded, shuts down or cannot be reached."""


def server_connection(server: MetadataServer) -> Any:
    """Returns ML Metadata's connection settings for a server's database.

    Returns:
      A `metadata_store_pb2.ConnectionConfig`. It contains the password and must not be logged.
    """
    from ml_metadata.proto import metadata_store_pb2

    return metadata_store_pb2.ConnectionConfig(
        mysql=metadata_store_pb2.MySQLDatabaseConfig(
            host=_network_host(server),
            port=server.port,
            database=server.database,
            user=server.user,
            password=server.password,
            # Without this option, ML Metadata would create an empty database for a misspelt name.
            skip_db_creation=True,
        )
    )


def check_server(server: MetadataServer) -> None:
    """Checks that the server accepts a login.

    Raises:
      ConfigError: the server cannot be used.
    """
    with logged_in(server):
        pass


def copy_server(server: MetadataServer, path: Path) -> None:
    """Copies the rows of a server's tables to a SQLite file.

    Args:
      path: the SQLite file, in which ML Metadata has created its tables.

    Raises:
      ConfigError: the server cannot be used.
    """
    with (
        logged_in(server) as source,
        closing(sqlite3.connect(path)) as target,
        source.cursor() as c,
    ):
        c.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        c.execute("SHOW TABLES")
        source_tables = {name.decode() for (name,) in c.fetchall()}
        for (table,) in target.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall():
            # A database that ML Metadata has never opened lacks tables.
            if table in source_tables:
                _copy_table(table, c, target)
        target.commit()


def _copy_table(table: str, source: Any, target: sqlite3.Connection) -> None:
    rows = target.execute(f"PRAGMA table_info(`{table}`)").fetchall()
    columns = {name: kind for _, name, kind, *_ in rows}
    names = ", ".join(f"`{name}`" for name in columns)
    placeholders = ", ".join("?" * len(columns))
    is_blob = [kind == "BLOB" for kind in columns.values()]
    source.execute(f"SELECT {names} FROM `{table}`")  # noqa: S608 - names of our own tables
    target.executemany(
        f"INSERT OR REPLACE INTO `{table}` ({names}) VALUES ({placeholders})",  # noqa: S608
        (
            [
                value.decode() if isinstance(value, bytes) and not blob else value
                for value, blob in zip(row, is_blob, strict=True)
            ]
            for row in source
        ),
    )


def _network_host(server: MetadataServer) -> str:
    """Returns the host; 127.0.0.1 for `localhost`, for which MySQL clients use a socket file."""
    return "127.0.0.1" if server.host == "localhost" else server.host


@contextmanager
def logged_in(server: MetadataServer) -> Iterator[Any]:
    """Yields a `pymysql.Connection` to a server's database, which returns text as bytes.

    The connection uses latin1 like ML Metadata's own client. For any character set of the database,
    both clients therefore read and write the same bytes, which are UTF-8.

    Raises:
      ConfigError: the server cannot be used.
    """
    import pymysql

    try:
        connection = pymysql.connect(
            host=_network_host(server),
            port=server.port,
            user=server.user,
            password=server.password,
            database=server.database,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=RESPONSE_SECONDS,
            charset="latin1",
            use_unicode=False,
        )
    except (pymysql.MySQLError, RuntimeError, OSError) as error:
        # pymysql raises RuntimeError if the login method needs another package.
        raise _refusal(server, error) from None
    with connection:
        try:
            yield connection
        except (pymysql.MySQLError, OSError) as error:
            raise _refusal(server, error) from None


def _refusal(server: MetadataServer, error: Exception) -> ConfigError:
    """Returns the error for a server that cannot be used, with advice and without a password."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1] if len(error.args) > 1 else error)
    if code in _UNREACHABLE:
        return TryLaterError(
            f"{server}: the metadata server cannot be reached ({text}); check that the server is "
            "running, and check host and port in `metadata`"
        )
    return ConfigError(f"{server}: {_explain_mysql_error(server, code, text)}")


def _explain_mysql_error(server: MetadataServer, code: int, text: str) -> str:
    if code == _ACCESS_DENIED:
        state = "contains a wrong password" if server.password else "is not set"
        return (
            f"the metadata server refuses access; the environment variable {PASSWORD_VARIABLE} "
            f"{state}, or there is no user {server.user!r}"
        )
    if code in (_NO_DATABASE, _DATABASE_DENIED):
        return (
            f"the metadata server has no database {server.database!r} for the user "
            f"{server.user!r}; run CREATE DATABASE `{server.database}`, and GRANT ALL on this "
            "database to the user"
        )
    return f"the metadata server cannot be used ({text})"
