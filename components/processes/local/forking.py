"""A server process that forks others, which start with all modules that it has imported.

It has a single thread, waits for its forks, and reports how each ended. Runs have a server for
their workers (see `fork_server`); tests have one for command lines. The latter load this module
alone into a process without the product's modules; it therefore imports only the standard library.
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
"""The most bytes of a request, below the limit of Linux for a socket's buffer."""
_BEGUN = b"begun "
"""The prefix of the report of a process's id; a number without it reports how a process ended."""
_MAX_DESCRIPTORS = 253
"""The most descriptors that Linux sends at once."""


@dataclass(frozen=True)
class ForkRequest:
    """The function, environment and descriptors of a process to fork."""

    call: str
    """`module:function`, which is called with `argument` and the process id of the server. The
    process ends when the function returns, with exit status 1 unless the function ends it."""
    argument: Any
    """The argument of the function, as JSON."""
    environment: Mapping[str, str]
    """The complete environment of the process."""
    folder: str
    """The working folder of the process."""
    descriptor_numbers: Sequence[int]
    """The numbers that the sent descriptors get in the process."""
    is_session: bool = True
    """Whether the process leads a session of its own, and not only a group."""


class ForkedProcess:
    """A process that a server has forked."""

    def __init__(self, requests: socket.socket, reports: int) -> None:
        """Waits until the process has begun.

        Args:
          requests: the socket to the server.
          reports: the descriptor on which the process's begin and end are reported.

        Raises:
          OSError: the process could not be forked, or did not begin.
        """
        self._requests = requests
        self._reports = open(reports, "rb", buffering=0)  # noqa: SIM115 - until it has ended
        self._status: int | None = None
        self._lock = threading.Lock()
        report = self._reports.readline()
        if not report.startswith(_BEGUN):
            self._reports.close()
            raise ChildProcessError("the fork server cannot fork")
        self.pid = int(report.removeprefix(_BEGUN))

    def poll(self) -> int | None:
        """Returns the exit status, or minus the signal that ended the process; None while it
        runs.
        """
        with self._lock:
            if self._status is None and self._is_readable(0):
                ended = self._reports.readline()
                # Without a report the server was killed, and the process with it.
                self._status = int(ended) if ended else -signal.SIGKILL
                self._reports.close()
        return self._status

    def wait(self, timeout: float | None = None) -> int | None:
        """Returns the result of `poll` once the process has ended, or after a timeout in
        seconds.
        """
        with contextlib.suppress(ValueError):  # Another thread has read the report and closed it.
            self._is_readable(timeout)
        return self.poll()

    def kill_group(self) -> None:
        """Kills the process and its group, if it still runs."""
        if self.poll() is None:
            # By the server, which has not waited for it if the number is its own. One that has
            # ended took its processes with it.
            with contextlib.suppress(OSError):
                send(self._requests, {"kill": self.pid})

    def _is_readable(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(0, timeout) * 1000))


def fork(
    requests: socket.socket, fork_request: ForkRequest, descriptors: Sequence[int]
) -> ForkedProcess:
    """Requests a process from a server.

    Args:
      requests: the socket to the server.
      fork_request: the description of the process.
      descriptors: the descriptors to copy, in the order of `fork_request.descriptor_numbers`.

    Raises:
      OSError: the server has ended, or cannot fork, or the request is too long.
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
        """Creates the server, and takes over SIGCHLD.

        Args:
          requests: the socket of requests; if it listens, each request has its own connection.
          lifeline: the descriptor at whose end the server ends; None for `requests`, which then
            does not listen.
          on_end: the callback at the server's end.
        """
        self._requests = requests
        self._lifeline = lifeline
        self._on_end = on_end
        self._reports: dict[int, int] = {}
        """The descriptors for reporting the ends of processes, by process id."""
        self._ended, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> NoReturn:
        """Serves until the process that started the server has ended; its forks end with it."""
        sources = [self._requests, self._ended]
        sources += [] if self._lifeline is None else [self._lifeline]
        while True:
            ready, _, _ = select.select(sources, [], [])
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._report_ended()
            if self._lifeline in ready:
                self._end()
            if self._requests in ready:
                self._take_request()

    def _report_ended(self) -> None:
        for pid, report in list(self._reports.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._reports[pid]
                # The reader may have closed its end.
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
        """Forks a process; reports a failure by closing `report` without writing to it."""
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
            except KeyboardInterrupt:  # The interrupt came before the function was called.
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
        for descriptor in (self._ended, self._wake, *self._reports.values()):
            os.close(descriptor)


def _become(fork_request: ForkRequest, descriptors: list[int], report: int) -> None:
    """Sets up a forked process like a new one, and reports that it has begun."""
    if fork_request.is_session:
        os.setsid()
    else:
        # Signals to the group do not reach the server.
        os.setpgid(0, 0)
    above = max(*fork_request.descriptor_numbers, *descriptors, report) + 1
    report = _move(report, above)
    moved = [_move(descriptor, above) for descriptor in descriptors]
    for descriptor, number in zip(moved, fork_request.descriptor_numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(fork_request.environment)
    os.chdir(fork_request.folder)
    importlib.invalidate_caches()
    tempfile.tempdir = None
    # Python reseeds its own generator after a fork.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    # From now on its group can be killed, and its errors are reported.
    os.write(report, _BEGUN + b"%d\n" % os.getpid())
    os.close(report)


def _move(descriptor: int, above: int) -> int:
    """Moves a descriptor to a number not below `above`, and returns the number."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above)
    os.close(descriptor)
    return moved
