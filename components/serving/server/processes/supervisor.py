"""The parent of the workers: starts them, starts them again, and ends them together."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from prometheus_client.multiprocess import mark_process_dead

from components.processes.ending import SERVER_GRACE_SECONDS, Step, end, name_signal
from components.processes.stopping import handled
from components.serving.server.options import ServeOptions
from components.serving.server.processes.worker import work
from components.serving.server.workers import SPAWN, WorkerPlace, Workers
from trainer_module.errors import ConfigError
from trainer_module.scratch import ScratchFolder

logger = logging.getLogger(__name__)

METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client keeps the metrics of several processes; read when it is imported."""
_AGAIN_SECONDS = 5.0
"""After which a worker is started again that had never answered."""
_END_SECONDS = SERVER_GRACE_SECONDS + 5
"""In which workers have to end."""


def supervise(options: ServeOptions, bound: socket.socket) -> None:
    """Serves by several processes until a signal comes.

    Raises:
      ConfigError: no version can be loaded, and none is waited for.
    """
    # Signals first: until then one ends the process at once, and nothing would delete the folder.
    with _signals() as signalled, ScratchFolder() as metrics:
        os.environ[METRICS_VARIABLE] = metrics
        try:
            _Supervisor(options, bound, metrics).run(signalled)
        finally:
            del os.environ[METRICS_VARIABLE]


@dataclass
class _Worker:
    process: SpawnProcess
    failed: Connection


class _Supervisor:
    def __init__(self, options: ServeOptions, bound: socket.socket, metrics: str) -> None:
        self._options, self._bound, self._metrics = options, bound, metrics
        self._workers = Workers(options.workers)
        self._running: dict[int, _Worker] = {}
        self._due = dict.fromkeys(range(options.workers), 0.0)
        """When workers are to be started, by their number."""
        self._have_answered = False

    def run(self, signalled: socket.socket) -> None:
        """Returns after a signal, when all workers have ended.

        Args:
          signalled: can be read once a signal has come.
        """
        try:
            while True:
                self._start_due()
                running = [worker.process.sentinel for worker in self._running.values()]
                if signalled in wait([signalled, *running], self._seconds_to_next()):
                    return
                for number in list(self._running):
                    if not self._running[number].process.is_alive():
                        self._see_off(number)
        finally:
            self._end()

    def _start_due(self) -> None:
        for number, when in list(self._due.items()):
            if when <= time.monotonic():
                del self._due[number]
                try:
                    self._running[number] = self._start(number)
                except OSError as error:  # There is no memory or no process left just now.
                    if not self._have_answered:
                        raise
                    self._due[number] = time.monotonic() + _AGAIN_SECONDS
                    logger.error("worker %d cannot be started yet: %s", number, error)

    def _seconds_to_next(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - time.monotonic())

    def _start(self, number: int) -> _Worker:
        receiver, sender = SPAWN.Pipe(duplex=False)
        arguments = (self._options, self._bound, WorkerPlace(self._workers, number), sender)
        process = SPAWN.Process(target=work, args=arguments, name=f"worker {number}")
        # Ctrl-C reaches every process of a terminal; workers end when their parent tells them.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        sender.close()
        logger.info("worker %d is started (process %d)", number, process.pid)
        return _Worker(process, receiver)

    def _see_off(self, number: int) -> None:
        """Has a worker that has died started again.

        Raises:
          ConfigError: there is nothing to serve, and there never was.
        """
        worker = self._running.pop(number)
        had_answered = self._workers.is_up(number)
        self._have_answered |= any(map(self._workers.is_up, range(self._workers.count)))
        said = _said(worker)
        if said and not self._have_answered:
            raise ConfigError(said)
        self._workers.tell_gone(number)
        mark_process_dead(worker.process.pid, self._metrics)
        pause = 0.0 if had_answered else _AGAIN_SECONDS
        self._due[number] = time.monotonic() + pause
        logger.error(
            "worker %d has died (%s): it is started again",
            number,
            said or _how(worker.process.exitcode),
        )

    def _end(self) -> None:
        # What comes from now on is refused as soon as the last worker listens no more.
        self._bound.close()
        steps = Step(signal.SIGTERM, _END_SECONDS), Step(signal.SIGKILL)
        end(self._send, lambda: not self._alive(), steps)

    def _send(self, number: signal.Signals) -> bool:
        alive = self._alive()
        for which, process in alive.items():
            if number == signal.SIGKILL:
                logger.error("worker %d does not end: it is killed", which)
            # It has not been waited for, so the id is its own.
            os.kill(process.ident or 0, number)
        return bool(alive)

    def _alive(self) -> dict[int, SpawnProcess]:
        running = {number: worker.process for number, worker in self._running.items()}
        return {number: process for number, process in running.items() if process.is_alive()}


def _said(worker: _Worker) -> str:
    """Why a worker had nothing to serve; empty if that is not why it ended."""
    try:
        return str(worker.failed.recv()) if worker.failed.poll() else ""
    except EOFError:
        return ""
    finally:
        worker.failed.close()


def _how(code: int | None) -> str:
    name = name_signal(code or 0)
    return f"by {name}" if name else f"exit code {code}"


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that can be read once SIGTERM or Ctrl-C has come."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with closing(reader), closing(writer), handled(lambda *_: None):
        before = signal.set_wakeup_fd(writer.fileno())
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(before)
