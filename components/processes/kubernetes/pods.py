"""The pods of a gang: how they are, the worker in each, and the watch over all."""

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
"""How long a pod may be unable to start for a reason that seldom goes away by itself."""
LOST_SECONDS = 60.0
"""How long a pod that was told to end may seem to run: its node may be gone."""
_LOG_SECONDS = 15.0
"""How long the rest of a log may take once the container has ended."""
_GONE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_EXTEND_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
"""The wait before pods are listed again, should each watch end at once."""

_LOST = -signal.SIGKILL
"""The status of a container that something else ended, whatever its exit code is."""
_HOPELESS = {"InvalidImageName", "ErrImageNeverPull"}
_STUCK = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
}
_PLAIN_REASONS = {"", "Error", "Completed"}


@dataclass(frozen=True)
class PodState:
    """A pod at one moment."""

    uid: str
    name: str
    kind: str
    """The type of its worker."""
    index: int
    created: str
    is_deleted: bool
    """Whether it was told to end."""
    has_begun: bool
    """Whether its container has: it has a log then."""
    status: int | None
    """The exit status, or minus the signal that ended it; None while it runs."""
    remark: str
    """What keeps it from starting, or why it ended; empty if there is nothing to say."""
    is_stuck: bool
    """Whether what keeps it from starting seldom goes away by itself."""
    is_hopeless: bool
    """Whether what keeps it from starting cannot go away by itself."""

    @classmethod
    def of(cls, pod: Object) -> PodState:
        """Reads a pod as the API describes it."""
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
            remark=remark if code is not None else _obstacle(metadata["name"], status, waiting),
            is_stuck=reason in _STUCK | _HOPELESS,
            is_hopeless=reason in _HOPELESS,
        )


def _container(status: Object) -> Object:
    found = (c for c in status.get("containerStatuses", []) if c["name"] == CONTAINER)
    return next(found, {})


def _ending(pod: Object, container: Object) -> tuple[int | None, str]:
    """Returns the exit status and what is known of it; no status while the pod may go on."""
    status = pod.get("status", {})
    ended = container.get("state", {}).get("terminated")
    if not ended and status.get("phase") not in ("Failed", "Succeeded"):
        return None, ""
    if lost := _loss(status):
        return _LOST, f"pod {pod['metadata']['name']} was lost ({lost})"
    if not ended:
        return _LOST, f"pod {pod['metadata']['name']} ended before its container began"
    reason, message = ended.get("reason", ""), ended.get("message", "")
    if reason == "OOMKilled":
        return _LOST, f"out of memory (OOMKilled; {_memory_limit(pod)})"
    remark = "" if reason in _PLAIN_REASONS else _join(reason, message)
    return _as_signal(ended["exitCode"]), remark


def _loss(status: Object) -> str:
    """Why the pod was taken away, if it was."""
    for condition in status.get("conditions", []):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            reason = _join(condition.get("reason", ""), condition.get("message", ""))
            return _join(status.get("reason", ""), status.get("message", "")) or reason
    # These are the pod's, not the container's: Evicted, NodeShutdown, UnexpectedAdmissionError.
    return _join(status.get("reason", ""), status.get("message", ""))


def _memory_limit(pod: Object) -> str:
    for container in pod["spec"]["containers"]:
        limit = container.get("resources", {}).get("limits", {}).get("memory")
        if container["name"] == CONTAINER and limit:
            return f"its limit is {limit}"
    return "it has no limit of its own"


def _as_signal(code: int) -> int:
    """Returns a shell's or a container runtime's exit code: 137 is SIGKILL."""
    return 128 - code if code - 128 in set(signal.Signals) else code


def _obstacle(name: str, status: Object, waiting: Object) -> str:
    """What keeps a pod from starting."""
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
    """One line of a reason and a message."""
    message = " ".join(message.split())
    return ": ".join(part for part in (reason, message) if part)


