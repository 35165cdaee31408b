"""The pods of a gang: how each is, and the worker in it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from components.processes.ending import LOOKS_EVERY
from components.processes.kubernetes.api import KubernetesApi, ResourceKind
from components.processes.kubernetes.objects import CONTAINER, INDEX_ANNOTATION, TYPE_LABEL
from components.processes.kubernetes.pod_log import PodLog
from components.processes.launcher import Place, WorkerEvent
from trainer_module.errors import ConfigError

Object = dict[str, Any]

STUCK_SECONDS = 60.0
"""How long a pod may be unable to start for a reason that seldom goes away by itself."""
GONE_SECONDS = 60.0
"""How long a pod that was told to end may seem to run: its node may be gone."""
_LOG_SECONDS = 15.0
"""How long the rest of a log may take once the container has ended."""
_LOST = -signal.SIGKILL
"""The status of a container that something else ended, whatever its exit code is."""
_STUCK = {
    "InvalidImageName",
    "ErrImageNeverPull",
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
    is_deleted: bool
    """Whether it was told to end."""
    has_begun: bool
    """Whether its container has: it has a log then."""
    status: int | None
    """The exit status, or minus the signal that ended it; None while it runs."""
    remark: str
    """What keeps it from starting, or why it ends; empty if there is nothing to say."""
    is_stuck: bool
    """Whether what keeps it from starting seldom goes away by itself."""

    @classmethod
    def of(cls, pod: Object) -> PodState:
        """Reads a pod as the API describes it."""
        metadata, status = pod["metadata"], pod.get("status", {})
        containers = status.get("containerStatuses", [])
        states = (c.get("state", {}) for c in containers if c["name"] == CONTAINER)
        container: Object = next(states, {})
        code, remark = _ending(pod, container)
        return cls(
            uid=metadata["uid"],
            name=metadata["name"],
            kind=metadata.get("labels", {}).get(TYPE_LABEL, ""),
            index=int(metadata.get("annotations", {}).get(INDEX_ANNOTATION, -1)),
            is_deleted="deletionTimestamp" in metadata,
            has_begun="running" in container or "terminated" in container,
            status=code,
            remark=remark or _obstacle(metadata["name"], status, container.get("waiting", {})),
            is_stuck=container.get("waiting", {}).get("reason") in _STUCK,
        )


def _ending(pod: Object, container: Object) -> tuple[int | None, str]:
    """The exit status and what is known of it; no status while the pod may go on."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    ended = container.get("terminated")
    lost = _loss(status)
    remark = f"pod {name} was lost ({lost})" if lost else ""
    if not ended and status.get("phase") not in ("Failed", "Succeeded"):
        return None, remark
    if lost or not ended:
        return _LOST, remark or f"pod {name} ended before its container began"
    reason, message = ended.get("reason", ""), ended.get("message", "")
    if reason == "OOMKilled":
        return _LOST, f"out of memory (OOMKilled; {_memory_limit(pod)})"
    remark = "" if reason in _PLAIN_REASONS else _join(reason, message)
    return _as_signal(ended["exitCode"]), remark


def _loss(status: Object) -> str:
    """Why the pod was taken away, if it was."""
    # These are the pod's, not the container's: Evicted, NodeShutdown, UnexpectedAdmissionError.
    if own := _join(status.get("reason", ""), status.get("message", "")):
        return own
    for condition in status.get("conditions", []):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return _join(condition.get("reason", ""), condition.get("message", ""))
    return ""


def _memory_limit(pod: Object) -> str:
    for container in pod["spec"]["containers"]:
        limit = container.get("resources", {}).get("limits", {}).get("memory")
        if container["name"] == CONTAINER and limit:
            return f"its limit is {limit}"
    return "it has no limit of its own"


def _as_signal(code: int) -> int:
    """A shell's or a container runtime's exit code: 137 is SIGKILL."""
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
        look: Callable[[], Mapping[str, PodState]],
        taken: set[str],
    ) -> None:
        """Waits for the pod of a worker.

        Args:
          api: where the pod is read and deleted.
          place: of the worker.
          look: returns all pods of the gang, by their unique ids.
          taken: unique ids of the pods that are a worker's already; that of this one is added.
        """
        self._place = place
        self.began: float | None = None
        self._state: PodState | None = None
        self._api = api
        self._look = look
        self._taken = taken
        self._log: PodLog | None = None
        self._ended: float | None = None
        self._stuck: float | None = None
        self._deleted: float | None = None
        self._is_done = False

    def poll(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs.

        Raises:
          ConfigError: it cannot start, or its log cannot be read.
          ScopelineError: its pod cannot be looked at.
        """
        self._observe()
        if self._log and self._log.error:
            raise self._log.error
        if self._state is None or self._state.status is None or not self._log_is_complete():
            return None
        self._is_done = self._state.status == 0
        return self._state.status

    def events(self) -> list[WorkerEvent]:
        """Its events since the last call."""
        events = self._log.take_events() if self._log else []
        # The log may be lost with the container; a worker that ends with 0 is done all the same.
        return [*events, WorkerEvent("done")] if self._is_done else events

    def log_tail(self) -> list[str]:
        """The last lines of its output."""
        return list(self._log.tail) if self._log else []

    def remark(self) -> str:
        """What keeps it from starting, or why it ended."""
        return self._state.remark if self._state else "no pod was created for it"

    def kill(self) -> None:
        """Deletes its pod, and returns when it has ended."""
        if self._state is not None:
            self._api.delete(ResourceKind.POD, self._state.name)
        while self._state is not None and self._state.status is None:
            time.sleep(LOOKS_EVERY)
            self._observe()
        self.leave()

    def leave(self) -> None:
        """Reads its log no further."""
        if self._log:
            self._log.stop()

    def _observe(self) -> None:
        """Takes the pod as it is now, and notices what takes too long."""
        before, pods = self._state, self._look()
        if before is None:
            self._state = next(filter(self._is_new, pods.values()), None)
        elif before.status is None:
            self._state = pods.get(before.uid) or _lost(before, f"pod {before.name} was deleted")
        if self._state is None:
            return
        self._taken.add(self._state.uid)
        now = time.monotonic()
        if self._state.has_begun and self._log is None:
            self.began = now
            self._log = PodLog(self._api, self._state.name, f"[{self._place.name}] ")
            self._log.start()
        self._deleted = (self._deleted or now) if self._state.is_deleted else None
        if self._state.status is None and self._deleted and now - self._deleted > GONE_SECONDS:
            why = f"pod {self._state.name} was told to end, but its node does not answer"
            self._state = _lost(self._state, why)
        if self._state.status is not None:
            self._ended = self._ended or now
        self._stuck = (self._stuck or now) if self._state.is_stuck else None
        if self._stuck and now - self._stuck > STUCK_SECONDS:
            raise ConfigError(f"{self._place.name} cannot start: {self._state.remark}")

    def _is_new(self, pod: PodState) -> bool:
        """Whether a pod has this place, and has just been made for it."""
        is_here = (pod.kind, pod.index) == (self._place.type, self._place.index)
        return is_here and not pod.is_deleted and pod.uid not in self._taken

    def _log_is_complete(self) -> bool:
        """Whether the whole log was read, or the rest has not come for `_LOG_SECONDS`."""
        if self._log is None or self._ended is None:
            return True
        self._log.has_ended.set()
        return not self._log.is_alive() or time.monotonic() - self._ended > _LOG_SECONDS


def _lost(pod: PodState, why: str) -> PodState:
    """A pod of which no more is to be expected; what its last state said counts more."""
    return replace(pod, status=_LOST, remark=(pod.has_begun and pod.remark) or why)
