"""The pods of a gang: their states, their workers, and the thread that watches the pods."""

from __future__ import annotations

import collections
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from components.processes.failures import describe
from components.processes.kubernetes.api import KubernetesApi, ResourceKind, WatchEndedError
from components.processes.kubernetes.objects import (
    CONTAINER,
    INDEX_ANNOTATION,
    LEASE_SECONDS,
    TYPE_LABEL,
    Gang,
)
from components.processes.kubernetes.pod_log import PodLog
from components.processes.launcher import Place, WorkerEvent
from trainer_module.errors import ConfigError

logger = logging.getLogger(__name__)

Object = dict[str, Any]

STUCK_SECONDS = 60.0
"""The time after which a pod counts as unable to start, if the reason is seldom temporary."""
LOST_SECONDS = 60.0
"""The time after which a deleted pod that still seems to run counts as lost with its node."""
_LOG_SECONDS = 15.0
"""The time for the rest of a log to arrive after the container has ended."""
_DELETION_SECONDS = 60.0
_POLL_SECONDS = 0.1
_EXTEND_SECONDS = 60.0
"""The interval at which the deadlines of the Jobs are extended."""
_PAUSE_SECONDS = 1.0
"""The pause before pods are listed again after a watch has ended."""

_LOST = -signal.SIGKILL
"""The status of a container that did not end by itself. Its exit code is ignored."""
_PERMANENT_REASONS = {"InvalidImageName", "ErrImageNeverPull"}
_STUCK_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
}
_PLAIN_REASONS = {"", "Error", "Completed"}


@dataclass(frozen=True)
class PodState:
    """The state of a pod at one moment."""

    uid: str
    name: str
    kind: str
    """The type of the pod's worker."""
    index: int
    created: str
    is_deleted: bool
    """Whether the pod's deletion was requested."""
    has_begun: bool
    """Whether the container has started and therefore has a log."""
    status: int | None
    """The exit status, or minus the number of the signal that ended the container. None while it
    runs."""
    remark: str
    """The reason why the pod does not start, or why it ended, or an empty string."""
    is_stuck: bool
    """Whether the pod does not start for a reason that is seldom temporary."""
    is_hopeless: bool
    """Whether the pod does not start for a permanent reason."""

    @classmethod
    def of(cls, pod: Object) -> PodState:
        """Returns the state of a pod from its description by the API."""
        metadata, status = pod["metadata"], pod.get("status", {})
        container = _container(status)
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        code, remark = _ending(pod, container)
        return cls(
            uid=metadata["uid"],
            name=metadata["name"],
            kind=metadata.get("labels", {}).get(TYPE_LABEL, ""),
            index=int(metadata.get("annotations", {}).get(INDEX_ANNOTATION, -1)),
            created=metadata.get("creationTimestamp", ""),
            is_deleted="deletionTimestamp" in metadata,
            has_begun=any(key in container.get("state", {}) for key in ("running", "terminated")),
            status=code,
            remark=remark
            if code is not None
            else _start_obstacle(metadata["name"], status, waiting),
            is_stuck=reason in _STUCK_REASONS | _PERMANENT_REASONS,
            is_hopeless=reason in _PERMANENT_REASONS,
        )


def _container(status: Object) -> Object:
    statuses = (c for c in status.get("containerStatuses", []) if c["name"] == CONTAINER)
    return next(statuses, {})


def _ending(pod: Object, container: Object) -> tuple[int | None, str]:
    """Returns the exit status of a pod that has ended, and the reason of its end.

    The status is None while the pod may continue.
    """
    status = pod.get("status", {})
    end_state = container.get("state", {}).get("terminated")
    if not end_state and status.get("phase") not in ("Failed", "Succeeded"):
        return None, ""
    if loss := _loss(status):
        return _LOST, f"pod {pod['metadata']['name']} was lost ({loss})"
    if not end_state:
        return _LOST, f"pod {pod['metadata']['name']} ended before its container began"
    reason, message = end_state.get("reason", ""), end_state.get("message", "")
    if reason == "OOMKilled":
        return _LOST, f"out of memory (OOMKilled; {_memory_limit(pod)})"
    remark = "" if reason in _PLAIN_REASONS else _join(reason, message)
    return _as_signal(end_state["exitCode"]), remark


def _loss(status: Object) -> str:
    """Returns the reason why a pod was evicted or lost, or an empty string for other ends."""
    for condition in status.get("conditions", []):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            reason = _join(condition.get("reason", ""), condition.get("message", ""))
            return _join(status.get("reason", ""), status.get("message", "")) or reason
    # The pod's reasons, such as Evicted, NodeShutdown or UnexpectedAdmissionError.
    return _join(status.get("reason", ""), status.get("message", ""))


