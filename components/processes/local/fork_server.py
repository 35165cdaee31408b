"""Starts tasks as forks of a process that has imported their libraries already.

Importing TensorFlow and TFX takes a core for 5 to 13 seconds. A run has done so before it trains;
so right after its imports it forks a server, which later forks the tasks, each within some
hundredths of a second. What must hold:

- Neither TensorFlow's runtime nor a thread of Python nor a device's driver survives a fork. The
  server is forked before any has begun, and does nothing itself that would begin one.
- The server holds none of the files that the run had open: a lock among them would outlive the run.
- It dies with the run, and the tasks die with it. It waits for them, and reports how they ended.
- Modules that were imported by then stay as they were, as does what libraries have read of the
  environment when they were imported: the environment of a task counts for what is read later.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from components.compat.tensorflow import has_computed
from components.processes.local.forking import MAX_REQUEST, run_server
from components.processes.local.process import ProcessStart

_DRIVERS = ("/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/vfio")
"""What the files of the drivers of GPUs and TPUs begin with."""


class ForkServer:
    """The run's side of a server, which is forked off this process as it is now."""

    def __init__(self) -> None:
        """Forks it; the thread that calls this must outlive it."""
        self._requests, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Else the server would say again what is still to be written.
        sys.stdout.flush()
        sys.stderr.flush()
        run = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            run_server(requests, run)
        requests.close()

    def start(self, start: ProcessStart) -> ForkedProcess:
        """Starts a task's process.

        Raises:
          OSError: the server has ended, or cannot fork.
        """
        request = {
            "module": start.module,
            "name": start.name,
            "environment": dict(start.environment),
            "folder": os.getcwd(),
        }
        reading, writing = os.pipe()
        descriptors = [start.stdin, start.output, start.events, writing]
        try:
            self._send(request, descriptors)
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return ForkedProcess(self, reading)

    def kill_group(self, pid: int) -> None:
        """Ends a process that it started, if that still runs, and all of its group."""
        # A server that has ended took its tasks with it.
        with contextlib.suppress(OSError):
            self._send({"kill": pid})

    def close(self) -> None:
        """Ends it, with what it started."""
        self._requests.close()
        # Whoever waited for any child of this process has noticed a server that was lost.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _send(self, request: dict[str, Any], descriptors: list[int] | None = None) -> None:
        message = json.dumps(request).encode()
        if len(message) > MAX_REQUEST:
            raise OSError(f"a request of {len(message)} bytes is too long")
        socket.send_fds(self._requests, [message], descriptors or [])


class ForkedProcess:
    """A process that a server has forked; see `TaskProcess`."""

    def __init__(self, server: ForkServer, reports: int) -> None:
        """Waits until it is there.

        Args:
          server: is forking it.
          reports: where that it began is said, with its process id, and then how it ended.

        Raises:
          OSError: it could not be forked.
        """
        self._server = server
        self._reports = open(reports, "rb", buffering=0)  # noqa: SIM115 - until it has ended
        self._status: int | None = None
        began = self._reports.readline().split()
        if not began:
            self._reports.close()
            raise ChildProcessError("the fork server cannot fork")
        self._pid = int(began[0])

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        if self._status is None and select.select([self._reports], [], [], 0)[0]:
            self.wait()
        return self._status

    def wait(self) -> None:
        """Returns when it has ended."""
        if self._status is None:
            ended = self._reports.readline()
            # Without a word the server was killed, and then the kernel has killed this one.
            self._status = int(ended) if ended else -signal.SIGKILL
            self._reports.close()

    def kill_group(self) -> None:
        """Ends it, if it still runs, and all of its group."""
        if self.poll() is None:
            self._server.kill_group(self._pid)


_current: ForkServer | None = None


@contextmanager
def serving() -> Iterator[None]:
    """Keeps a server of this process as it is now, in a `with` block; none where that is unsafe."""
    global _current
    server = ForkServer() if may_fork() else None
    _current = server
    try:
        yield
    finally:
        _current = None
        if server is not None:
            server.close()


def current_server() -> ForkServer | None:
    """The server that tasks are to be forked by, if there is one."""
    return _current


def may_fork() -> bool:
    """Whether forks of this process can do what a fresh one can."""
    if threading.active_count() > 1 or has_computed():
        return False
    return not any(file.startswith(_DRIVERS) for file in _open_files())


def _open_files() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{descriptor}")
