"""Starts workers as processes of this machine."""

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

from components.processes.ending import LOOKS_EVERY
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
    """Starts each worker in a process group of its own, that does not outlive this process."""

    def __init__(self, server: ForkServer | None = None, computing: int = 1) -> None:
        """Has nothing started yet.

        Args:
          server: forks the processes, if there is one; else each is a fresh interpreter.
          computing: workers that share this machine's cores, where no cluster says it.
        """
        self._server = server
        self._workers: list[LocalWorker] = []
        self._computing = computing
        self._shows_names = False
        self._room: ScratchFolder | None = None
        """For the temporary files of its workers, which delete none as they end."""

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Free ports of this machine."""
        self._computing = max(1, sum(place.type == "worker" for place in places))
        self._shows_names = len(places) > 1
        cluster: Cluster = {}
        for place, port in zip(places, free_ports(len(places)), strict=True):
            cluster.setdefault(place.type, []).append(f"{LOCALHOST}:{port}")
        return cluster

    def start(self, spec: WorkerSpec) -> LocalWorker:
        """Starts a worker; the thread that calls this must outlive it."""
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
        """Kills every worker that was started, and returns when they are gone.

        Args:
          within: seconds in which they may end by themselves.
        """
        latest = time.monotonic() + within
        while time.monotonic() < latest and any(w.poll() is None for w in self._workers):
            time.sleep(LOOKS_EVERY)
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
                logger.warning("%s cannot be forked (%s); it starts afresh", start.name, error)
        return FreshProcess(start)


def run_one(spec: WorkerSpec, retries: int = 0) -> list[str]:
    """Runs a worker without peers to its end, in a process of this machine.

    The process is forked where this one has a fork server, so that its imports cost nothing.

    Args:
      spec: what to run, and what it may take.
      retries: how often it may be started again where it was killed.

    Returns:
      A sentence for each time that it was started again.

    Raises:
      ScopelineError: as the worker raised it.
      OverdueError: it took longer than its limit.
      WorkerFailedError: it failed otherwise.
    """
    return Supervisor(LocalLauncher(current_server()), ClusterJob([spec], retries=retries)).run()


class LocalWorker:
    """See `RunningWorker`."""

    def __init__(
        self,
        spec: WorkerSpec,
        environment: Mapping[str, str],
        prefix: str,
        start_process: Callable[[ProcessStart], ChildProcess],
    ) -> None:
        """Starts it.

        Args:
          spec: what to start.
          environment: all of its environment.
          prefix: begins each line of its output.
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
        # Whoever dies before it has read everything is found by its exit status.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(dict(spec.payload)).encode() + b"\n")
            self._stdin.flush()

    def poll(self) -> int | None:
        """Returns the exit status, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    def events(self) -> list[WorkerEvent]:
        """What it said since the last call."""
        while chunk := self._events.read(65536):
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        return [WorkerEvent(**json.loads(line)) for line in lines]

    def log_tail(self) -> list[str]:
        """Returns the last lines of its output."""
        return list(self._tail)

    def remark(self) -> str:
        """Nothing: the system says no more than how it ended."""
        return ""

    def kill(self) -> None:
        """Ends it, with every process that it started, and returns when it is gone."""
        self._process.kill_group()
        # The end of its input ends what is left of the group of a process that ended by itself.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._process.wait()
        self._pump.join(_PUMP_SECONDS)
        self._events.close()

    def _copy_output(self, prefix: bytes) -> None:
        """Copies the output to this process's own standard error, wherever that leads by then."""
        with self._output as output:
            for line in output:
                line = line.rstrip(b"\n")
                self._tail.append(line.decode(errors="replace"))
                with contextlib.suppress(OSError):
                    os.write(2, prefix + line + b"\n")


def _open_pipe(buffering: int = -1) -> tuple[IO[bytes], IO[bytes]]:
    """Returns the reading end of a pipe, with a buffer of that size, and the writing end."""
    reading, writing = os.pipe()
    return open(reading, "rb", buffering), open(writing, "wb")
