"""A MariaDB server of the tests' own, in a temporary folder, for as long as it is needed."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

PASSWORD = "hush-it-is-a-password"  # noqa: S105
USER = "scopeline"
START_SECONDS = 60


@dataclass(frozen=True)
class MariaDB:
    """A running server; `USER` may do anything with databases whose names begin with `meta`."""

    port: int
    socket: Path

    def url(self, database: str, host: str = "127.0.0.1", user: str = USER) -> str:
        return f"mysql://{user}@{host}:{self.port}/{database}"

    def administer(self, statement: str, database: str | None = None) -> list[tuple[object, ...]]:
        """Executes a statement as the server's root."""
        with (
            pymysql.connect(
                unix_socket=str(self.socket), user="root", database=database, autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall())


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _program(*names: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    pytest.skip(f"there is no {names[0]} here; `apt-get install -y mariadb-server` brings it")


@contextmanager
def mariadb() -> Iterator[MariaDB]:
    """Starts a server, and stops it; skips the test where none is installed."""
    server, install = (
        _program("mariadbd", "mysqld"),
        _program("mariadb-install-db", "mysql_install_db"),
    )
    # Not below pytest's folders: the path of a socket has to be short.
    with tempfile.TemporaryDirectory(prefix="scopeline-db-") as name:
        folder = Path(name)
        common = [
            "--no-defaults",
            f"--user={getpass.getuser()}",  # The server refuses to run as root without this option.
            f"--datadir={folder / 'data'}",
            f"--tmpdir={folder}",  # Servers that share one delete each other's tables.
        ]
        installed = subprocess.run(
            [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        assert installed.returncode == 0, installed.stdout.decode(errors="replace")
        found = MariaDB(free_port(), folder / "socket")
        address = [
            f"--socket={found.socket}",
            f"--port={found.port}",
            "--bind-address=127.0.0.1",
            f"--pid-file={folder / 'pid'}",
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([server, *common, *address], stdout=log, stderr=log)
        try:
            _wait(found, process, folder / "log")
            found.administer(f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'")
            found.administer(f"GRANT ALL ON `meta%`.* TO '{USER}'@'%'")
            yield found
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait(server: MariaDB, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while True:
        try:
            server.administer("SELECT 1")
            return
        except pymysql.OperationalError:
            if process.poll() is not None or time.monotonic() > ends:
                raise AssertionError(f"MariaDB did not start: {log.read_text()}") from None
            time.sleep(0.1)
