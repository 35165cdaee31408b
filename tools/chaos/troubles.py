"""The faults of nights: kills, stops, clock changes, full disks, hanging webhooks, holds."""

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

_FREE_BYTES = 100 << 10
"""The number of free bytes on a full disk."""


class Trouble(StrEnum):
    """The fault of a night."""

    NONE = ""
    KILL = "kill -9"
    TERM = "SIGTERM"
    AHEAD = "clock a month ahead"
    BACK = "clock two hours back"
    DISK = "full disk"
    WEBHOOK = "hanging webhook"
    HOLD = "pushes are held"


class Receiver:
    """A server of a webhook, which stores notifications and can hang."""

    def __init__(self) -> None:
        """Starts the server on a free local port."""
        self.notified: list[str] = []
        """The occasions of the notifications, oldest first."""
        self._answers = threading.Event()
        self._answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver._answers.wait()
                receiver.notified.append(json.loads(body)["occasion"])
                with suppress(OSError):
                    self.send_response(200)
                    self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Suppresses the server's log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Delays all responses until the end of the `with` block."""
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mounts a small file system on a folder; yields whether this machine permits the mount."""
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
    """Fills the file system of a folder, except for a few bytes."""
    ballast = folder / "ballast"
    system = os.statvfs(folder)
    free = system.f_bavail * system.f_frsize
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - _FREE_BYTES, 1))
    try:
        yield
    finally:
        ballast.unlink()


def kill_family(process: subprocess.Popen[str]) -> None:
    """Kills a process and all of its descendants."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        for member in [*parent.children(recursive=True), parent]:
            with suppress(psutil.NoSuchProcess):
                member.kill()
