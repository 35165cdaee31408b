"""A compiled pipeline as the backend of Kubeflow Pipelines reads it: strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

Executors = dict[str, Any]


class BackendError(Exception):
    """The backend would refuse this specification, or these parameters."""


@dataclass(frozen=True)
class Spec:
    """The two documents of a compiled pipeline, and the executors that they describe."""

    pipeline: Any
    """PipelineSpec."""
    executors: Executors
    """By label: PipelineDeploymentConfig.ExecutorSpec."""
    kubernetes: Executors
    """By label: KubernetesExecutorConfig, of those that have one."""
    kubernetes_pipeline: Any
    """PipelineConfig: what the platform document says of the whole pipeline."""

    def component(self, task: Any) -> Any:
        """The component that a task runs."""
        name = task.component_ref.name
        if name not in self.pipeline.components:
            raise BackendError(f'component spec for "{name}" not found')
        return self.pipeline.components[name]


def parse(text: str) -> Spec:
    """Reads a compiled pipeline.

    Args:
      text: One YAML document with the pipeline, and one for the platform, if it has any.

    Returns:
      Its parts as protobuf messages; a key that they do not know is an error.

    Raises:
      BackendError: The API server would refuse it.
    """
    documents = [document for document in yaml.safe_load_all(text) if document is not None]
    pipelines = [one for one in documents if "pipelineInfo" in one]
    platforms = [one for one in documents if "platforms" in one]
    if len(pipelines) != 1 or len(platforms) > 1 or len(documents) != len(pipelines + platforms):
        raise BackendError(
            f"found {len(documents)} documents, of which {len(pipelines)} pipelines and "
            f"{len(platforms)} platforms; right is one pipeline and at most one platform"
        )
    pipeline = _message(pipelines[0], pipeline_spec_pb2.PipelineSpec(), "pipeline")
    if pipeline.schema_version != "2.1.0":
        raise BackendError(f"only schema 2.1.0 is supported, found {pipeline.schema_version!r}")
    deployment = _message(
        json_format.MessageToDict(pipeline.deployment_spec),
        pipeline_spec_pb2.PipelineDeploymentConfig(),
        "deploymentSpec",
    )
    platform = pipeline_spec_pb2.PlatformSpec()
    if platforms:
        _message(platforms[0], platform, "platform")
        if list(platform.platforms) != ["kubernetes"]:
            raise BackendError(f"unknown platforms: {sorted(platform.platforms)}")
    kubernetes = platform.platforms["kubernetes"]
    return Spec(
        pipeline=pipeline,
        executors=dict(deployment.executors),
        kubernetes={
            label: _message(
                json_format.MessageToDict(config),
                kubernetes_executor_config_pb2.KubernetesExecutorConfig(),
                f"platform config of {label}",
            )
            for label, config in kubernetes.deployment_spec.executors.items()
        },
        kubernetes_pipeline=kubernetes.pipelineConfig,
    )


def _message(value: dict[str, Any], message: Any, what: str) -> Any:
    try:
        return json_format.ParseDict(value, message)
    except json_format.ParseError as error:
        raise BackendError(f"{what}: {error}") from error
