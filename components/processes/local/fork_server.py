"""Starts workers as forks of a process that has imported their libraries already.

Importing TensorFlow and TFX takes a core for 5 to 13 seconds. A run has done so before it trains;
so right after its imports it forks a server, which later forks the workers, each within some
hundredths of a second. What must hold:

- Neither TensorFlow's runtime nor a thread of Python nor a device's driver survives a fork. The
  server is forked before any has begun, and does nothing itself that would begin one.
- The server holds none of the files that the run had open: a lock among them would outlive the run.
- It dies with the run, and the workers die with it. It waits for them, and reports how they ended.
- Modules that were imported by then stay as they were, as does what libraries have read of the
  environment when they were imported: the environment of a worker counts for what is read later.
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
from components.processes.local.forking import Birth, ForkedProcess, Server, fork
from components.processes.local.process import ProcessStart, be_killed_with, run_local_worker

_DRIVERS = ("/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/vfio")
"""What the files of the drivers of GPUs and TPUs begin with."""
_EVENTS = 3
"""The number of a worker's channel."""
_ARG_START = 45
"""The index of `arg_start` among what follows the command's name in /proc/self/stat; after it come
`arg_end`, `env_start` and `env_end`."""


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
            _run_server(requests, run)
        requests.close()

    def start(self, start: ProcessStart) -> ForkedProcess:
        """Starts a worker's process.

        Raises:
          OSError: the server has ended, or cannot fork.
        """
        birth = Birth(
            call=f"{__name__}:{become_worker.__name__}",
            told=[start.module, start.name],
            environment=dict(start.environment),
            folder=os.getcwd(),
            ends=(0, 1, 2, _EVENTS),
        )
        descriptors = [start.stdin, start.output, start.output, start.events]
        return fork(self._requests, birth, descriptors)

    def close(self) -> None:
        """Ends it, with what it started."""
        self._requests.close()
        # Whoever waited for any child of this process has noticed a server that was lost.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


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
    """Returns the server that workers are to be forked by, if there is one."""
    return _current


def may_fork() -> bool:
    """Returns whether forks of this process can do what a fresh one can."""
    if threading.active_count() > 1 or has_computed():
        return False
    return not any(file.startswith(_DRIVERS) for file in _open_files())


def _open_files() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{descriptor}")


def _run_server(requests: socket.socket, run: int) -> NoReturn:
    """Makes a server of this process, which a run has just forked.

    Args:
      requests: where the run says what to do; its end is that of the server.
      run: the process id of the run.
    """
    try:
        be_killed_with(run)
        _leave_run(requests)
        Server(requests).serve()
    finally:
        os._exit(1)


def _leave_run(requests: socket.socket) -> None:
    """Gives up all that the run has, but for its memory."""
    os.setsid()  # The terminal's Ctrl-C is for the run.
    # What is garbage by now may hold numbers of files that are given up here.
    gc.freeze()
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        # Not closed, as Python's own objects would one day close the number of another file.
        if descriptor not in (null, requests.fileno()) and _is_open(descriptor):
            os.dup2(null, descriptor, inheritable=descriptor <= 2)
    os.close(null)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            # As they are in a process that sets up its logging before it imports TensorFlow.
            logger.handlers = [h for h in logger.handlers if isinstance(h, logging.NullHandler)]
    set_title(__name__)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def become_worker(told: Sequence[str], server: int) -> NoReturn:
    """Makes of a forked process what a new interpreter is when it has begun, and works.

    Args:
      told: the worker's module, and its name.
      server: the process id of the server.
    """
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until it ends
    sys.stdout, sys.stderr = (_open_output(number) for number in (1, 2))
    sys.path[:] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = list(told)
    set_title(" ".join(told))
    run_local_worker(told[0], server, _EVENTS)


def _open_output(number: int) -> TextIO:
    return open(
        number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def set_title(title: str) -> None:
    """Writes a title over the arguments of this process.

    One that is longer goes on where the environment was, which the kernel's list allows for. Where
    the system does not say where the arguments are, nothing happens.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    places = list(map(int, fields[_ARG_START : _ARG_START + 4]))
    if len(places) < 4 or not all(places):
        return
    start, end, environment_start, environment_end = places
    # Each variable gets memory of its own.
    variables = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    room = (environment_end if environment_start == end else end) - start
    text = title.encode()[: room - 1]
    text += bytes(max(end - start - len(text), 1))
    ctypes.memmove(start, text, len(text))
