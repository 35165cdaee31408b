"""The process or processes of a server, and their socket.

If the server has several workers, a parent process starts, restarts and stops them. uvicorn's own
`Multiprocess` (0.54) is not used, for four reasons:

- Its workers continue to serve after their parent was killed.
- A worker that repeatedly fails to start ends all other workers.
- The parent waits forever for a worker that does not end.
- Workers have no information on the other workers.
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
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from prometheus_client.multiprocess import mark_process_dead

from components.processes.ending import SERVER_GRACE_SECONDS, Step, end, name_signal
from components.processes.stopping import handle_signals
from components.serving.server.options import ServeOptions
from components.serving.server.workers import SPAWN, Workers, WorkerSlot
from trainer_module.errors import ConfigError, ScopelineError
from trainer_module.scratch import ScratchFolder

logger = logging.getLogger(__name__)

_OTHER_FILES = 512
"""The number of open files that are not connections of clients: refused connections, libraries and
the model."""
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which prometheus_client shares the metrics of several
processes. prometheus_client reads the variable when it is imported."""
_POLL_SECONDS = 0.1
"""The seconds between two checks for signals and for workers to restart."""
_RESTART_SECONDS = 5.0
"""The pause in seconds before the restart of a worker that died before it was running."""
_END_SECONDS = SERVER_GRACE_SECONDS + 5
"""The seconds within which workers have to exit."""
_EXIT_UNUSABLE = 2
"""The exit code of a worker that can serve no version, as on the command line."""


def serve(options: ServeOptions, on_bound: Callable[[str], None] | None = None) -> None:
    """Runs the server until a signal is received.

    Args:
      on_bound: called with the address when the port is known. The server answers later.

    Raises:
      ConfigError: the port is taken, the limit of open files is too low for the connections, or no
        version can be loaded and the server may not wait for the first version.
    """
    _log_as_json()
    _allow_files(options.connections)
    bound = _bind(options.host, options.port)
    if on_bound is not None:
        on_bound(f"{options.scheme}://{options.host}:{bound.getsockname()[1]}")
    if options.workers > 1:
        # The handlers are set first: without them, a signal would end the process without deleting
        # the folder.
        signals: list[int] = []
        with handle_signals(lambda number, _: signals.append(number)), ScratchFolder() as metrics:
            os.environ[METRICS_VARIABLE] = metrics
            try:
                Supervisor(options, bound, metrics).run(signals)
            finally:
                del os.environ[METRICS_VARIABLE]
    else:
        from components.serving.server.worker import run_server

        run_server(options, bound)


def _allow_files(connections: int) -> None:
    """Raises the limit of open files of this process and its children to fit the connections."""
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
    """Returns a socket bound to the port. The socket does not listen before the server starts."""
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
    """Configures logging as lines of JSON on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(worker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.WARNING)


def work(options: ServeOptions, bound: socket.socket, slot: WorkerSlot, errors: Connection) -> None:
    """Runs a worker until a signal is received or the parent process has died.

    Args:
      bound: the socket that all workers share.
      errors: the pipe for the error message if no version can be served.
    """
    _log_as_json(slot.number)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    # The import is here, as the parent process imports this module but not the application.
    from components.serving.server.worker import run_server

    try:
        run_server(options, bound, slot)
    except ScopelineError as error:
        errors.send(str(error))
        sys.exit(_EXIT_UNUSABLE)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


@dataclass(frozen=True)
class _Worker:
    """A worker process, with the pipe of its error message.

    Each worker has its own pipe, so that a worker that is killed while writing to the pipe does not
    affect the other workers.
    """

    process: SpawnProcess
    errors: Connection

    def error_message(self) -> str:
        """Returns the message of a worker that could serve no version, or else an empty string."""
        try:
            return str(self.errors.recv()) if self.errors.poll() else ""
        except (EOFError, OSError):  # The worker sent no message, or was killed while sending.
            return ""
        finally:
            self.errors.close()


class Supervisor:
    """The parent process of several workers, which starts, restarts and stops them."""

    def __init__(self, options: ServeOptions, bound: socket.socket, metrics: str) -> None:
        self._options, self._bound, self._metrics = options, bound, metrics
        self._workers = Workers(options.workers)
        self._running: dict[int, _Worker] = {}
        self._start_times = dict.fromkeys(range(options.workers), 0.0)
        """The start times of the workers that have to be started, by number."""
        self._has_run = False
        """Whether a worker has ever run."""

    def run(self, signals: list[int]) -> None:
        """Runs the workers until a signal is received, and returns when all workers have exited.

        Args:
          signals: the received signals. A signal handler appends to this list.

        Raises:
          ConfigError: no version can be served, and no worker has ever run.
        """
        try:
            while not signals:
                self.start_due()
                sentinels = [worker.process.sentinel for worker in self._running.values()]
                wait(sentinels, _POLL_SECONDS)
                for number, worker in list(self._running.items()):
                    if not worker.process.is_alive():
                        self._schedule_restart(number, worker)
        finally:
            self._end()

    def start_due(self) -> None:
        """Starts the workers whose start time has come."""
        for number in [n for n, at in self._start_times.items() if at <= time.monotonic()]:
            try:
                self._running[number] = self._start(number)
            except OSError as error:  # The system is short of memory or processes.
                if not self._has_run:
                    raise
                self._start_times[number] = time.monotonic() + _RESTART_SECONDS
                logger.error("worker %d cannot be started yet: %s", number, error)
            else:
                del self._start_times[number]

    def _start(self, number: int) -> _Worker:
        errors, sender = SPAWN.Pipe(duplex=False)
        arguments = (self._options, self._bound, WorkerSlot(self._workers, number), sender)
        process = SPAWN.Process(target=work, args=arguments, name=f"worker {number}")
        # A worker ignores Ctrl-C, which a terminal sends to all processes. The parent ends workers
        # by SIGTERM.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
            sender.close()
        logger.info("worker %d is started (process %d)", number, process.pid)
        return _Worker(process, errors)

    def _schedule_restart(self, number: int, worker: _Worker) -> None:
        """Schedules the restart of a worker that has died."""
        del self._running[number]
        process, was_running = worker.process, self._workers.is_running(number)
        self._has_run |= any(map(self._workers.is_running, range(self._options.workers)))
        reason = worker.error_message()
        if reason and not self._has_run:
            raise ConfigError(reason)
        if not reason:
            name = name_signal(process.exitcode or 0)
            reason = f"killed by {name}" if name else f"exit code {process.exitcode}"
        self._workers.report_exit(number)
        mark_process_dead(process.pid, self._metrics)
        self._start_times[number] = time.monotonic() + (0.0 if was_running else _RESTART_SECONDS)
        logger.error("worker %d has died (%s) and is restarted", number, reason)

    def _end(self) -> None:
        # New connections are refused as soon as no worker listens any more.
        self._bound.close()
        steps = Step(signal.SIGTERM, _END_SECONDS), Step(signal.SIGKILL)
        end(self._send, lambda: not self._alive(), steps)

    def _send(self, number: signal.Signals) -> bool:
        alive = self._alive()
        for worker, process in alive.items():
            if number == signal.SIGKILL:
                logger.error("worker %d does not end and is killed", worker)
            # The process has not been reaped, so no other process can have its id.
            os.kill(process.ident or 0, number)
        return bool(alive)

    def _alive(self) -> dict[int, SpawnProcess]:
        running = {number: worker.process for number, worker in self._running.items()}
        return {number: process for number, process in running.items() if process.is_alive()}
