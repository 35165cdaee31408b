"""A server process that forks other processes, which start with all modules that it has imported.

The server has a single thread, waits for its forks, and reports how each fork ended. A run has a
server for its workers (see `fork_server`). Tests have a server for command lines, whose process
loads only this module of the project. Therefore this module imports only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

_MAX_REQUEST = 150_000
"""The most bytes of a request. The limit is below Linux's limit for a socket's buffer."""
_BEGUN = b"begun "
"""The prefix of the report that a process has begun, which contains its id. A report without this
prefix is the status of a process that has ended."""
_MAX_DESCRIPTORS = 253


@dataclass(frozen=True)
class ForkRequest:
    """The function, environment and descriptors of a process to fork."""

    call: str
    """The function to call, as `module:function`, with `argument` and the process id of the server.
    The function should end the process. If the function returns, the exit status is 1."""
    argument: Any
    environment: Mapping[str, str]
    folder: str
    descriptor_numbers: Sequence[int]
    """The numbers of the sent descriptors in the process."""
    is_session: bool = True
    """Whether the process leads a session of its own. If not, it leads a process group."""


class ForkedProcess:
    """A process that a server has forked."""

    def __init__(self, requests: socket.socket, reports: int) -> None:
        """Waits until the process has begun.

        Args:
          reports: the descriptor on which the begin and the end of the process are reported.

        Raises:
          OSError: the process could not be forked, or did not begin.
        """
        self._requests = requests
        self._reports = open(reports, "rb", buffering=0)  # noqa: SIM115 - until the process ends
        self._status: int | None = None
        self._lock = threading.Lock()
        report = self._reports.readline()
        if not report.startswith(_BEGUN):
            self._reports.close()
            raise ChildProcessError("the fork server cannot fork")
        self.pid = int(report.removeprefix(_BEGUN))

    def poll(self) -> int | None:
        """Returns the status of a process that has ended, or None while it runs.

        The status is the exit status, or minus the number of the signal that ended the process.
        """
        with self._lock:
            if self._status is None and self._is_readable(0):
                report = self._reports.readline()
                # If there is no report, the server was killed, and the process with it.
                self._status = int(report) if report else -signal.SIGKILL
                self._reports.close()
        return self._status

    def wait(self, timeout: float | None = None) -> int | None:
        """Returns the result of `poll` after the process has ended, or a timeout in seconds."""
        with contextlib.suppress(ValueError):  # Another thread has read the report and closed it.
            self._is_readable(timeout)
        return self.poll()

    def kill_group(self) -> None:
        """Kills the process and its group, if it still runs."""
        if self.poll() is None:
            # The server kills the group, as only the server can exclude that another process has
            # the id. If the server has ended, so have its processes.
            with contextlib.suppress(OSError):
                send(self._requests, {"kill": self.pid})

    def _is_readable(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(0, timeout) * 1000))


def fork(
    requests: socket.socket, fork_request: ForkRequest, descriptors: Sequence[int]
) -> ForkedProcess:
    """Sends a request to a server, and returns the forked process.

    Args:
      descriptors: the descriptors to copy, in the order of `fork_request.descriptor_numbers`.

    Raises:
      OSError: the server has ended or cannot fork, or the request is too long.
    """
    reading, writing = os.pipe()
    try:
        send(requests, asdict(fork_request), [*descriptors, writing])
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return ForkedProcess(requests, reading)


def send(
    requests: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Sends a request: the fields of a `ForkRequest`, or `kill` with the id of a process.

    Raises:
      OSError: the server has ended, or the request is too long.
    """
    message = json.dumps(request).encode()
    if len(message) > _MAX_REQUEST:
        raise OSError(f"a request of {len(message)} bytes is too long")
    socket.send_fds(requests, [message], list(descriptors))


