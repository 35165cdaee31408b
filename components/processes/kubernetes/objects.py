"""The objects of a cluster of pods: a headless Service, and an Indexed Job per type of worker."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.processes.ending import POD_GRACE_SECONDS
from components.processes.kubernetes.pod import WORKERS_VARIABLE, pack
from components.processes.kubernetes.pod_settings import (
    PodSettings,
    Resources,
    cores_of,
)
from components.processes.launcher import Cluster, Place, WorkerSpec

Object = dict[str, Any]

TRAINING_LABEL = "scopeline/training"
"""The label of all objects of a training, including those of earlier attempts."""
GANG_LABEL = "scopeline/gang"
"""The label of the objects of workers that were started together."""
TYPE_LABEL = "scopeline/task"
"""The label with the worker's type."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
CONTAINER = "task"
POD_PROCESS = "components.processes.kubernetes.pod"
"""The module that the container runs. Its argument is the worker's module."""
POD_SCRATCH = "/tmp/scopeline"  # noqa: S108 - a pod has no other users
"""The folder for temporary files of a pod, which other pods do not share."""
LEASE_SECONDS = 420
"""The time from the last extension of a Job's deadline to its end.

A running launcher extends the deadlines each minute, and retries for five minutes while the API
does not respond. Therefore Jobs end at their deadline only if their launcher has died.
"""
_FIRST_PORT = 2222
_TTL_SECONDS = 600
# At this limit a Job would kill its other pods, whose logs may contain the cause of the failure.
# No Job reaches the limit: a failed pod is replaced after 10 s at the earliest, by which time the
# launcher has deleted the Job, or has restarted the worker alone.
_BACKOFF_LIMIT = 1000


