"""The section `kubeflow`, which only `scopeline-kubeflow` reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field, NonNegativeInt

from components.processes.kubernetes.pod_settings import (
    LabelName,
    ObjectName,
    Resources,
    SecretKey,
    VariableName,
    Volume,
)
from trainer_module.sections import Matching, Settings
from trainer_module.settings.durations import SomeTime

DEFAULT_RESOURCES = "default"
"""The key of `resources` for all components that have no key in `resources`."""


Image = Annotated[
    str,
    Matching(
        r"(?!.*://)\S+", "expected a container image, such as registry.example.com/scopeline:0.1.0"
    ),
]
Endpoint = Annotated[
    str,
    Matching(
        r"https?://\S+",
        "expected an address with a scheme, such as http://localhost:8888 for a port-forward",
    ),
]


class KubeflowSettings(Settings):
    """The settings of Kubeflow Pipelines; only `scopeline-kubeflow` reads them."""

    image: Image | None = None
    """The container image of every step, with a tag; `make image` builds one."""
    endpoint: Endpoint | None = None
    """The address of the Kubeflow Pipelines API; default: from the environment or the cluster."""
    namespace: LabelName | None = None
    """The namespace of runs; default: `kubeflow`, or the user's namespace in a multi-user
    deployment.
    """
    experiment: str = Field(default="Default", min_length=1)
    """The experiment that lists the runs."""
    service_account: ObjectName | None = None
    """The service account of the steps; default: the account that Kubeflow Pipelines sets."""
    volume: Volume | None = None
    """A volume that all steps share; relative paths in the config are relative to its folder."""
    pipeline_root: str | None = None
    """The folder for artifacts, on the volume or gs://; default: the folder `output` on the
    volume.
    """
    metadata: str | None = None
    """The metadata server: mysql://user@host/database, or grpc://host:port of a metadata service in
    the cluster; default: the config's key `metadata`.
    """
    environment: dict[VariableName, str] = {}
    """Environment variables of every step."""
    secrets: dict[VariableName, SecretKey] = {}
    """Environment variables with values from Secrets: `SCOPELINE_METADATA_PASSWORD: {secret:
    scopeline, key: password}`.
    """
    image_pull_secrets: list[ObjectName] = []
    """The Secrets with which nodes pull the image."""
    resources: dict[str, Resources] = {}
    """Resources by component (such as `Trainer`), or by task in a training cluster (`chief`,
    `worker`, `ps`); `default` applies to components and tasks without a key.
    """
    retries: NonNegativeInt = 2
    """The number of times that a failed step is retried."""
    timeout: SomeTime = timedelta(hours=24)
    """The duration after which a running step is stopped."""

    def resources_of(self, name: str) -> Resources:
        """Returns the resources of a component, or of a task in a training cluster."""
        return self.resources.get(name) or self.resources.get(DEFAULT_RESOURCES) or Resources()
