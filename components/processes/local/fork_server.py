"""A server that forks workers from a process with imported libraries.

Importing TensorFlow and TFX takes a core 5 to 13 seconds. A run has imported them before it trains;
right after its imports it forks a server, which later forks each worker within some hundredths of a
second. The conditions:

- Neither TensorFlow's runtime nor a thread of Python nor a device's driver survives a fork. The
  server is forked before any of them has begun, and does nothing that would begin one.
- The server releases all files that the run had open: a lock among them would outlive the run.
- The server dies with the run, and the workers die with the server, which waits for them and
  reports how they ended.
- Imported modules keep their state, including what they read from the environment on import: a
  worker's environment applies to what is read later.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

from components.compat.tensorflow import has_computed
from components.processes.local.forking import ForkedProcess, ForkRequest, Server, fork
from components.processes.local.process import ProcessStart, end_with_parent, run_local_worker

_DRIVERS = ("/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/vfio")
"""The prefixes of the device files of GPUs and TPUs."""
_EVENTS = 3
"""The file descriptor of a worker's channel."""
_ARG_START = 45
"""The index of `arg_start` among the fields after the command's name in /proc/self/stat; `arg_end`,
`env_start` and `env_end` follow."""


class ForkServer:
    """The run's side of a server, which is forked from this process in its current state."""

    def __init__(self) -> None:
        """Forks the server; the calling thread must outlive it."""
        self._requests, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Otherwise the server would write buffered output again.
        sys.stdout.flush()
        sys.stderr.flush()
        run = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _run_server(requests, run)
        requests.close()

    def start(self, start: ProcessStart) -> ForkedProcess:
        """Starts a worker's process.

        Raises:
          OSError: the server has ended, or cannot fork.
        """
        fork_request = ForkRequest(
            call=f"{__name__}:{become_worker.__name__}",
            argument=[start.module, start.name],
            environment=dict(start.environment),
            folder=os.getcwd(),
            descriptor_numbers=(0, 1, 2, _EVENTS),
        )
        descriptors = [start.stdin, start.output, start.output, start.events]
        return fork(self._requests, fork_request, descriptors)

    def close(self) -> None:
        """Ends the server and its workers."""
        self._requests.close()
        # Code that waits for any child may have reaped the server already.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


_current: ForkServer | None = None


@contextmanager
def serving() -> Iterator[None]:
    """Runs a server that was forked from this process, in a `with` block; none if a fork is
    unsafe.
    """
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
    """Returns the current server for forking workers, if there is one."""
    return _current


def may_fork() -> bool:
    """Returns whether a fork of this process works like a new process."""
    if threading.active_count() > 1 or has_computed():
        return False
    return not any(file.startswith(_DRIVERS) for file in _open_files())


def _open_files() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{descriptor}")


def _run_server(requests: socket.socket, run: int) -> NoReturn:
    """Turns this process, which a run has just forked, into a server.

    Args:
      requests: the socket of the run's requests; the server ends with it.
      run: the process id of the run.
    """
    try:
        end_with_parent(run)
        _release_run(requests)
        Server(requests).serve()
    finally:
        os._exit(1)


def _release_run(requests: socket.socket) -> None:
    """Releases all of the run's resources except its memory."""
    os.setsid()  # Ctrl-C in the terminal then reaches only the run.
    # The collection of garbage might close descriptors whose numbers are reused below.
    gc.freeze()
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        # Replaced, not closed, as Python's file objects would later close a reused number.
        if descriptor not in (null, requests.fileno()) and _is_open(descriptor):
            os.dup2(null, descriptor, inheritable=descriptor <= 2)
    os.close(null)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            # Like in a process that sets up its logging before it imports TensorFlow.
            logger.handlers = [h for h in logger.handlers if isinstance(h, logging.NullHandler)]
    set_title(__name__)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def become_worker(arguments: Sequence[str], server: int) -> NoReturn:
    """Resets a forked process to the state of a new interpreter, and runs the worker.

    Args:
      arguments: the worker's module and its name.
      server: the process id of the server.
    """
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until it ends
    sys.stdout, sys.stderr = (_open_output(number) for number in (1, 2))
    sys.path[:] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = list(arguments)
    set_title(" ".join(arguments))
    run_local_worker(arguments[0], server, _EVENTS)


def _open_output(number: int) -> TextIO:
    return open(
        number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def set_title(title: str) -> None:
    """Writes a title over the arguments of this process, for lists of processes.

    A longer title continues into the memory of the environment, which the kernel supports. Where
    the system does not report the arguments' position, nothing happens.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    places = list(map(int, fields[_ARG_START : _ARG_START + 4]))
    if len(places) < 4 or not all(places):
        return
    start, end, environment_start, environment_end = places
    # Copies each variable to its own memory.
    variables = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    room = (environment_end if environment_start == end else end) - start
    text = title.encode()[: room - 1]
    text += bytes(max(end - start - len(text), 1))
    ctypes.memmove(start, text, len(text))
