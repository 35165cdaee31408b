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
"""The key of `resources` for whatever has no key of its own."""


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
    """How the pipeline runs on Kubernetes; `kubeflow_runner.py` reads it, local runs do not."""

    image: Annotated[str, AfterValidator(_check_image)] | None = None
    """The container image of every step, with a tag: `make image` builds one."""
    endpoint: Annotated[str, AfterValidator(_check_endpoint)] | None = None
    """The API of Kubeflow Pipelines; default: what the environment or the cluster says."""
    namespace: LabelName | None = None
    """The namespace of runs; default: `kubeflow`, or that of the user where there are several."""
    experiment: str = Field(default="Default", min_length=1)
    """Runs are listed under it."""
    service_account: ObjectName | None = None
    """The account that steps run as; default: the one of Kubeflow Pipelines."""
    volume: Volume | None = None
    """A volume that all steps share; relative paths of the config begin at its folder."""
    pipeline_root: str | None = None
    """Where artifacts go, a folder of the volume or gs://; default: `output` on the volume."""
    metadata: str | None = None
    """mysql://user@host/database, or grpc://host:port for a metadata service of the cluster;
    default: the config's own `metadata`."""
    environment: dict[VariableName, str] = {}
    """Variables of every step."""
    secrets: dict[VariableName, SecretKey] = {}
    """Variables whose values are in Secrets:
    `SCOPELINE_METADATA_PASSWORD: {secret: scopeline, key: password}`."""
    image_pull_secrets: list[ObjectName] = []
    resources: dict[str, Resources] = {}
    """By component (`Trainer`), or by task of a cluster of pods (`chief`, `worker`, `ps`);
    `default` for all others."""
    retries: NonNegativeInt = 2
    """How often a step that failed is tried again."""
    timeout: SomeTime = timedelta(hours=24)
    """A step that takes longer is stopped."""

    def resources_of(self, name: str) -> Resources:
        """What a component, or a task of a cluster, is given."""
        return self.resources.get(name) or self.resources.get(DEFAULT_RESOURCES) or Resources()
