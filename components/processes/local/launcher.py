"""Starts tasks as processes of this machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from components.processes.launcher import Cluster, ClusterTask, TaskSpec
from components.processes.local.environment import LOCALHOST, task_environment
from components.processes.local.fork_server import ForkServer
from components.processes.local.process import FreshProcess, ProcessStart, TaskProcess
from components.processes.local.task import LocalTask
from components.processes.ports import free_ports
from trainer_module.scratch import TMPDIR, ScratchFolder, lasting_folder

logger = logging.getLogger(__name__)


class LocalLauncher:
    """Starts each task in a process group of its own, that does not outlive this process."""

    def __init__(self, server: ForkServer | None = None, computing: int = 1) -> None:
        """Has nothing started yet.

        Args:
          server: forks the processes, if there is one; else each is a fresh interpreter.
          computing: tasks that share this machine's cores, where no cluster says it.
        """
        self._server = server
        self._tasks: list[LocalTask] = []
        self._computing = computing
        self._shows_names = False
        self._room: ScratchFolder | None = None
        """For the temporary files of its tasks, which delete none as they end."""

    def allocate(self, tasks: Sequence[ClusterTask]) -> Cluster:
        """Free ports of this machine."""
        self._computing = max(1, sum(task.type == "worker" for task in tasks))
        self._shows_names = len(tasks) > 1
        cluster: Cluster = {}
        for task, port in zip(tasks, free_ports(len(tasks)), strict=True):
            cluster.setdefault(task.type, []).append(f"{LOCALHOST}:{port}")
        return cluster

    def start(self, spec: TaskSpec) -> LocalTask:
        """Starts a task; the thread that calls this must outlive it."""
        prefix = f"[{spec.task.name}] " if self._shows_names else ""
        self._room = self._room or ScratchFolder(lasting_folder())
        environment = {
            **task_environment(self._computing),
            TMPDIR: self._room.name,
            **spec.environment,
        }
        task = LocalTask(spec, environment, prefix, self._start_process)
        self._tasks.append(task)
        return task

    def stop_all(self) -> None:
        """Kills every task that was started, and returns when they are gone."""
        while self._tasks:
            self._tasks[-1].kill()
            self._tasks.pop()
        if self._room is not None:
            self._room.cleanup()
            self._room = None

    def _start_process(self, start: ProcessStart) -> TaskProcess:
        if self._server is not None:
            try:
                return self._server.start(start)
            except OSError as error:
                logger.warning("%s cannot be forked (%s); it starts afresh", start.name, error)
        return FreshProcess(start)
