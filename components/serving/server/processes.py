"""The process or processes of a server, and their socket.

With several workers, a parent process starts, restarts and stops them. uvicorn's `Multiprocess`
(0.54) lacks some of this: its workers survive a killed parent and continue to serve; a worker that
repeatedly fails to start ends all others; a worker that does not end is awaited forever; and
workers have no information on the other workers.
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
"""The number of open files besides connections: refused connections, libraries and the model."""
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with prometheus_client's folder for metrics of several processes; read
when prometheus_client is imported."""
_POLL_SECONDS = 0.1
"""The seconds between two checks for signals and for workers to restart."""
_RESTART_SECONDS = 5.0
"""The pause in seconds before restarting a worker that died before it answered."""
_END_SECONDS = SERVER_GRACE_SECONDS + 5
"""The seconds within which workers have to exit."""
_EXIT_UNUSABLE = 2
"""The exit code if no version can be served, as on the command line."""


def serve(options: ServeOptions) -> None:
    """Runs the server until a signal is received.

    Raises:
      ConfigError: the port is taken, the limit of open files is too low for the connections, or no
        version can be loaded, unless the server may wait for the first one.
    """
    _log_as_json()
    _allow_files(options.connections)
    bound = _bind(options.host, options.port)
    if options.workers > 1:
        # Handlers come first: a signal before would end the process without deleting the folder.
        signalled: list[int] = []
        with handled(lambda number, _: signalled.append(number)), ScratchFolder() as metrics:
            os.environ[METRICS_VARIABLE] = metrics
            try:
                Supervisor(options, bound, metrics).run(signalled)
            finally:
                del os.environ[METRICS_VARIABLE]
    else:
        from components.serving.server.worker import run_server

        run_server(options, bound)


def _allow_files(connections: int) -> None:
    """Raises the limit of open files, for this process and its children, to fit the connections."""
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(
            f"--connections {connections:,} needs {needed:,} open files, but `ulimit -Hn`"
            f" allows {hard:,}: give at most {hard - _OTHER_FILES:,}."
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _bind(host: str, port: int) -> socket.socket:
    """Returns a socket bound to the port; it listens only when the server starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"--port {port} is not available on {host} ({error.strerror}): give another port."
        ) from None
    return bound


class _JsonFormatter(logging.Formatter):
    """A formatter that writes a line of JSON for each message, with the number of the worker."""

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
    """Sets up logging in JSON to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(worker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.WARNING)


def work(
    options: ServeOptions, bound: socket.socket, place: WorkerPlace, failed: Connection
) -> None:
    """Runs a worker until a signal is received or the parent process has died.

    Args:
      options: the checked options.
      bound: the socket that all workers share.
      place: the place of this worker among all.
      failed: the pipe for the message if there is nothing to serve.
    """
    _log_as_json(place.number)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    # Imported here, as the parent process needs this module but not the application.
    from components.serving.server.worker import run_server

    try:
        run_server(options, bound, place)
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
    """A worker process, with the pipe of its error message.

    Each worker has its own pipe, so that a worker killed while writing does not affect others.
    """

    process: SpawnProcess
    failed: Connection

    def error_message(self) -> str:
        """Returns the message of a worker without a version to serve; empty for other exits."""
        try:
            return str(self.failed.recv()) if self.failed.poll() else ""
        except (EOFError, OSError):  # The worker sent no message, or was killed meanwhile.
            return ""
        finally:
            self.failed.close()


class Supervisor:
    """The parent of several workers, which restarts and stops them."""

    def __init__(self, options: ServeOptions, bound: socket.socket, metrics: str) -> None:
        """Creates the supervisor; workers are started later.

        Args:
          options: the checked options.
          bound: the socket of all workers.
          metrics: the folder of the workers' metrics.
        """
        self._options, self._bound, self._metrics = options, bound, metrics
        self._workers = Workers(options.workers)
        self._running: dict[int, _Worker] = {}
        self._due = dict.fromkeys(range(options.workers), 0.0)
        """The start times of workers that are to be started, by number."""
        self._have_answered = False

    def run(self, signalled: list[int]) -> None:
        """Runs the workers until a signal, and returns when all have exited.

        Args:
          signalled: a list that a signal handler appends to.

        Raises:
          ConfigError: there is nothing to serve, and no worker has ever answered.
        """
        try:
            while not signalled:
                self.start_due()
                wait([one.process.sentinel for one in self._running.values()], _POLL_SECONDS)
                for number, worker in list(self._running.items()):
                    if not worker.process.is_alive():
                        self._schedule_restart(number, worker)
        finally:
            self._end()

    def start_due(self) -> None:
        """Starts the workers whose start time has come."""
        for number in [n for n, when in self._due.items() if when <= time.monotonic()]:
            try:
                self._running[number] = self._start(number)
            except OSError as error:  # The system is short of memory or processes.
                if not self._have_answered:
                    raise
                self._due[number] = time.monotonic() + _RESTART_SECONDS
                logger.error("worker %d cannot be started yet: %s", number, error)
            else:
                del self._due[number]

    def _start(self, number: int) -> _Worker:
        failed, sender = SPAWN.Pipe(duplex=False)
        arguments = (self._options, self._bound, WorkerPlace(self._workers, number), sender)
        process = SPAWN.Process(target=work, args=arguments, name=f"worker {number}")
        # Ctrl-C reaches all processes of a terminal; workers end by the parent's SIGTERM.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
            sender.close()
        logger.info("worker %d is started (process %d)", number, process.pid)
        return _Worker(process, failed)

    def _schedule_restart(self, number: int, worker: _Worker) -> None:
        """Schedules the restart of a worker that has died."""
        del self._running[number]
        process, had_answered = worker.process, self._workers.is_running(number)
        self._have_answered |= any(map(self._workers.is_running, range(self._options.workers)))
        said = worker.error_message()
        if said and not self._have_answered:
            raise ConfigError(said)
        if not said:
            name = name_signal(process.exitcode or 0)
            said = f"killed by {name}" if name else f"exit code {process.exitcode}"
        self._workers.report_exit(number)
        mark_process_dead(process.pid, self._metrics)
        self._due[number] = time.monotonic() + (0.0 if had_answered else _RESTART_SECONDS)
        logger.error("worker %d has died (%s) and is restarted", number, said)

    def _end(self) -> None:
        # New connections are refused once the last worker has stopped listening.
        self._bound.close()
        steps = Step(signal.SIGTERM, _END_SECONDS), Step(signal.SIGKILL)
        end(self._send, lambda: not self._alive(), steps)

    def _send(self, number: signal.Signals) -> bool:
        alive = self._alive()
        for which, process in alive.items():
            if number == signal.SIGKILL:
                logger.error("worker %d does not end and is killed", which)
            # The process is not reaped yet, so its id cannot have been reused.
            os.kill(process.ident or 0, number)
        return bool(alive)

    def _alive(self) -> dict[int, SpawnProcess]:
        running = {number: worker.process for number, worker in self._running.items()}
        return {number: process for number, process in running.items() if process.is_alive()}
