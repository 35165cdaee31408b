"""A server that forks workers from a process that has imported libraries.

Importing TensorFlow and TFX takes 5 to 13 seconds on a core. Right after its imports, a run forks
this server, which later forks each worker within some hundredths of a second. The conditions:

- TensorFlow's runtime, threads of Python and drivers of devices do not survive a fork. Therefore
  the server is forked before they start, and does not start them.
- The server closes all files that the run has open. A lock on such a file would otherwise outlive
  the run.
- If the run dies, the server dies. If the server dies, its workers die. The server waits for the
  workers, and reports how they ended.
- Imported modules keep their state. A variable of a worker's environment has no effect on a module
  that has read this variable on import.
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
_EVENTS_DESCRIPTOR = 3
"""The file descriptor of a worker's channel."""
_ARG_START = 45
"""The index of `arg_start` among the fields after the command's name in /proc/self/stat. The next
fields are `arg_end`, `env_start` and `env_end`."""


class ForkServer:
    """The run's handle of a server, which is forked from this process in its present state."""

    def __init__(self) -> None:
        """Forks the server. The calling thread must outlive the server."""
        self._requests, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The buffers are flushed first, as the server would otherwise write their content again.
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
          OSError: the server has ended or cannot fork.
        """
        fork_request = ForkRequest(
            call=f"{__name__}:{become_worker.__name__}",
            argument=[start.module, start.name],
            environment=dict(start.environment),
            folder=os.getcwd(),
            descriptor_numbers=(0, 1, 2, _EVENTS_DESCRIPTOR),
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
def run_fork_server() -> Iterator[None]:
    """Runs a server that is forked from this process, in a `with` block.

    If a fork is unsafe, no server is started.
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
    """Returns the current server, or None."""
    return _current


def may_fork() -> bool:
    """Returns whether a fork is safe, as no thread, TensorFlow runtime or driver has started."""
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
      requests: the socket of the run's requests. The server ends when the run closes the socket.
    """
    try:
        end_with_parent(run)
        _release_run(requests)
        Server(requests).serve()
    finally:
        os._exit(1)


def _release_run(requests: socket.socket) -> None:
    """Releases all resources of the run except its memory."""
    os.setsid()  # Ctrl-C in the terminal then reaches only the run.
    # Garbage collection might close descriptors whose numbers are reused below.
    gc.freeze()
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        # If descriptors were closed, their numbers would be reused, and Python's file objects would
        # later close these numbers. Therefore the descriptors are replaced.
        if descriptor not in (null, requests.fileno()) and _is_open(descriptor):
            os.dup2(null, descriptor, inheritable=descriptor <= 2)
    os.close(null)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            # The handlers are then as in a process that has not configured its logging yet.
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
      arguments: the module and the name of the worker.
    """
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process ends
    sys.stdout, sys.stderr = (_open_output(number) for number in (1, 2))
    sys.path[:] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = list(arguments)
    set_title(" ".join(arguments))
    run_local_worker(arguments[0], server, _EVENTS_DESCRIPTOR)


def _open_output(number: int) -> TextIO:
    return open(
        number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def set_title(title: str) -> None:
    """Sets the title of this process in lists of processes, such as that of `ps`.

    The title overwrites the arguments of the process. As the kernel allows, a long title continues
    into the memory of the environment. If the system does not report the address of the arguments,
    the title is not set.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    addresses = list(map(int, fields[_ARG_START : _ARG_START + 4]))
    if len(addresses) < 4 or not all(addresses):
        return
    start, end, environment_start, environment_end = addresses
    # The environment is set again, so that its variables are copied to other memory.
    variables = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    size = (environment_end if environment_start == end else end) - start
    text = title.encode()[: size - 1]
    text += bytes(max(end - start - len(text), 1))
    ctypes.memmove(start, text, len(text))
