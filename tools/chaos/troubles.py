"""What makes nights hard: kills, stops, clocks that jump, full disks, hanging webhooks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil

_ROOM_BYTES = 100 << 10
"""What a full disk has left."""


class Trouble(StrEnum):
    """What befalls a night."""

    NONE = ""
    KILL = "kill -9"
    TERM = "SIGTERM"
    AHEAD = "clock a month ahead"
    BACK = "clock two hours back"
    DISK = "full disk"
    WEBHOOK = "hanging webhook"
    HOLD = "pushes are held"


class Receiver:
    """A webhook's server: keeps what it is told, and may leave its clients without an answer."""

    def __init__(self) -> None:
        """Listens on a free port of this machine."""
        self.told: list[str] = []
        """The occasions, oldest first."""
        self._answers = threading.Event()
        self._answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver._answers.wait()
                receiver.told.append(json.loads(body)["occasion"])
                with suppress(OSError):
                    self.send_response(200)
                    self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Answers nobody for as long as this lasts."""
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Gives a folder a file system of its own; yields whether this machine lets us."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "chaos", str(folder)]
    mounted = os.geteuid() == 0 and _runs("mount", *options)
    try:
        yield mounted
    finally:
        if mounted:
            _runs("umount", "-l", str(folder))


def _runs(program: str, *arguments: str) -> bool:
    found = shutil.which(program)
    if found is None:
        return False
    return subprocess.run([found, *arguments], check=False).returncode == 0


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Fills the file system of a folder but for a little."""
    ballast = folder / "ballast"
    system = os.statvfs(folder)
    free = system.f_bavail * system.f_frsize
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - _ROOM_BYTES, 1))
    try:
        yield
    finally:
        ballast.unlink()


def kill_family(process: subprocess.Popen[str]) -> None:
    """Kills a process and all below it."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        for member in [*parent.children(recursive=True), parent]:
            with suppress(psutil.NoSuchProcess):
                member.kill()
