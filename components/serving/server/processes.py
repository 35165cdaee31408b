"""A server: its socket, and the process or the processes behind it.

With several workers a parent starts them, starts them again, and ends them together. uvicorn's own
`Multiprocess` (0.54) does less: its workers live on, and answer, when it is killed; one whose start
fails again ends all of them; one that does not end is waited for without end; and nobody is told
which of them are up.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from prometheus_client.multiprocess import mark_process_dead

from components.processes.ending import SERVER_GRACE_SECONDS, Step, end, name_signal
from components.processes.stopping import handled
from components.serving.server.options import ServeOptions
from components.serving.server.workers import SPAWN, WorkerPlace, Workers
from trainer_module.errors import ConfigError, ScopelineError
from trainer_module.scratch import ScratchFolder

logger = logging.getLogger(__name__)

_OTHER_FILES = 512
"""Connections that are refused, and what libraries and the model open."""
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client keeps the metrics of several processes; read when it is imported."""
_LOOKS_EVERY = 0.1
"""Seconds between two looks at signals and at the workers that are to be started again."""
_AGAIN_SECONDS = 5.0
"""After which a worker is started again that had never answered."""
_END_SECONDS = SERVER_GRACE_SECONDS + 5
"""In which workers have to end."""
_EXIT_UNUSABLE = 2
"""As the command line ends where no version can be served."""


def serve(options: ServeOptions) -> None:
    """Serves until a signal comes.

    Raises:
      ConfigError: the port is taken, so many connections cannot be had, or no version can be
        loaded, and none is waited for.
    """
    _log_as_json()
    _allow_files(options.connections)
    bound = _bind(options.host, options.port)
    if options.workers > 1:
        # Signals first: until then one ends the process, and nothing would delete the folder.
        signalled: list[int] = []
        with handled(lambda number, _: signalled.append(number)), ScratchFolder() as metrics:
            os.environ[METRICS_VARIABLE] = metrics
            try:
                Supervisor(options, bound, metrics).run(signalled)
            finally:
                del os.environ[METRICS_VARIABLE]
    else:
        from components.serving.server.answering import answer

        answer(options, bound)


def _allow_files(connections: int) -> None:
    """Has this process, and those that it starts, open as many files as there are connections."""
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(
            f"--connections {connections:,} takes {needed:,} open files, of which `ulimit -Hn`"
            f" allows {hard:,}: give at most {hard - _OTHER_FILES:,}."
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _bind(host: str, port: int) -> socket.socket:
    """Returns a socket that has the port; it listens when a version answers."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"--port {port} at {host} cannot be had ({error.strerror}): give another one."
        ) from None
    return bound


class _JsonFormatter(logging.Formatter):
    """A line of JSON for each message, with the number of this process among several."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._worker,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log_as_json(worker: int | None = None) -> None:
    """Logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(worker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.WARNING)


def work(
    options: ServeOptions, bound: socket.socket, place: WorkerPlace, failed: Connection
) -> None:
    """Answers as one of several until a signal comes, or the parent process is gone.

    Args:
      options: checked.
      bound: the socket that all workers share.
      place: of this one among them.
      failed: takes the sentence that says why there is nothing to serve.
    """
    _log_as_json(place.number)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    # The parent process imports this module as well, and does without what answers.
    from components.serving.server.answering import answer

    try:
        answer(options, bound, place)
    except ScopelineError as error:
        failed.send(str(error))
        sys.exit(_EXIT_UNUSABLE)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


@dataclass(frozen=True)
class _Worker:
    """A process, and where it says why it had nothing to serve.

    Each has a pipe of its own: one that is killed while it writes leaves others theirs.
    """

    process: SpawnProcess
    failed: Connection

    def said(self) -> str:
        """Why it had nothing to serve; empty if that is not why it ended."""
        try:
            return str(self.failed.recv()) if self.failed.poll() else ""
        except (EOFError, OSError):  # It said nothing, or was killed meanwhile.
            return ""
        finally:
            self.failed.close()


class Supervisor:
    """The parent of several workers."""

    def __init__(self, options: ServeOptions, bound: socket.socket, metrics: str) -> None:
        """Starts nothing yet.

        Args:
          options: checked.
          bound: the socket of all workers.
          metrics: the folder of their metrics.
        """
        self._options, self._bound, self._metrics = options, bound, metrics
        self._workers = Workers(options.workers)
        self._running: dict[int, _Worker] = {}
        self._due = dict.fromkeys(range(options.workers), 0.0)
        """When workers are to be started, by their number."""
        self._have_answered = False

    def run(self, signalled: list[int]) -> None:
        """Returns after a signal, when all workers have ended.

        Args:
          signalled: is not empty any more once a signal has come.

        Raises:
          ConfigError: there is nothing to serve, and there never was.
        """
        try:
            while not signalled:
                self.start_due()
                wait([one.process.sentinel for one in self._running.values()], _LOOKS_EVERY)
                for number, worker in list(self._running.items()):
                    if not worker.process.is_alive():
                        self._see_off(number, worker)
        finally:
            self._end()

    def start_due(self) -> None:
        """Starts the workers that it is time for."""
        for number in [n for n, when in self._due.items() if when <= time.monotonic()]:
            try:
                self._running[number] = self._start(number)
            except OSError as error:  # There is no memory or no process left just now.
                if not self._have_answered:
                    raise
                self._due[number] = time.monotonic() + _AGAIN_SECONDS
                logger.error("worker %d cannot be started yet: %s", number, error)
            else:
                del self._due[number]

    def _start(self, number: int) -> _Worker:
        failed, sender = SPAWN.Pipe(duplex=False)
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
        return _Worker(process, failed)

    def _see_off(self, number: int, worker: _Worker) -> None:
        """Has a worker that has died started again."""
        del self._running[number]
        process, had_answered = worker.process, self._workers.is_up(number)
        self._have_answered |= any(map(self._workers.is_up, range(self._options.workers)))
        said = worker.said()
        if said and not self._have_answered:
            raise ConfigError(said)
        if not said:
            name = name_signal(process.exitcode or 0)
            said = f"by {name}" if name else f"exit code {process.exitcode}"
        self._workers.tell_gone(number)
        mark_process_dead(process.pid, self._metrics)
        self._due[number] = time.monotonic() + (0.0 if had_answered else _AGAIN_SECONDS)
        logger.error("worker %d has died (%s): it is started again", number, said)

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
