"""Starts workers as pods of Kubernetes."""

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
from components.processes.kubernetes.pods import GONE_SECONDS, PodState, PodWorker
from components.processes.launcher import Cluster, Place, WorkerSpec
from components.processes.stopping import handled, is_obeyed
from trainer_module.errors import ConfigError, ScopelineError

logger = logging.getLogger(__name__)

POD_NAME_VARIABLE = "SCOPELINE_POD_NAME"
"""The name of the pod that this process runs in; default: HOSTNAME, which may be cut off."""
LOOK_SECONDS = 2.0
"""How often pods are listed: their logs tell at once how the workers are."""
EXTEND_SECONDS = 60.0
"""How often the deadline of the Jobs is extended."""
_POLL_SECONDS = 0.5


class KubernetesLauncher:
    """Starts the workers of each type as an Indexed Job.

    A worker that is started again alone gets the payload of its first start: a Job's pod template
    cannot be changed.

    What it makes is deleted by `stop_all`. If this process is killed before, as it is when Kubeflow
    terminates a run, the next attempt of the training deletes it. Without a next attempt, the Jobs
    and their pods end LEASE_SECONDS after they were last extended. All objects are deleted with the
    object of this process's pod, which may be kept for days after the pod has ended.
    """

    def __init__(self, pods: PodSettings, identity: str) -> None:
        """Finds the cluster.

        Args:
          pods: the settings of the pods.
          identity: the same for every attempt of a training, and for no other; what an earlier
            attempt has left is deleted before workers start.

        Raises:
          ConfigError: this process neither runs in a cluster nor has a kubeconfig.
        """
        self._settings = pods
        self._training = training_key(identity)
        self._api = KubernetesApi()
        self._gang: Gang | None = None
        self._places: list[Place] = []
        self._specs: dict[str, list[WorkerSpec]] = {}
        """By type of worker."""
        self._workers: list[PodWorker] = []
        self._pods: dict[str, PodState] = {}
        """As they were last listed, by their unique ids."""
        self._taken: set[str] = set()
        """Unique ids of the pods in which workers are, or were."""
        self._began = self._looked = self._extended = 0.0
        self._is_first = True

    def allocate(self, places: Sequence[Place]) -> Cluster:
        """Names that the workers will have in the cluster, new ones each time.

        Raises:
          ConfigError: this account may not do what it takes, or Kubernetes refuses it.
          TrainingError: the Kubernetes API does not answer.
        """
        if self._is_first and (left := self._delete_all(f"{TRAINING_LABEL}={self._training}")):
            logger.warning("Deleted what an earlier attempt has left: %s", ", ".join(left))
        self._is_first = False
        pod = self._find_own_pod()
        if account := pod.get("spec", {}).get("serviceAccountName"):
            defaults = {"service_account": self._settings.service_account or account}
            self._settings = self._settings.model_copy(update=defaults)
        self._gang = Gang.of(self._training, self._api.namespace, self._make_owner_reference(pod))
        self._places, self._specs, self._workers = list(places), {}, []
        self._pods, self._looked = {}, 0.0
        # Jobs count from when they are created, which is later: so none ends too early.
        self._began = self._extended = time.monotonic()
        self._api.create(ResourceKind.SERVICE, make_service(self._gang))
        return self._gang.addresses(places)

    def start(self, spec: WorkerSpec) -> PodWorker:
        """Starts a worker, or all of its type once the last of them is asked for."""
        if self._gang is None:
            raise ConfigError("one process needs no pod of its own; use the launcher local.")
        worker = PodWorker(self._api, spec.place, self._look, self._taken)
        self._workers.append(worker)
        specs = self._specs.setdefault(spec.place.type, [])
        expected = sum(place.type == spec.place.type for place in self._places)
        if len(specs) == expected:
            return worker  # The Job replaces the pod that is gone.
        specs.append(spec)
        if len(specs) == expected:
            workers = sum(place.type == "worker" for place in self._places)
            job = make_job(self._gang, specs, self._settings, workers)
            self._api.create(ResourceKind.JOB, job)
            logger.info("Job %s was created.", job["metadata"]["name"])
        return worker

    def stop_all(self) -> None:
        """Deletes everything that was made, and returns when the pods are gone.

        What cannot be deleted is left to the owner reference and the deadline of the Jobs.
        """
        if self._gang is None:
            return
        for worker in self._workers:
            worker.leave()
        try:
            self._delete_all(self._gang.selector)
        except ScopelineError as error:
            logger.warning(
                "%s Pods may be left for a while: kubectl delete jobs,services --namespace %s "
                "--selector %s",
                *(error, self._api.namespace, self._gang.selector),
            )
        # Last, because `stop_all` is called again if it was interrupted.
        self._gang = None

    def _look(self) -> dict[str, PodState]:
        """The pods of the gang, listed at most every `LOOK_SECONDS`; extends the Jobs' deadline."""
        now = time.monotonic()
        if self._gang and now - self._looked >= LOOK_SECONDS:
            self._pods = {pod.uid: pod for pod in self._list_pods(self._gang.selector)}
            self._extend_jobs(self._gang, now)
            self._looked = time.monotonic()
        return self._pods

    def _extend_jobs(self, gang: Gang, now: float) -> None:
        """Lets the Jobs live on, as their launcher does: should it be killed, they end."""
        if now - self._extended < EXTEND_SECONDS:
            return
        self._extended = now
        deadline = {"spec": {"activeDeadlineSeconds": int(now - self._began) + LEASE_SECONDS}}
        for kind in self._specs:
            self._api.patch_job(gang.job_name(kind), deadline)

    def _delete_all(self, selector: str) -> list[str]:
        """Deletes Jobs, Services and pods, and waits for the pods; returns the Jobs' names."""
        deleted = []
        for kind in (ResourceKind.JOB, ResourceKind.SERVICE):
            for item in self._api.find(kind, selector):
                self._api.delete(kind, item["metadata"]["name"])
                deleted += [item["metadata"]["name"]] if kind is ResourceKind.JOB else []
        deadline = time.monotonic() + GONE_SECONDS
        while pods := self._list_pods(selector):
            for pod in pods:
                if not pod.is_deleted:
                    self._api.delete(ResourceKind.POD, pod.name)
            if time.monotonic() > deadline:
                names = ", ".join(pod.name for pod in pods)
                logger.warning("These pods do not end, their nodes may be lost: %s", names)
                break
            time.sleep(_POLL_SECONDS)
        return deleted

    def _list_pods(self, selector: str) -> list[PodState]:
        return [PodState.of(pod) for pod in self._api.find(ResourceKind.POD, selector)]

    def _find_own_pod(self) -> dict[str, Any]:
        """The pod that this process runs in; empty if there is none."""
        name = os.environ.get(POD_NAME_VARIABLE) or os.environ.get("HOSTNAME", "")
        return (self._api.get_pod(name) if name else None) or {}

    def _make_owner_reference(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        """A reference to the pod with whose object everything is to be deleted."""
        if not pod:
            logger.warning(
                "This process runs in no pod of namespace %s: should it be killed, what it made "
                "ends within %d minutes, but its Service is left.",
                *(self._api.namespace, LEASE_SECONDS // 60),
            )
            return None
        metadata = pod["metadata"]
        return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into SystemExit in a `with` block of the main thread; a second one is ignored.

    Kubernetes sends it to the processes of a pod, and SIGKILL half a minute later. A process that
    obeys it already is left to do so.
    """
    if is_obeyed() or threading.current_thread() is not threading.main_thread():
        yield
        return
    with handled(_exit, [signal.SIGTERM]):
        yield


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Cleaning up is not to be interrupted.
    raise SystemExit(128 + number)