class PodWorker:
    """One pod, from before it is there; see `RunningWorker`."""

    def __init__(
        self,
        api: KubernetesApi,
        place: Place,
        others: frozenset[str],
        check: Callable[[], None],
    ) -> None:
        """Waits for the pod of a worker.

        Args:
          api: where the pod is read and deleted.
          place: of the worker.
          others: unique ids of pods that had this place before.
          check: raises the error because of which the pods are watched no more.
        """
        self.place = place
        self.began: float | None = None
        self.state: PodState | None = None
        """As it was last seen."""
        self._api = api
        self._others = others
        self._check = check
        self._log: PodLog | None = None
        self._own_events: collections.deque[WorkerEvent] = collections.deque()
        self._lost_remark = ""
        self._is_over = False
        self._ended: float | None = None
        self._stuck: float | None = None
        self._deleted: float | None = None

    def observe(self, states: Iterable[PodState]) -> None:
        """Takes the states of all pods of the gang; calls must not overlap."""
        mine = [s for s in states if (s.kind, s.index) == (self.place.type, self.place.index)]
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
        """Returns the exit status, or minus the signal that ended it; None while it runs.

        Raises:
          ScopelineError: its pod or its log cannot be looked at any more.
        """
        self._check()
        if self._log and self._log.error:
            raise self._log.error
        status = self._status()
        self._is_over = status is not None and self._log_is_complete()
        return status if self._is_over else None

    def events(self) -> list[WorkerEvent]:
        """Its events since the last call."""
        queues = [self._own_events, *([self._log.events] if self._log else [])]
        events = [queue.popleft() for queue in queues for _ in range(len(queue))]
        # The log may be lost with the container; a worker that ends with 0 is done all the same.
        if self._is_over and self._status() == 0:
            events.append(WorkerEvent("done"))
        return events

    def log_tail(self) -> list[str]:
        """Returns the last lines of its output."""
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
        """Returns whether the whole log was read, or the rest has not come for `_LOG_SECONDS`."""
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
                self._api, state.name, f"[{self.place.name}] ", lambda: self._status() is not None
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
            error = ConfigError(f"{self.place.name} cannot start: {state.remark}")
            self._own_events.append(WorkerEvent("error", describe(error)))


class PodWatch:
    """Shows every change of a gang's pods to its workers, and extends the deadline of its Jobs."""

    def __init__(self, api: KubernetesApi) -> None:
        """Prepares to watch; `begin` starts the thread."""
        self._api = api
        self._workers: list[PodWorker] = []
        self._states: dict[str, PodState] = {}
        """By the pods' unique ids."""
        self._lock = threading.Lock()
        """Held while workers are shown the pods."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        # Jobs count from when they are created, which is later: so none ends too early.
        self._began = self._extended = time.monotonic()

    def add(self, place: Place) -> PodWorker:
        """Returns a place for which a pod is awaited."""
        with self._lock:
            before = [t.state.uid for t in self._workers if t.place == place and t.state]
            added = PodWorker(self._api, place, frozenset(before), self._raise_error)
            # Its pod may be there already, where it takes the place of another.
            added.observe(self._states.values())
            self._workers.append(added)
        return added

    def is_alive(self) -> bool:
        """Returns whether it has begun, and not ended."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Begins to watch the pods of a gang, whose Jobs were just created.

        Args:
          gang: whose pods they are.
          kinds: the types of its workers, each of which has a Job.
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
        for worker in self._workers:
            worker.leave()

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
        except Exception as error:  # Whoever waits for the workers raises it.
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
            # Workers also notice what does not change for long.
            self._show(self._states)

    def _show(self, states: dict[str, PodState]) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            self._states = states
            for worker in self._workers:
                worker.observe(states.values())

    def _extend_jobs(self, gang: Gang, kinds: Sequence[str]) -> None:
        """Lets the Jobs live on, as their launcher does: should it be killed, they end."""
        now = time.monotonic()
        if self._stopped.is_set() or now - self._extended < _EXTEND_SECONDS:
            return
        self._extended = now
        deadline = {"spec": {"activeDeadlineSeconds": int(now - self._began) + LEASE_SECONDS}}
        for kind in kinds:
            self._api.patch_job(gang.job_name(kind), deadline)
