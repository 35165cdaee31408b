"""The `kubeflow` section of a config."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt

from components.processes.kubernetes.pod_settings import (
    LabelName,
    ObjectName,
    Resources,
    SecretKey,
    VariableName,
    Volume,
)
from trainer_module.settings import Settings
from trainer_module.settings.durations import SomeTime

DEFAULT_RESOURCES = "default"
"""The key of `resources` that applies to all components without a key of their own."""


_ENDPOINT = re.compile(r"https?://\S+")


def _check_image(image: str) -> str:
    if not image or any(c.isspace() for c in image) or "://" in image:
        raise ValueError("right is a container image, such as registry.example.com/scopeline:0.1.0")
    return image


def _check_endpoint(address: str) -> str:
    if not _ENDPOINT.fullmatch(address):
        raise ValueError(
            "right is an address with its scheme, such as http://localhost:8888 of a port-forward"
        )
    return address


class KubeflowSettings(Settings):
    """How the pipeline runs on Kubernetes; only `scopeline-kubeflow` reads it."""

    image: Annotated[str, AfterValidator(_check_image)] | None = None
    """The container image of every step, with a tag; `make image` builds one."""
    endpoint: Annotated[str, AfterValidator(_check_endpoint)] | None = None
    """The address of the Kubeflow Pipelines API; default: from the environment or the cluster."""
    namespace: LabelName | None = None
    """The namespace of runs; default: `kubeflow`, or the user's in a multi-user deployment."""
    experiment: str = Field(default="Default", min_length=1)
    """The experiment that lists the runs."""
    service_account: ObjectName | None = None
    """The service account of the steps; default: that of Kubeflow Pipelines."""
    volume: Volume | None = None
    """A volume that all steps share; relative paths of the config start at its folder."""
    pipeline_root: str | None = None
    """The folder for artifacts, on the volume or gs://; default: `output` on the volume."""
    metadata: str | None = None
    """The metadata server, mysql://user@host/database or grpc://host:port of a service in the
    cluster; default: the config's own `metadata`.
    """
    environment: dict[VariableName, str] = {}
    """Environment variables of every step."""
    secrets: dict[VariableName, SecretKey] = {}
    """Environment variables with values from Secrets: `SCOPELINE_METADATA_PASSWORD: {secret:
    scopeline, key: password}`.
    """
    image_pull_secrets: list[ObjectName] = []
    resources: dict[str, Resources] = {}
    """Resources by component (`Trainer`), or by task of a cluster of pods (`chief`, `worker`,
    `ps`); `default` applies to all others.
    """
    retries: NonNegativeInt = 2
    """The number of times that a failed step is retried."""
    timeout: SomeTime = timedelta(hours=24)
    """The duration after which a running step is stopped."""

    def resources_of(self, name: str) -> Resources:
        """Returns the resources of a component, or of a task of a cluster."""
        return self.resources.get(name) or self.resources.get(DEFAULT_RESOURCES) or Resources()