@dataclass(frozen=True)
class Gang:
    """The names of objects that are created together. Each gang has new names."""

    training: str
    """The identifier of the training, which is the same for all attempts."""
    name: str
    namespace: str
    owner: Object | None = None
    """A reference to the pod of the launcher, or None outside of a pod. When this pod is deleted,
    all objects are deleted. The end of the pod does not delete them."""

    @classmethod
    def of(cls, training: str, namespace: str, owner: Object | None) -> Gang:
        """Returns new names for workers that are about to start."""
        return cls(training, f"scopeline-{training}-{secrets.token_hex(3)}", namespace, owner)

    @property
    def selector(self) -> str:
        """The label selector of the gang's objects."""
        return f"{GANG_LABEL}={self.name}"

    def job_name(self, kind: str) -> str:
        """Returns the name of the Job of a type of workers."""
        return f"{self.name}-{kind}"

    def addresses(self, places: Sequence[Place]) -> Cluster:
        """Returns the addresses of the workers, with the DNS names of the pods from the Service."""
        cluster: Cluster = {}
        for port, place in enumerate(places, _FIRST_PORT):
            pod = f"{self.job_name(place.type)}-{len(cluster.get(place.type, []))}"
            host = f"{pod}.{self.name}.{self.namespace}.svc"
            cluster.setdefault(place.type, []).append(f"{host}:{port}")
        return cluster

    def metadata(self, name: str, **labels: str) -> Object:
        """Returns the metadata of an object of the gang.

        Args:
          labels: the labels in addition to the gang's labels.
        """
        metadata: Object = {"name": name, "labels": {**self.labels, **labels}}
        if self.owner:
            metadata["ownerReferences"] = [self.owner]
        return metadata

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects of the gang."""
        return {
            "app.kubernetes.io/name": "scopeline",
            "app.kubernetes.io/component": "trainer",
            "app.kubernetes.io/managed-by": "scopeline",
            TRAINING_LABEL: self.training,
            GANG_LABEL: self.name,
        }


def training_key(identity: str) -> str:
    """Returns a short hash of a training's identifier that is a valid label."""
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def make_service(gang: Gang) -> Object:
    """Returns a Service that gives each pod a DNS name as soon as it has an address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": gang.metadata(gang.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {GANG_LABEL: gang.name},
        },
    }


def make_job(gang: Gang, specs: Sequence[WorkerSpec], pods: PodSettings, workers: int) -> Object:
    """Returns a Job for all workers of a type.

    Args:
      specs: the workers, in the order of their indices.
      workers: the number of workers of the type `worker` in the gang.

    Raises:
      ConfigError: the payloads exceed the size of an environment variable.
    """
    kind = specs[0].place.type
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": gang.metadata(gang.job_name(kind), **{TYPE_LABEL: kind}),
        "spec": {
            "completionMode": "Indexed",
            "completions": len(specs),
            "parallelism": len(specs),
            "backoffLimit": _BACKOFF_LIMIT,
            # With the other policy, two pods of the same index could share a name for a while.
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": LEASE_SECONDS,
            "ttlSecondsAfterFinished": _TTL_SECONDS,
            "template": {
                "metadata": {
                    "labels": {**gang.labels, TYPE_LABEL: kind},
                    # A sidecar never ends, and would intercept the workers' connections.
                    "annotations": {"sidecar.istio.io/inject": "false"},
                },
                "spec": _pod_spec(gang, specs, pods, workers),
            },
        },
    }


def _pod_spec(gang: Gang, specs: Sequence[WorkerSpec], pods: PodSettings, workers: int) -> Object:
    resources = pods.resources.get(specs[0].place.type) or Resources()
    environment = {**_environment(resources, workers), **pods.environment}
    environment[WORKERS_VARIABLE] = pack(specs)
    spec: Object = {
        "restartPolicy": "Never",
        "subdomain": gang.name,
        "terminationGracePeriodSeconds": POD_GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": CONTAINER,
                "image": pods.image,
                "command": ["python", "-P", "-m", POD_PROCESS, specs[0].module],
                "env": _env(environment, pods),
                "resources": _resources(resources),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
                "volumeMounts": _mounts(pods, resources),
            }
        ],
        "volumes": _volumes(pods, resources),
        "nodeSelector": dict(resources.node_selector),
        "tolerations": [
            item.model_dump(mode="json", exclude_none=True) for item in resources.tolerations
        ],
        "imagePullSecrets": [{"name": name} for name in pods.image_pull_secrets],
    }
    if pods.service_account:
        spec["serviceAccountName"] = pods.service_account
    return {key: value for key, value in spec.items() if value not in ({}, [])}


def _environment(resources: Resources, workers: int) -> dict[str, str]:
    environment = {"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}  # noqa: S108 - a pod has no other users
    if resources.cpu_limit:
        # Without these variables, TensorFlow would start threads for all cores of the node.
        cores = str(math.ceil(cores_of(resources.cpu_limit)))
        environment |= {"TF_NUM_INTRAOP_THREADS": cores, "OMP_NUM_THREADS": cores}
        # Inter-op threads also wait for other workers. With too few threads, all workers block.
        environment["TF_NUM_INTEROP_THREADS"] = str(max(workers + 1, int(cores)))
    return environment


def _env(environment: Mapping[str, str], pods: PodSettings) -> list[Object]:
    plain = [{"name": name, "value": value} for name, value in environment.items()]
    return plain + [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": source.secret, "key": source.key}},
        }
        for name, source in pods.secrets.items()
    ]


def _resources(resources: Resources) -> Object:
    requests = {"cpu": resources.cpu, "memory": resources.memory}
    limits = {"cpu": resources.cpu_limit, "memory": resources.memory_limit}
    if resources.accelerator:
        limits[resources.accelerator.type] = str(resources.accelerator.count)
    sections = {"requests": requests, "limits": limits}
    nonempty = {key: {k: v for k, v in value.items() if v} for key, value in sections.items()}
    return {key: value for key, value in nonempty.items() if value}


def _mounts(pods: PodSettings, resources: Resources) -> list[Object]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - a pod has no other users
    if resources.accelerator:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - as for /tmp
    if pods.volume:
        mounts.append({"name": "data", "mountPath": pods.volume.path})
    return mounts


def _volumes(pods: PodSettings, resources: Resources) -> list[Object]:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    if resources.accelerator:
        # The devices of a node exchange gradients in /dev/shm. Its default of 64 MiB is too small.
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    if pods.volume:
        claim = {"claimName": pods.volume.claim}
        volumes.append({"name": "data", "persistentVolumeClaim": claim})
    return volumes