def _memory_limit(pod: Object) -> str:
    for container in pod["spec"]["containers"]:
        limit = container.get("resources", {}).get("limits", {}).get("memory")
        if container["name"] == CONTAINER and limit:
            return f"its limit is {limit}"
    return "the container has no memory limit of its own"


def _as_signal(code: int) -> int:
    """Returns an exit code, or minus the number of a signal.

    Container runtimes and shells add 128 to the number of a signal, such as 137 for SIGKILL.
    """
    return 128 - code if code - 128 in set(signal.Signals) else code


def _start_obstacle(name: str, status: Object, waiting: Object) -> str:
    """Returns the reason why a pod does not start, or an empty string."""
    if waiting.get("reason", "") not in ("", "ContainerCreating", "PodInitializing"):
        return f"pod {name}: {_join(waiting['reason'], waiting.get('message', ''))}"
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            reason = _join(condition.get("reason", ""), condition.get("message", ""))
            return f"pod {name}: {reason}"
    if status.get("phase") == "Pending":
        return f"pod {name} is being created"
    return ""


def _join(reason: str, message: str) -> str:
    """Returns a reason and a message on one line."""
    message = " ".join(message.split())
    return ": ".join(part for part in (reason, message) if part)


class PodWorker:
    """A worker in a pod, which may not exist yet. The class implements `RunningWorker`."""

    def __init__(
        self,
        api: KubernetesApi,
        place: Place,
        earlier_pods: frozenset[str],
        check_watch: Callable[[], None],
    ) -> None:
        """Creates the worker, whose pod does not exist yet.

        Args:
          earlier_pods: the unique ids of pods that had this place before.
          check_watch: raises the error that has ended the watch of the pods, if it has ended.
        """
        self.place = place
        self.begin_time: float | None = None
        self.state: PodState | None = None
        """The last observed state of the pod."""
        self._api = api
        self._earlier_pods = earlier_pods
        self._check_watch = check_watch
        self._log: PodLog | None = None
        self._own_events: collections.deque[WorkerEvent] = collections.deque()
        """The events that do not come from the log."""
        self._lost_remark = ""
        """The reason why the pod is lost, or an empty string."""
        self._has_ended = False
        """Whether the pod has ended and its log was read."""
        self._end_time: float | None = None
        self._stuck_since: float | None = None
        self._deletion_time: float | None = None

    def observe(self, states: Iterable[PodState]) -> None:
        """Updates the state from the states of all pods of the gang. Calls must not overlap."""
        candidates = [s for s in states if (s.kind, s.index) == (self.place.type, self.place.index)]
        if self.state is None:
            new = [s for s in candidates if s.uid not in self._earlier_pods and not s.is_deleted]
            self.state = min(new, key=lambda state: state.created, default=None)
        else:
            uid = self.state.uid
            current = next((state for state in candidates if state.uid == uid), None)
            if current is None:
                self._mark_lost(f"pod {self.state.name} was deleted")
            else:
                self.state = current
        if self.state is not None:
            self._notice(self.state)

    def poll(self) -> int | None:
        """Returns the status of a worker that has ended, or None while it runs.

        Raises:
          ScopelineError: the pod or its log can no longer be read.
        """
        self._check_watch()
        if self._log and self._log.error:
            raise self._log.error
        status = self._status()
        self._has_ended = status is not None and self._log_is_complete()
        return status if self._has_ended else None

    def events(self) -> list[WorkerEvent]:
        """Returns the worker's events since the last call."""
        queues = [self._own_events, *([self._log.events] if self._log else [])]
        events = [queue.popleft() for queue in queues for _ in range(len(queue))]
        # A worker with exit status 0 is done even if its log was lost with the container.
        if self._has_ended and self._status() == 0:
            events.append(WorkerEvent("done"))
        return events

    def log_tail(self) -> list[str]:
        """Returns the last lines of the worker's output."""
        return self._log.tail if self._log else []

    def remark(self) -> str:
        """Returns the reason why the worker does not start, or why it ended."""
        if self._lost_remark:
            return self._lost_remark
        return self.state.remark if self.state else "its pod has not been created"

    def kill(self) -> None:
        """Deletes the worker's pod, and returns when the pod has ended."""
        if self.state is not None:
            self._api.delete(ResourceKind.POD, self.state.name)
        deadline = time.monotonic() + _DELETION_SECONDS
        while self.state is not None and self._status() is None:
            self._check_watch()
            if time.monotonic() > deadline:
                logger.warning(
                    "pod %s does not end, perhaps because its node is lost", self.state.name
                )
                break
            time.sleep(_POLL_SECONDS)
        self.stop_log()

    def stop_log(self) -> None:
        """Stops reading the worker's log."""
        if self._log:
            self._log.stop()

    def _status(self) -> int | None:
        if self.state is not None and self.state.status is not None:
            return self.state.status
        return -signal.SIGKILL if self._lost_remark else None

    def _mark_lost(self, reason: str) -> None:
        if self._status() is None:
            self._lost_remark = reason

    def _log_is_complete(self) -> bool:
        """Returns whether the whole log was read, or is not awaited any longer."""
        if self._log is None:
            # If the container has begun, its log will be read.
            return self.state is None or not self.state.has_begun
        if not self._log.is_alive():
            return True
        return self._end_time is not None and time.monotonic() - self._end_time > _LOG_SECONDS

    def _notice(self, state: PodState) -> None:
        """Starts to read the log as soon as it exists, and checks the time limits."""
        now = time.monotonic()
        if state.has_begun and self._log is None:
            self.begin_time = now
            log = PodLog(
                self._api, state.name, f"[{self.place.name}] ", lambda: self._status() is not None
            )
            log.start()
            self._log = log
        if self._status() is not None:
            self._end_time = self._end_time or now
        elif state.is_deleted:
            self._deletion_time = self._deletion_time or now
            if now - self._deletion_time > LOST_SECONDS:
                self._mark_lost(f"pod {state.name} is being deleted, but its node does not respond")
        self._stuck_since = (self._stuck_since or now) if state.is_stuck else None
        if self._stuck_since and (state.is_hopeless or now - self._stuck_since > STUCK_SECONDS):
            self._report_stuck(state)

    def _report_stuck(self, state: PodState) -> None:
        if not self._own_events:
            error = ConfigError(f"{self.place.name} cannot start: {state.remark}")
            self._own_events.append(WorkerEvent("error", describe(error)))


