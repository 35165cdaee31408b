"""A process that has imported the libraries, and forks the programs that are ordered from it.

    python -P -c "from warm.zygote import main; main()" DESCRIPTOR LIBRARY...

The descriptor is a listening Unix socket; a connection orders one process, and hears of it. The
zygote ends, with all processes that still run, when its standard input does. It runs nothing but
imports: no thread, and no TensorFlow runtime, which a fork would break. None of the product's
modules is among them: each process imports those itself, as it would from the start.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import os
import pickle
import select
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import warm.processes
from warm.becoming import become, run
from warm.order import ENDED, STARTED, Order, receive_order, send_news


@dataclass
class Birth:
    """An order that a forked process is to carry out."""

    order: Order
    descriptors: list[int]
    connection: socket.socket


@dataclass(frozen=True)
class Child:
    """A process that was forked."""

    pid: int
    connection: socket.socket


class Zygote:
    """Forks on request, and reaps."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lifeline = sys.stdin.fileno()
        self._children: dict[int, Child] = {}
        """By the descriptor that tells when it has ended."""

    def serve(self) -> Birth | None:
        """Works until standard input ends; a process that it forks returns with its order."""
        while True:
            poll = select.poll()
            for descriptor in (self._lifeline, self._listener.fileno(), *self._children):
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll():
                if descriptor == self._lifeline:
                    self._end()
                    return None
                if descriptor in self._children:
                    self._reap(descriptor)
                elif birth := self._fork():
                    return birth

    def _fork(self) -> Birth | None:
        """The order, in the process that it is for; None in the zygote."""
        connection, _ = self._listener.accept()
        try:
            order, descriptors = receive_order(connection)
        except (EOFError, OSError, pickle.UnpicklingError):  # Whoever asked was killed as it did.
            connection.close()
            return None
        if pid := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            self._children[os.pidfd_open(pid)] = Child(pid, connection)
            return None
        self._forget()
        return Birth(order, descriptors, connection)

    def _forget(self) -> None:
        """In a forked process: nothing of the zygote's stays open."""
        self._listener.close()
        for descriptor, child in self._children.items():
            os.close(descriptor)
            child.connection.close()

    def _reap(self, descriptor: int) -> None:
        child = self._children.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(child.pid, 0)
        send_news(child.connection, ENDED, status)
        child.connection.close()

    def _end(self) -> None:
        """Ends what still runs, each with its process group."""
        shutil.rmtree(Path(self._listener.getsockname()).parent, ignore_errors=True)
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        for descriptor in list(self._children):
            self._reap(descriptor)


def main() -> None:
    """Imports, then serves; a forked process runs its program, and does not return."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    address = listener.getsockname()
    # They were for the zygote alone.
    sys.path.remove(str(Path(__file__).parents[1]))
    os.environ.pop("PYTHONPATH")
    before = dict(os.environ)
    for library in sys.argv[2:]:
        importlib.import_module(library)
    added = {name: value for name, value in os.environ.items() if before.get(name) != value}
    # It goes through all modules at its first call, for which Pydantic is enough.
    inspect.getmodule(main.__code__)
    # What is never collected is never written to, and stays shared with the forked processes.
    gc.collect()
    gc.freeze()
    if birth := Zygote(listener).serve():
        become(birth.order, birth.descriptors, added)
        warm.processes.install(address)
        send_news(birth.connection, STARTED, os.getpid())
        birth.connection.close()
        run(birth.order.program)
