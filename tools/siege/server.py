"""The server under attack: `local_runner.py serve` with the options of the shipped manifest."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from tools.siege.confined import MemoryLimit
from tools.siege.load import wait_until
from tools.siege.models import NAME, ROOT

MANIFEST = ROOT / "deploy" / "kubernetes" / "server.yaml"
KEY = "siege"
_READY_SECONDS = 120.0
_END_SECONDS = 40.0
"""The manifest's terminationGracePeriodSeconds."""
_POLL_SECONDS = 0.1
_RESTART_SECONDS = 0.5
_OK = 200


def _container() -> dict[str, Any]:
    deployment = next(iter(yaml.safe_load_all(MANIFEST.read_text())))
    return dict(deployment["spec"]["template"]["spec"]["containers"][0])


def memory_limit() -> int:
    """Returns the manifest's memory limit in megabytes."""
    limit = _container()["resources"]["limits"]["memory"]
    number, unit = re.fullmatch(r"(\d+)([MG])i", limit).groups()  # type: ignore[union-attr]
    return int(number) * {"M": 1, "G": 1024}[unit]


def serve_options(serving: Path, port: int) -> list[str]:
    """Returns the manifest's options, with a local folder of versions and the loopback address."""
    replacements = {
        "--model": str(serving),
        "--name": NAME,
        "--host": "127.0.0.1",
        "--port": str(port),
    }
    options = [str(option) for option in _container()["args"]]
    for name, index in [(option, n + 1) for n, option in enumerate(options)]:
        if name in replacements:
            options[index] = replacements[name]
    return options


class Server:
    """A server that is restarted after an exit, as Kubernetes restarts it."""

    def __init__(self, serving: Path, folder: Path, limit: MemoryLimit, workers: int = 1) -> None:
        """Args:
        serving: the folder of versions.
        folder: the folder for the log and temporary files.
        limit: the memory limit.
        workers: the number of worker processes.
        """
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.log = folder / "server.log"
        self.workers = workers
        self.peak = 0.0
        """The maximum memory of all processes so far, in megabytes."""
        self._serving, self._limit = serving, limit
        self._scratch = folder / "tmp"
        self._scratch.mkdir()
        self._seen: set[psutil.Process] = set()
        """The processes so far, including the children of a dead process."""
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._observe, daemon=True)
        self.start()
        self._watch.start()

    def start(self) -> None:
        """Starts the server process."""
        command = [sys.executable, str(ROOT / "local_runner.py")]
        command += serve_options(self._serving, self.port)
        command += ["--workers", str(self.workers)] if self.workers > 1 else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._limit.command(command),
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "SCOPELINE_API_KEY": KEY, "TMPDIR": str(self._scratch)},
                start_new_session=True,
            )
        self._seen.add(psutil.Process(self.process.pid))

    def wait_ready(self) -> bool:
        """Returns whether the server becomes ready; if it exits, the method restarts it."""
        return wait_until(self._is_ready, _READY_SECONDS)

    def _is_ready(self) -> bool:
        if not self.is_alive:  # Workers of a killed server may still use the port.
            time.sleep(_RESTART_SECONDS)
            self.start()
        # The server detects a killed worker only after a moment.
        is_complete = self.workers == 1 or len(self.worker_processes()) == self.workers
        return is_complete and self.get("/v2/health/ready") == _OK

    def get(self, path: str) -> int:
        """Returns the status of a GET request, or 0 without a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    @property
    def is_alive(self) -> bool:
        """Whether the main process is running."""
        return self.process.poll() is None

    def stop(self) -> int | None:
        """Sends SIGTERM; returns the exit code, or None if the server had to be killed."""
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(_END_SECONDS)
        self.kill()
        return None

    def kill(self) -> None:
        """Sends SIGKILL to the main process."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> bool:
        """Kills and restarts the server; returns whether it becomes ready."""
        self.kill()
        self.start()
        return self.wait_ready()

    def close(self) -> list[int]:
        """Ends the server; kills its remaining processes and returns their ids."""
        self.stop()
        wait_until(lambda: not self.processes, _END_SECONDS)
        self._ended.set()
        self._watch.join()
        remaining = self.processes
        for process in remaining:
            process.kill()
        return [process.pid for process in remaining]

    @property
    def processes(self) -> list[psutil.Process]:
        """The running processes: the main process and its workers."""
        with suppress(psutil.NoSuchProcess):
            self._seen.update(psutil.Process(self.process.pid).children(recursive=True))
        # `is_running` is False if a later process has the same id.
        self._seen = {p for p in set(self._seen) if p.is_running() and not _is_dead(p)}
        return list(self._seen)

    def worker_processes(self) -> list[psutil.Process]:
        """Returns the worker processes, if there are several."""
        started = re.findall(r"worker \d is started \(process (\d+)\)", self.log.read_text())
        return [process for process in self.processes if str(process.pid) in started]

    @property
    def megabytes(self) -> float:
        """The memory of all processes in megabytes, without shared memory such as library files."""
        total = 0
        for process in self.processes:
            with suppress(psutil.Error):
                memory = process.memory_info()
                total += memory.rss - memory.shared
        return total / 2**20

    def _observe(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self.peak = max(self.peak, self.megabytes)

    def tracebacks(self) -> list[str]:
        """Returns the last line of each traceback in the server's log."""
        log = self.log.read_text(errors="replace")
        return re.findall(r"Traceback \(most recent call last\).*?\\n(\w[^\\]*)(?:\\n)?\"", log)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