class PodWatch:
    """A thread that passes the states of a gang's pods to the gang's workers.

    The thread also extends the deadlines of the Jobs.
    """

    def __init__(self, api: KubernetesApi) -> None:
        """Creates the watch. `begin` starts the thread."""
        self._api = api
        self._workers: list[PodWorker] = []
        self._states: dict[str, PodState] = {}
        self._lock = threading.Lock()
        """A lock that is held while workers observe the pods."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        # The Jobs are created later, so that their deadlines are not earlier than computed here.
        self._start = self._last_extension = time.monotonic()

    def add(self, place: Place) -> PodWorker:
        """Returns a new worker at a place. Its pod may be created later."""
        with self._lock:
            earlier = [w.state.uid for w in self._workers if w.place == place and w.state]
            worker = PodWorker(self._api, place, frozenset(earlier), self._raise_error)
            # If the worker replaces another worker, its pod may exist already.
            worker.observe(self._states.values())
            self._workers.append(worker)
        return worker

    def is_alive(self) -> bool:
        """Returns whether the thread has begun and not ended."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Starts to watch the pods of a gang, whose Jobs were just created.

        Args:
          kinds: the types of the gang's workers. Each type has a Job.
        """
        self._thread = threading.Thread(
            target=self._run, args=[gang, kinds], name="pods", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Stops passing states to the workers.

        This does not wait for the thread, which ends with the next change or the end of its
        request.
        """
        with self._lock:
            self._stopped.set()
        for worker in self._workers:
            worker.stop_log()

    def _raise_error(self) -> None:
        if self._error:
            raise self._error

    def _run(self, gang: Gang, kinds: Sequence[str]) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._watch(gang, kinds)
                except WatchEndedError as reason:
                    logger.debug("Listing the pods again: %s", reason)
                    self._stopped.wait(_PAUSE_SECONDS)
        except Exception as error:  # The thread that polls the workers raises the error again.
            self._error = error

    def _watch(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Lists the pods, and then watches their changes.

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
                others = {uid: other for uid, other in self._states.items() if uid != state.uid}
                self._show(others if change == "DELETED" else {**others, state.uid: state})
                if self._stopped.is_set():
                    return
            # The workers also check for how long a state has lasted.
            self._show(self._states)

    def _show(self, states: dict[str, PodState]) -> None:
        """Stores the states, and passes them to the workers."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._states = states
            for worker in self._workers:
                worker.observe(states.values())

    def _extend_jobs(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Extends the deadlines of the Jobs.

        If the launcher is killed, the deadlines are not extended, and the Jobs end.
        """
        now = time.monotonic()
        if self._stopped.is_set() or now - self._last_extension < _EXTEND_SECONDS:
            return
        self._last_extension = now
        deadline = {"spec": {"activeDeadlineSeconds": int(now - self._start) + LEASE_SECONDS}}
        for kind in kinds:
            self._api.patch_job(gang.job_name(kind), deadline)
