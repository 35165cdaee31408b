"""Starts tasks as processes of this machine."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from components.trainer.cluster.launcher import Cluster, ClusterTask, TaskEvent, TaskSpec
from components.trainer.cluster.ports import free_ports
from trainer_module.tf_config import VARIABLE

TAIL_LINES = 30
"""Lines of a task's output that are kept for error messages."""
_HOST = "localhost"
_PUMP_SECONDS = 5.0
INTEROP_THREADS = "TF_NUM_INTEROP_THREADS"


class LocalLauncher:
    """Starts each task in a process group of its own, that does not outlive this process."""

    def __init__(self) -> None:
        self._tasks: list[LocalTask] = []
        self._computing = 1
        self._shows_names = False

    def allocate(self, tasks: Sequence[ClusterTask]) -> Cluster:
        """Free ports of this machine."""
        self._computing = max(1, sum(task.type == "worker" for task in tasks))
        self._shows_names = len(tasks) > 1
        cluster: Cluster = {}
        for task, port in zip(tasks, free_ports(len(tasks)), strict=True):
            cluster.setdefault(task.type, []).append(f"{_HOST}:{port}")
        return cluster

    def start(self, spec: TaskSpec) -> LocalTask:
        """Starts a task; the thread that calls this must outlive it."""
        prefix = f"[{spec.task.name}] " if self._shows_names else ""
        environment = {**task_environment(self._computing), **spec.environment}
        task = LocalTask(spec, environment, prefix)
        self._tasks.append(task)
        return task

    def stop_all(self) -> None:
        """Kills every task that was started, and returns when they are gone."""
        while self._tasks:
            self._tasks[-1].kill()
            self._tasks.pop()


def task_environment(computing: int) -> dict[str, str]:
    """What a task on this machine gets of this process's environment.

    Args:
      computing: tasks that compute on this machine's cores at the same time.
    """
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    environment["no_grpc_proxy"] = without_proxy(environment, [_HOST])
    if computing == 1:
        return environment
    shared = share_machine(computing)
    # Too few threads between operations are no choice, but a deadlock.
    return {**shared, **environment, INTEROP_THREADS: shared[INTEROP_THREADS]}


def without_proxy(environment: Mapping[str, str], hosts: Sequence[str]) -> str:
    """The value of `no_grpc_proxy` with which gRPC asks no proxy for the way to some hosts."""
    direct = environment.get("no_grpc_proxy") or environment.get("no_proxy")
    return ",".join([*([direct] if direct else []), *hosts])


def share_machine(processes: int) -> dict[str, str]:
    """TensorFlow's settings for each of several processes that compute on this machine."""
    share = max(1, len(os.sched_getaffinity(0)) // processes)
    # Threads between operations also wait for other processes: with one, the workers of parameter
    # servers wait for ever; TensorFlow's guide asks for one more than there are workers.
    between = max(processes + 1, share)
    return {
        "TF_NUM_INTRAOP_THREADS": str(share),
        "OMP_NUM_THREADS": str(share),
        INTEROP_THREADS: str(between),
        # Else the first process takes all memory of a GPU.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


class LocalTask:
    """A task in a process of this machine; see `RunningTask`."""

    def __init__(self, spec: TaskSpec, environment: Mapping[str, str], prefix: str) -> None:
        """Starts it.

        Args:
          spec: what to start.
          environment: all of its environment.
          prefix: begins each line of its output.
        """
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self._events = open(reading, "rb", buffering=0)  # noqa: SIM115 - until it is killed
        self._unread = b""
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        try:
            self._process = subprocess.Popen(
                # -P: the folder that it starts in hides no module that this process finds.
                # The name is for whoever looks at the list of processes.
                [
                    *(sys.executable, "-P", "-m", spec.module),
                    *(str(os.getpid()), str(writing), spec.task.name),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[writing],
                start_new_session=True,
            )
        finally:
            os.close(writing)
        self.began = time.monotonic()
        self._pump = threading.Thread(target=self._copy_output, args=[prefix.encode()], daemon=True)
        self._pump.start()
        # Whoever dies before it has read everything is found by its exit status.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(dict(spec.payload)).encode() + b"\n")
            self._stdin.flush()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        return self._process.stdin

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    def events(self) -> list[TaskEvent]:
        """What it said since the last call."""
        while chunk := self._events.read(65536):
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        return [TaskEvent(**json.loads(line)) for line in lines]

    def log_tail(self) -> list[str]:
        """The last lines of its output."""
        return list(self._tail)

    def remark(self) -> str:
        """Nothing: the exit status is all that is known."""
        return ""

    def kill(self) -> None:
        """Ends it, with every process that it started, and returns when it is gone."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        # The end of its input ends what is left of the group of a process that ended by itself.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._process.wait()
        self._pump.join(_PUMP_SECONDS)
        self._events.close()

    def _copy_output(self, prefix: bytes) -> None:
        """Copies the output to this process's own standard error, wherever that leads by then."""
        output = self._process.stdout
        assert output is not None  # noqa: S101 - for the type checker
        with output:
            for line in output:
                line = line.rstrip(b"\n")
                self._tail.append(line.decode(errors="replace"))
                with contextlib.suppress(OSError):
                    os.write(2, prefix + line + b"\n")
