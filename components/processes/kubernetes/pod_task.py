"""A task that runs in a pod."""

from __future__ import annotations

import collections
import logging
import signal
import time
from collections.abc import Callable, Iterable

from components.processes.failures import describe
from components.processes.kubernetes.api import KubernetesApi, ResourceKind
from components.processes.kubernetes.pod_log import PodLog
from components.processes.kubernetes.pod_state import PodState
from components.processes.launcher import ClusterTask, TaskEvent
from trainer_module.errors import ConfigError

logger = logging.getLogger(__name__)

STUCK_SECONDS = 60.0
"""How long a pod may be unable to start for a reason that seldom goes away by itself."""
LOST_SECONDS = 60.0
"""How long a pod that was told to end may seem to run: its node may be gone."""
_LOG_SECONDS = 15.0
"""How long the rest of a log may take once the container has ended."""
_GONE_SECONDS = 60.0
_POLL_SECONDS = 0.1


class PodTask:
    """One pod, from before it is there; see `RunningTask`."""

    def __init__(
        self,
        api: KubernetesApi,
        task: ClusterTask,
        others: frozenset[str],
        check: Callable[[], None],
    ) -> None:
        """Waits for the pod of a task.

        Args:
          api: where the pod is read and deleted.
          task: which place it has.
          others: unique ids of pods that had this place before.
          check: raises the error because of which the pods are watched no more.
        """
        self.task = task
        self.began: float | None = None
        self.state: PodState | None = None
        """As it was last seen."""
        self._api = api
        self._others = others
        self._check = check
        self._log: PodLog | None = None
        self._own_events: collections.deque[TaskEvent] = collections.deque()
        self._lost_remark = ""
        self._is_over = False
        self._ended: float | None = None
        self._stuck: float | None = None
        self._deleted: float | None = None

    def observe(self, states: Iterable[PodState]) -> None:
        """Takes the states of all pods of the gang; calls must not overlap."""
        mine = [s for s in states if (s.kind, s.index) == (self.task.type, self.task.index)]
        if self.state is None:
            new = [s for s in mine if s.uid not in self._others and not s.is_deleted]
            self.state = min(new, key=lambda state: state.created, default=None)
        else:
            uid = self.state.uid
            found = next((state for state in mine if state.uid == uid), None)
            if found is None:
                self._mark_lost(f"pod {self.state.name} was deleted")
            else:
                self.state = found
        if self.state is not None:
            self._notice(self.state)

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs.

        Raises:
          ScopelineError: its pod or its log cannot be looked at any more.
        """
        self._check()
        if self._log and self._log.error:
            raise self._log.error
        status = self._status()
        self._is_over = status is not None and self._log_is_complete()
        return status if self._is_over else None

    def events(self) -> list[TaskEvent]:
        """Its events since the last call."""
        queues = [self._own_events, *([self._log.events] if self._log else [])]
        events = [queue.popleft() for queue in queues for _ in range(len(queue))]
        # The log may be lost with the container; a task that ends with 0 is done all the same.
        if self._is_over and self._status() == 0:
            events.append(TaskEvent("done"))
        return events

    def log_tail(self) -> list[str]:
        """The last lines of its output."""
        return self._log.tail if self._log else []

    def remark(self) -> str:
        """What keeps it from starting, or why it ended."""
        if self._lost_remark:
            return self._lost_remark
        return self.state.remark if self.state else "no pod was created for it"

    def kill(self) -> None:
        """Deletes its pod, and returns when it has ended."""
        if self.state is not None:
            self._api.delete(ResourceKind.POD, self.state.name)
        deadline = time.monotonic() + _GONE_SECONDS
        while self.state is not None and self._status() is None:
            self._check()
            if time.monotonic() > deadline:
                logger.warning("Pod %s does not end; its node may be lost.", self.state.name)
                break
            time.sleep(_POLL_SECONDS)
        self.leave()

    def leave(self) -> None:
        """Reads its log no further."""
        if self._log:
            self._log.stop()

    def _status(self) -> int | None:
        if self.state is not None and self.state.status is not None:
            return self.state.status
        return -signal.SIGKILL if self._lost_remark else None

    def _mark_lost(self, why: str) -> None:
        if self._status() is None:
            self._lost_remark = why

    def _log_is_complete(self) -> bool:
        """Whether the whole log was read, or the rest has not come for `_LOG_SECONDS`."""
        if self._log is None:
            # A container that has begun has a log, which is about to be read.
            return self.state is None or not self.state.has_begun
        if not self._log.is_alive():
            return True
        return self._ended is not None and time.monotonic() - self._ended > _LOG_SECONDS

    def _notice(self, state: PodState) -> None:
        """Starts to read the log as soon as there is one, and notices what takes too long."""
        now = time.monotonic()
        if state.has_begun and self._log is None:
            self.began = now
            log = PodLog(
                self._api, state.name, f"[{self.task.name}] ", lambda: self._status() is not None
            )
            log.start()
            self._log = log
        if self._status() is not None:
            self._ended = self._ended or now
        elif state.is_deleted:
            self._deleted = self._deleted or now
            if now - self._deleted > LOST_SECONDS:
                self._mark_lost(f"pod {state.name} was told to end, but its node does not answer")
        self._stuck = (self._stuck or now) if state.is_stuck else None
        if self._stuck and (state.is_hopeless or now - self._stuck > STUCK_SECONDS):
            self._report_stuck(state)

    def _report_stuck(self, state: PodState) -> None:
        if not self._own_events:
            error = ConfigError(f"{self.task.name} cannot start: {state.remark}")
            self._own_events.append(TaskEvent("error", describe(error)))
