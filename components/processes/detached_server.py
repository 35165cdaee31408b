"""Starts servers that outlive this process, once they are ready."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import psutil

from components.processes.launcher import TAIL_LINES, Cluster, ClusterTask
from components.processes.local.environment import (
    INTEROP_THREADS,
    share_machine,
    task_environment,
)
from components.processes.ports import answers
from trainer_module.errors import InternalError
from trainer_module.tf_config import TFConfig

MODULE = "components.processes.server"
"""What a server runs."""
_POLL_SECONDS = 0.05


class DetachedServer:
    """A server that ends with this process until it is released."""

    def __init__(
        self, task: ClusterTask, cluster: Cluster, folder: Path, model: str | None = None
    ) -> None:
        """Starts it.

        Args:
          task: its place in the cluster.
          cluster: all addresses.
          folder: for its output.
          model: import path of a builder that it imports, if any.

        Raises:
          OSError: its output cannot be written.
        """
        self.task = task
        self.address = cluster[task.type][task.index]
        self.log = folder / f"{task.name.replace(' ', '-')}.log"
        place = json.dumps(TFConfig(cluster, task.type, task.index).to_json())
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                # -P: the folder that it starts in hides no module that this process finds.
                [sys.executable, "-P", "-m", MODULE, place, *([model] if model else [])],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(len(cluster["worker"])),
                # Neither Ctrl-C nor the end of the terminal reaches it.
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.created = psutil.Process(self.pid).create_time()
        """Seconds since the epoch."""

    def release(self) -> None:
        """Lets it outlive this process."""
        # One that has died meanwhile is found when someone asks how the cluster is.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(b".")
            self._stdin.close()

    def kill(self) -> None:
        """Ends it, and returns when it is gone."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        return self._process.stdin

    def check(self) -> None:
        """Raises InternalError if it has ended."""
        status = self._process.poll()
        if status is not None:
            how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            raise self.failure(f"ended early, {how}")

    def failure(self, what: str) -> InternalError:
        """The error that says what happened to it, with its last words."""
        with self.log.open(errors="replace") as file:
            tail = "".join(deque(file, TAIL_LINES)).rstrip()
        return InternalError(f"{self.task.name} {what}; the end of {self.log}:\n{tail}")


def await_ready(
    servers: Sequence[DetachedServer], limit: float, say: Callable[[str], None]
) -> None:
    """Waits until all servers answer.

    Args:
      servers: just started.
      limit: seconds.
      say: is told of each that is ready.

    Raises:
      InternalError: one ended, or was not ready in time.
    """
    began = time.monotonic()
    waiting = list(servers)
    while waiting:
        time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - began
        for server in servers:
            server.check()
        for server in [server for server in waiting if answers(server.address)]:
            waiting.remove(server)
            say(f"{server.task.name} is ready at {server.address} ({seconds:.1f} s)")
        if waiting and seconds > limit:
            raise waiting[0].failure(f"was not ready within {limit:g} s")


def _environment(workers: int) -> dict[str, str]:
    threads = share_machine(workers)
    # Even where all else is asked to use one: a server with one would wait for ever.
    return {**threads, **task_environment(workers), INTEROP_THREADS: threads[INTEROP_THREADS]}
