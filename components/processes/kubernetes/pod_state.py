"""The state of a task, read from the status of its pod."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from components.processes.kubernetes.objects import CONTAINER, INDEX_ANNOTATION, TASK_LABEL

Object = dict[str, Any]

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
    """The type of its task."""
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
            kind=metadata.get("labels", {}).get(TASK_LABEL, ""),
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
    """The exit status and what is known of it; no status while the pod may go on."""
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
