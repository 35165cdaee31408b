"""A launcher whose workers are processes of this machine."""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from components.processes.ending import POLL_SECONDS
from components.processes.launcher import TAIL_LINES, Cluster, Place, WorkerEvent, WorkerSpec
from components.processes.local.fork_server import ForkServer, current_server
from components.processes.local.process import (
    LOCALHOST,
    ChildProcess,
    FreshProcess,
    ProcessStart,
    worker_environment,
)
from components.processes.ports import free_ports
from components.processes.supervisor import ClusterJob, Supervisor
from trainer_module.scratch import TMPDIR, ScratchFolder, lasting_folder

logger = logging.getLogger(__name__)

_PUMP_SECONDS = 5.0


class LocalLauncher:
    """Starts each worker in a process group of its own that does not outlive this process."""

    def __init__(self, server: ForkServer | None = None, computing: int = 1) -> None:
        """Creates the launcher without starting a worker.

        Args:
          server: the server that forks the processes; None starts new interpreters.
          computing: the number of workers that share this machine's cores, unless `allocate` sets
            it.
        """
        self._server = server
        self._workers: list[LocalWorker] = []
        self._computing = computing
        self._shows_names = False
        self._room: ScratchFolder | None = None
        """The folder for temporary files of the workers, which do not delete them."""

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Returns addresses with free ports of this machine."""
        self._computing = max(1, sum(place.type == "worker" for place in places))
        self._shows_names = len(places) > 1
        cluster: Cluster = {}
        for place, port in zip(places, free_ports(len(places)), strict=True):
            cluster.setdefault(place.type, []).append(f"{LOCALHOST}:{port}")
        return cluster

    def start(self, spec: WorkerSpec) -> LocalWorker:
        """Starts a worker; the calling thread must outlive it."""
        prefix = f"[{spec.place.name}] " if self._shows_names else ""
        self._room = self._room or ScratchFolder(lasting_folder())
        environment = {
            **worker_environment(self._computing),
            TMPDIR: self._room.name,
            **spec.environment,
        }
        worker = LocalWorker(spec, environment, prefix, self._start_process)
        self._workers.append(worker)
        return worker

    def stop_all(self, within: float = 0.0) -> None:
        """Kills every worker that was started, and returns when they have ended.

        Args:
          within: the grace period in seconds in which they may end by themselves.
        """
        latest = time.monotonic() + within
        while time.monotonic() < latest and any(w.poll() is None for w in self._workers):
            time.sleep(POLL_SECONDS)
        while self._workers:
            self._workers[-1].kill()
            self._workers.pop()
        if self._room is not None:
            self._room.cleanup()
            self._room = None

    def _start_process(self, start: ProcessStart) -> ChildProcess:
        if self._server is not None:
            try:
                return self._server.start(start)
            except OSError as error:
                logger.warning(
                    "%s cannot be forked (%s); it starts in a new interpreter", start.name, error
                )
        return FreshProcess(start)


def run_one(spec: WorkerSpec, retries: int = 0) -> list[str]:
    """Runs a worker without peers to its end, in a process of this machine.

    The process is forked if this one has a fork server, which saves the time of its imports.

    Args:
      spec: the worker and its limits.
      retries: the number of retries after the worker was killed.

    Returns:
      A sentence for each retry.

    Raises:
      ScopelineError: the worker raised it.
      OverdueError: the worker exceeded its time limit.
      WorkerFailedError: the worker failed otherwise.
    """
    return Supervisor(LocalLauncher(current_server()), ClusterJob([spec], retries=retries)).run()


class LocalWorker:
    """A worker in a process of this machine; implements `RunningWorker`."""

    def __init__(
        self,
        spec: WorkerSpec,
        environment: Mapping[str, str],
        prefix: str,
        start_process: Callable[[ProcessStart], ChildProcess],
    ) -> None:
        """Starts the process of the worker.

        Args:
          spec: the worker.
          environment: the complete environment.
          prefix: the beginning of each line of its output.
          start_process: starts a process.
        """
        stdin, self._stdin = _open_pipe()
        self._output, output = _open_pipe()
        self._events, events = _open_pipe(buffering=0)
        os.set_blocking(self._events.fileno(), False)
        self._unread = b""
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        with stdin, output, events:
            self._process = start_process(
                ProcessStart(
                    module=spec.module,
                    name=spec.place.name,
                    environment=environment,
                    stdin=stdin.fileno(),
                    output=output.fileno(),
                    events=events.fileno(),
                )
            )
        self.began = time.monotonic()
        self._pump = threading.Thread(target=self._copy_output, args=[prefix.encode()], daemon=True)
        self._pump.start()
        # `poll` reports a worker that dies before it has read the payload.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(dict(spec.payload)).encode() + b"\n")
            self._stdin.flush()

    def poll(self) -> int | None:
        """Returns the exit status, or minus the signal that ended the worker; None while it
        runs.
        """
        return self._process.poll()

    def events(self) -> list[WorkerEvent]:
        """Returns the worker's events since the last call."""
        while chunk := self._events.read(65536):
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        return [WorkerEvent(**json.loads(line)) for line in lines]

    def log_tail(self) -> list[str]:
        """Returns the last lines of the worker's output."""
        return list(self._tail)

    def remark(self) -> str:
        """Returns an empty text, as the system reports no reason beside the status."""
        return ""

    def kill(self) -> None:
        """Kills the worker and all processes that it started, and returns when they have ended."""
        self._process.kill_group()
        # Closing the input ends the rest of the group of a process that had already ended.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._process.wait()
        self._pump.join(_PUMP_SECONDS)
        self._events.close()

    def _copy_output(self, prefix: bytes) -> None:
        """Copies the worker's output to the current standard error of this process."""
        with self._output as output:
            for line in output:
                line = line.rstrip(b"\n")
                self._tail.append(line.decode(errors="replace"))
                with contextlib.suppress(OSError):
                    os.write(2, prefix + line + b"\n")


def _open_pipe(buffering: int = -1) -> tuple[IO[bytes], IO[bytes]]:
    """Returns the reading end of a pipe, with a buffer of the given size, and the writing end."""
    reading, writing = os.pipe()
    return open(reading, "rb", buffering), open(writing, "wb")
