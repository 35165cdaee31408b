"""Follows the pods of a gang while its tasks run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from components.processes.kubernetes.api import KubernetesApi, ResourceKind, WatchEndedError
from components.processes.kubernetes.objects import LEASE_SECONDS, Gang
from components.processes.kubernetes.pod_state import PodState
from components.processes.kubernetes.pod_task import PodTask
from components.processes.launcher import ClusterTask

logger = logging.getLogger(__name__)

_EXTEND_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
"""The wait before pods are listed again, should each watch end at once."""


class PodWatch:
    """Shows every change of a gang's pods to its tasks, and extends the deadline of its Jobs."""

    def __init__(self, api: KubernetesApi) -> None:
        """Prepares to watch; `begin` starts the thread."""
        self._api = api
        self._tasks: list[PodTask] = []
        self._states: dict[str, PodState] = {}
        """By the pods' unique ids."""
        self._lock = threading.Lock()
        """Held while tasks are shown the pods."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        # Jobs count from when they are created, which is later: so none ends too early.
        self._began = self._extended = time.monotonic()

    def add(self, task: ClusterTask) -> PodTask:
        """A place for which a pod is awaited."""
        with self._lock:
            before = [t.state.uid for t in self._tasks if t.task == task and t.state]
            added = PodTask(self._api, task, frozenset(before), self._raise_error)
            # Its pod may be there already, where it takes the place of another.
            added.observe(self._states.values())
            self._tasks.append(added)
        return added

    def is_alive(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Begins to watch the pods of a gang, whose Jobs were just created.

        Args:
          gang: whose pods they are.
          kinds: the types of its tasks, each of which has a Job.
        """
        self._thread = threading.Thread(
            target=self._run, args=[gang, kinds], name="pods", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Shows no more changes.

        Its thread is not waited for: it ends when another pod changes, or the request is over.
        """
        with self._lock:
            self._stopped.set()
        for task in self._tasks:
            task.leave()

    def _raise_error(self) -> None:
        if self._error:
            raise self._error

    def _run(self, gang: Gang, kinds: Sequence[str]) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._watch(gang, kinds)
                except WatchEndedError as reason:
                    logger.debug("The pods are listed again: %s", reason)
                    self._stopped.wait(_PAUSE_SECONDS)
        except Exception as error:  # Whoever waits for the tasks raises it.
            self._error = error

    def _watch(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Lists the pods, then follows their changes.

        Raises:
          WatchEndedError: changes may have been missed.
        """
        pods, version = self._api.list(ResourceKind.POD, gang.selector)
        states = [PodState.of(pod) for pod in pods]
        self._show({state.uid: state for state in states})
        while not self._stopped.is_set():
            self._extend_jobs(gang, kinds)
            for change, pod in self._api.watch_pods(gang.selector, version):
                version = pod["metadata"]["resourceVersion"]
                state = PodState.of(pod)
                others = {uid: known for uid, known in self._states.items() if uid != state.uid}
                self._show(others if change == "DELETED" else {**others, state.uid: state})
                if self._stopped.is_set():
                    return
            # Tasks also notice what does not change for long.
            self._show(self._states)

    def _show(self, states: dict[str, PodState]) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            self._states = states
            for task in self._tasks:
                task.observe(states.values())

    def _extend_jobs(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Lets the Jobs live on, as their launcher does: should it be killed, they end."""
        now = time.monotonic()
        if self._stopped.is_set() or now - self._extended < _EXTEND_SECONDS:
            return
        self._extended = now
        deadline = {"spec": {"activeDeadlineSeconds": int(now - self._began) + LEASE_SECONDS}}
        for kind in kinds:
            self._api.patch_job(gang.job_name(kind), deadline)
