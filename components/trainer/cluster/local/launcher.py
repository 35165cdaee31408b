"""Starts tasks as processes of this machine."""

from __future__ import annotations

from collections.abc import Sequence

from components.trainer.cluster.launcher import Cluster, ClusterTask, TaskSpec
from components.trainer.cluster.local.environment import LOCALHOST, task_environment
from components.trainer.cluster.local.process import FreshProcess
from components.trainer.cluster.local.task import LocalTask
from components.trainer.cluster.ports import free_ports


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
            cluster.setdefault(task.type, []).append(f"{LOCALHOST}:{port}")
        return cluster

    def start(self, spec: TaskSpec) -> LocalTask:
        """Starts a task; the thread that calls this must outlive it."""
        prefix = f"[{spec.task.name}] " if self._shows_names else ""
        environment = {**task_environment(self._computing), **spec.environment}
        task = LocalTask(spec, environment, prefix, FreshProcess)
        self._tasks.append(task)
        return task

    def stop_all(self) -> None:
        """Kills every task that was started, and returns when they are gone."""
        while self._tasks:
            self._tasks[-1].kill()
            self._tasks.pop()
