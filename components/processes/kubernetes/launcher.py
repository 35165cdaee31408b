"""A launcher whose workers are pods of Kubernetes."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from components.processes.kubernetes.api import KubernetesApi, ResourceKind
from components.processes.kubernetes.objects import (
    LEASE_SECONDS,
    TRAINING_LABEL,
    Gang,
    make_job,
    make_service,
    training_key,
)
from components.processes.kubernetes.pod_settings import PodSettings
from components.processes.kubernetes.pods import PodState, PodWatch, PodWorker
from components.processes.launcher import Cluster, Place, WorkerSpec
from components.processes.stopping import handle_signals, handles_sigterm
from trainer_module.errors import ConfigError, ScopelineError

logger = logging.getLogger(__name__)

POD_NAME_VARIABLE = "SCOPELINE_POD_NAME"
"""The environment variable with the name of this process's pod. If it is not set, the name is
HOSTNAME, which may be truncated."""
_DELETION_SECONDS = 120.0
_POLL_SECONDS = 0.5


class KubernetesLauncher:
    """A launcher that starts the workers of each type as an Indexed Job.

    A worker that is restarted alone gets the payload of its first start, as a Job's pod template
    cannot be changed.

    `stop_all` deletes all objects. This process may be killed before, such as when Kubeflow
    terminates a run. The next attempt of the training then deletes the objects. If there is no next
    attempt, the Jobs and their pods end LEASE_SECONDS after the last extension of their deadline.
    All objects are deleted at the latest when the object of this process's pod is deleted, which
    may be days after the pod has ended.
    """

    def __init__(self, pods: PodSettings, identity: str) -> None:
        """Connects to the cluster of this process or of the kubeconfig.

        Args:
          identity: the identifier of the training, which all its attempts share. Objects of an
            earlier attempt are deleted before workers start.

        Raises:
          ConfigError: this process neither runs in a cluster nor has a kubeconfig.
        """
        self._pods = pods
        self._training = training_key(identity)
        self._api = KubernetesApi()
        self._gang: Gang | None = None
        self._expected: dict[str, int] = {}
        self._specs: dict[str, list[WorkerSpec]] = {}
        self._watch = PodWatch(self._api)
        self._is_first = True

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Returns the addresses that the workers will have in the cluster.

        Each call returns new addresses.

        Raises:
          ConfigError: the account lacks a right, or Kubernetes refuses a request.
          TrainingError: the Kubernetes API does not answer.
        """
        if self._is_first:
            self._delete_leftovers()
        self._is_first = False
        pod = self._find_own_pod()
        if account := pod.get("spec", {}).get("serviceAccountName"):
            defaults = {"service_account": self._pods.service_account or account}
            self._pods = self._pods.model_copy(update=defaults)
        self._gang = Gang.of(self._training, self._api.namespace, self._make_owner_reference(pod))
        self._expected = {}
        for place in places:
            self._expected[place.type] = self._expected.get(place.type, 0) + 1
        self._specs = {}
        self._watch = PodWatch(self._api)
        self._api.create(ResourceKind.SERVICE, make_service(self._gang))
        return self._gang.addresses(places)

    def start(self, spec: WorkerSpec) -> PodWorker:
        """Starts a worker. The Job of a type is created with the last worker of that type."""
        if self._gang is None:
            raise ConfigError(
                "the launcher `kubernetes` needs several workers; use the launcher `local` for a"
                " single process."
            )
        worker = self._watch.add(spec.place)
        specs = self._specs.setdefault(spec.place.type, [])
        if len(specs) == self._expected[spec.place.type]:
            return worker  # The Job exists, and replaces the lost pod by itself.
        specs.append(spec)
        if len(specs) == self._expected[spec.place.type]:
            workers = self._expected.get("worker", 0)
            job = make_job(self._gang, specs, self._pods, workers)
            self._api.create(ResourceKind.JOB, job)
            logger.info("Job %s was created.", job["metadata"]["name"])
        if self._specs_are_complete and not self._watch.is_alive():
            self._watch.begin(self._gang, list(self._specs))
        return worker

    def stop_all(self) -> None:
        """Deletes all objects, and returns when the pods have ended.

        If objects cannot be deleted, they end by the deadline of the Jobs and the owner reference.
        """
        if self._gang is None:
            return
        self._watch.end()
        try:
            self._delete_all(self._gang.selector)
        except ScopelineError as error:
            logger.warning(
                "%s Pods may run for some further minutes; to delete them, run `kubectl delete"
                " jobs,services --namespace %s --selector %s`",
                *(error, self._api.namespace, self._gang.selector),
            )
        # This line comes last, as `stop_all` is called again after an interrupt.
        self._gang = None

    @property
    def _specs_are_complete(self) -> bool:
        return {kind: len(specs) for kind, specs in self._specs.items()} == self._expected

    def _delete_leftovers(self) -> None:
        selector = f"{TRAINING_LABEL}={self._training}"
        if names := self._delete_all(selector):
            logger.warning("Deleted Jobs of an earlier attempt: %s", ", ".join(names))

    def _delete_all(self, selector: str) -> list[str]:
        """Deletes Jobs, Services and pods, waits for the pods, and returns the Jobs' names."""
        deleted = []
        for kind in (ResourceKind.JOB, ResourceKind.SERVICE):
            for item in self._api.list(kind, selector).items:
                self._api.delete(kind, item["metadata"]["name"])
                deleted += [item["metadata"]["name"]] if kind is ResourceKind.JOB else []
        deadline = time.monotonic() + _DELETION_SECONDS
        requested: set[str] = set()
        while pods := self._list_pods(selector):
            for pod in pods:
                if pod.uid not in requested and not pod.is_deleted:
                    self._api.delete(ResourceKind.POD, pod.name)
                requested.add(pod.uid)
            if time.monotonic() > deadline:
                names = ", ".join(pod.name for pod in pods)
                logger.warning(
                    "these pods do not end, perhaps because their nodes are lost: %s", names
                )
                break
            time.sleep(_POLL_SECONDS)
        return deleted

    def _list_pods(self, selector: str) -> list[PodState]:
        return [PodState.of(pod) for pod in self._api.list(ResourceKind.POD, selector).items]

    def _find_own_pod(self) -> dict[str, Any]:
        """Returns the pod in which this process runs, or an empty dictionary outside of a pod."""
        name = os.environ.get(POD_NAME_VARIABLE) or os.environ.get("HOSTNAME", "")
        return (self._api.get_pod(name) if name else None) or {}

    def _make_owner_reference(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the owner reference of all objects, or None outside of a pod.

        When the owner, the pod of this process, is deleted, Kubernetes deletes all objects.
        """
        if not pod:
            logger.warning(
                "This process does not run in a pod of namespace %s. If this process is killed, its"
                " Jobs end within %d minutes, but its Service remains.",
                *(self._api.namespace, LEASE_SECONDS // 60),
            )
            return None
        metadata = pod["metadata"]
        return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM raise SystemExit in a `with` block of the main thread.

    A second SIGTERM is ignored. Kubernetes sends SIGTERM to the processes of a pod, and SIGKILL
    half a minute later. If this process has handlers from `stopping`, they remain.
    """
    if handles_sigterm() or threading.current_thread() is not threading.main_thread():
        yield
        return
    with handle_signals(_exit, [signal.SIGTERM]):
        yield


def _exit(number: int, frame: FrameType | None) -> None:
    # A second SIGTERM must not interrupt the cleanup.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)