class Server:
    """A server that forks a process for each request."""

    def __init__(
        self,
        requests: socket.socket,
        lifeline: int | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Creates the server, and installs its handler of SIGCHLD.

        Args:
          requests: the socket of requests. With a lifeline, the socket listens, and each request
            has its own connection.
          lifeline: a descriptor, such as a pipe. When its other end is closed, the server ends.
            None if the server ends when the other end of `requests` is closed.
        """
        self._requests = requests
        self._lifeline = lifeline
        self._on_end = on_end
        self._reports: dict[int, int] = {}
        """The descriptors for reporting the ends of processes, by process id."""
        self._wakeups, self._wake = os.pipe()
        """The ends of a pipe to which SIGCHLD writes."""
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> NoReturn:
        """Serves until the process that started the server has ended. Its forks are then killed."""
        sources = [self._requests, self._wakeups]
        sources += [] if self._lifeline is None else [self._lifeline]
        while True:
            ready, _, _ = select.select(sources, [], [])
            if self._wakeups in ready:
                os.read(self._wakeups, 4096)
                self._report_ended()
            if self._lifeline in ready:
                self._end()
            if self._requests in ready:
                self._take_request()

    def _report_ended(self) -> None:
        for pid, report in list(self._reports.items()):
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if ended_pid:
                del self._reports[pid]
                # The process that requested the fork may have closed its end of the pipe.
                with contextlib.suppress(BrokenPipeError):
                    os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(report)

    def _end(self) -> NoReturn:
        for pid in self._reports:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self._reports:
            os.waitpid(pid, 0)
        self._on_end()
        os._exit(0)

    def _take_request(self) -> None:
        message, descriptors = self._receive()
        if not message:
            # The client of this connection was killed before it sent the request.
            return None if self._lifeline is not None else self._end()
        request = json.loads(message)
        if "kill" not in request:
            *inherited, report = descriptors
            self._fork(ForkRequest(**request), inherited, report)
        elif request["kill"] in self._reports:
            os.killpg(request["kill"], signal.SIGKILL)
        return None

    def _receive(self) -> tuple[bytes, list[int]]:
        connection = self._requests
        if self._lifeline is not None:
            connection, _ = self._requests.accept()
        message, descriptors, _, _ = socket.recv_fds(
            connection, _MAX_REQUEST, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        if connection is not self._requests:
            connection.close()
        return message, list(descriptors)

    def _fork(self, fork_request: ForkRequest, descriptors: list[int], report: int) -> None:
        """Forks a process. If the fork fails, `report` is closed without a report."""
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            try:
                self._release()
                _become(fork_request, descriptors, report)
                module, _, function = fork_request.call.partition(":")
                getattr(importlib.import_module(module), function)(fork_request.argument, server)
            except KeyboardInterrupt:  # The signal came before the function had set its handler.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            self._reports[pid] = report
        else:
            os.close(report)

    def _release(self) -> None:
        """Releases the server's resources in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._requests.close()
        for descriptor in (self._wakeups, self._wake, *self._reports.values()):
            os.close(descriptor)


def _become(fork_request: ForkRequest, descriptors: list[int], report: int) -> None:
    """Gives a forked process the state of a new process, and reports that it has begun."""
    if fork_request.is_session:
        os.setsid()
    else:
        # Signals to the group do not reach the server.
        os.setpgid(0, 0)
    min_number = max(*fork_request.descriptor_numbers, *descriptors, report) + 1
    report = _move(report, min_number)
    moved = [_move(descriptor, min_number) for descriptor in descriptors]
    for descriptor, number in zip(moved, fork_request.descriptor_numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(fork_request.environment)
    os.chdir(fork_request.folder)
    importlib.invalidate_caches()
    tempfile.tempdir = None
    # Python reseeds only its own random generator after a fork.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    # The process is ready: its group can be killed, and its standard error is set.
    os.write(report, _BEGUN + b"%d\n" % os.getpid())
    os.close(report)


def _move(descriptor: int, min_number: int) -> int:
    """Moves a descriptor to a number that is at least `min_number`, and returns the number."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min_number)
    os.close(descriptor)
    return moved
