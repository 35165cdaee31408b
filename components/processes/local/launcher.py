"""A launcher whose workers are processes on this machine."""

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

_OUTPUT_SECONDS = 5.0
"""The timeout for the rest of the output of a worker that has ended."""


class LocalLauncher:
    """A launcher that starts each worker in a process group of its own.

    The workers do not outlive this process.
    """

    def __init__(self, server: ForkServer | None = None, computing: int = 1) -> None:
        """Creates the launcher, and starts no worker yet.

        Args:
          server: the server that forks the processes, or None to start new interpreters.
          computing: the number of workers that share this machine's cores. `allocate` changes this
            number.
        """
        self._server = server
        self._workers: list[LocalWorker] = []
        self._computing = computing
        self._shows_names = False
        self._scratch: ScratchFolder | None = None
        """The folder for temporary files of the workers. Workers do not delete their files."""

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Returns addresses with free ports on this machine."""
        self._computing = max(1, sum(place.type == "worker" for place in places))
        self._shows_names = len(places) > 1
        cluster: Cluster = {}
        for place, port in zip(places, free_ports(len(places)), strict=True):
            cluster.setdefault(place.type, []).append(f"{LOCALHOST}:{port}")
        return cluster

    def start(self, spec: WorkerSpec) -> LocalWorker:
        """Starts a worker. The calling thread must outlive the worker."""
        prefix = f"[{spec.place.name}] " if self._shows_names else ""
        self._scratch = self._scratch or ScratchFolder(lasting_folder())
        environment = {
            **worker_environment(self._computing),
            TMPDIR: self._scratch.name,
            **spec.environment,
        }
        worker = LocalWorker(spec, environment, prefix, self._start_process)
        self._workers.append(worker)
        return worker

    def stop_all(self, grace_seconds: float = 0.0) -> None:
        """Kills every worker that was started, and returns when they have ended.

        Args:
          grace_seconds: the seconds within which workers may end by themselves.
        """
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline and any(w.poll() is None for w in self._workers):
            time.sleep(POLL_SECONDS)
        while self._workers:
            self._workers[-1].kill()
            self._workers.pop()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _start_process(self, start: ProcessStart) -> ChildProcess:
        if self._server is not None:
            try:
                return self._server.start(start)
            except OSError as error:
                logger.warning(
                    "%s cannot be forked (%s), and starts in a new interpreter", start.name, error
                )
        return FreshProcess(start)


def run_one(spec: WorkerSpec, retries: int = 0) -> list[str]:
    """Runs a single worker in a process on this machine, and returns when the worker has ended.

    If this process has a fork server, the worker is forked, which saves the time of its imports.

    Args:
      retries: the most restarts of a worker that was killed.

    Returns:
      A sentence for each restart.

    Raises:
      ScopelineError: the worker raised this error, which the user can fix.
      OverdueError: the worker exceeded its time limit.
      WorkerFailedError: the worker failed for another reason.
    """
    return Supervisor(LocalLauncher(current_server()), ClusterJob([spec], retries=retries)).run()


class LocalWorker:
    """A worker in a process on this machine, which implements `RunningWorker`."""

    def __init__(
        self,
        spec: WorkerSpec,
        environment: Mapping[str, str],
        prefix: str,
        start_process: Callable[[ProcessStart], ChildProcess],
    ) -> None:
        """Starts the process of the worker.

        Args:
          environment: the complete environment.
          prefix: the beginning of each line of the worker's output in the output of this process.
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
        self.begin_time = time.monotonic()
        self._copier = threading.Thread(
            target=self._copy_output, args=[prefix.encode()], daemon=True
        )
        self._copier.start()
        # `poll` reports a worker that dies before it has read the payload.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(dict(spec.payload)).encode() + b"\n")
            self._stdin.flush()

    def poll(self) -> int | None:
        """Returns the status of a worker that has ended, or None while it runs."""
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
        """Returns an empty string, as the system reports only the status of a process."""
        return ""

    def kill(self) -> None:
        """Kills the worker and all processes that it started, and returns when they have ended."""
        self._process.kill_group()
        # If the process had already ended, closing its input ends the other processes of its group.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._process.wait()
        self._copier.join(_OUTPUT_SECONDS)
        self._events.close()

    def _copy_output(self, prefix: bytes) -> None:
        """Copies the worker's output to the standard error of this process."""
        with self._output as output:
            for line in output:
                line = line.rstrip(b"\n")
                self._tail.append(line.decode(errors="replace"))
                with contextlib.suppress(OSError):
                    os.write(2, prefix + line + b"\n")


def _open_pipe(buffering: int = -1) -> tuple[IO[bytes], IO[bytes]]:
    """Returns the reading end and the writing end of a pipe."""
    reading, writing = os.pipe()
    return open(reading, "rb", buffering), open(writing, "wb")
