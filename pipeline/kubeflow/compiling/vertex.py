"""Compiles a pipeline for Vertex AI Pipelines, by TFX's own runner.

Vertex AI runs the executors of TFX's components, nothing around them: it resolves artifacts itself,
from metadata of its own, and calls the driver of file-based ExampleGens alone. So a pipeline there
has TFX's resolver of blessed models, and what needs another is refused by `check_for_vertex`.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from kubernetes.utils.quantity import parse_quantity
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import (
    KubeflowV2DagRunner,
    KubeflowV2DagRunnerConfig,
)

from components.processes.kubernetes.pod_settings import Resources
from pipeline.component_ids import TRAINING
from pipeline.config.settings import PipelineConfig
from pipeline.graph.create import create_pipeline
from pipeline.kubeflow.cluster_layout import cluster_layout, settings_of
from pipeline.kubeflow.vertex_rules import check_for_vertex
from pipeline.run_context import resolve_elsewhere
from pipeline.runs.training import trainer_options
from trainer_module.errors import ConfigError

_GIGABYTE = 10**9
_ResourceSpec = pipeline_spec_pb2.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec


def compile_for_vertex(config: PipelineConfig) -> str:
    """A PipelineJob in JSON, as `google.cloud.aiplatform.PipelineJob(template_path=...)` takes it.

    The same config and code give the same bytes.

    Args:
      config: a checked config.

    Raises:
      ConfigError: the config asks for what Vertex AI cannot do.
    """
    problems = list(check_for_vertex(config))
    if problems:
        raise ConfigError("\n".join(map(str, problems)))
    # Version 2.1 of the schema: with 2.0 TFX's executors would not see the driver's results.
    runner = KubeflowV2DagRunner(
        KubeflowV2DagRunnerConfig(
            default_image=settings_of(config).image, use_pipeline_spec_2_1=True
        )
    )
    layout = cluster_layout(config, is_elsewhere=True)
    context = resolve_elsewhere(config, layout)
    pipeline = create_pipeline(context, baseline_strategy=LatestBlessedModelStrategy)
    job: dict[str, Any] = runner.run(pipeline, write_out=False)
    _complete_specification(job["pipelineSpec"], config)
    return json.dumps(job, indent=2, sort_keys=True) + "\n"


def _complete_specification(spec: dict[str, Any], config: PipelineConfig) -> None:
    """Adds variables and resources to every container, and retries to every step.

    TFX's runner offers no way to set most of it, and leaves out for ExampleGens what it offers.
    """
    kubeflow = settings_of(config)
    executors = spec["deploymentSpec"]["executors"]
    for name, task in spec["root"]["dag"]["tasks"].items():
        executor = executors[spec["components"][task["componentRef"]["name"]]["executorLabel"]]
        if "container" not in executor:
            continue  # Vertex AI runs resolvers itself.
        task["retryPolicy"] = {"maxRetryCount": kubeflow.retries}
        container = executor["container"]
        variables = kubeflow.environment | (
            trainer_options(config.train).to_environment() if name in TRAINING else {}
        )
        if variables:
            container["env"] = [{"name": k, "value": v} for k, v in sorted(variables.items())]
        resources = _to_resource_spec(kubeflow.resources_of(name))
        if resources:
            container["resources"] = resources


def _to_resource_spec(resources: Resources) -> dict[str, Any]:
    """What a step needs, by which Vertex AI chooses a machine that the step has to itself.

    It looks at limits alone: what is requested stands for a limit that is not given.
    """
    spec = _ResourceSpec()
    if cpu := resources.cpu_limit or resources.cpu:
        spec.cpu_limit = float(parse_quantity(cpu))
    if memory := resources.memory_limit or resources.memory:
        spec.memory_limit = float(parse_quantity(memory)) / _GIGABYTE
    if resources.accelerator is not None:
        spec.accelerator.type = resources.accelerator.type
        spec.accelerator.count = resources.accelerator.count
    return dict(json_format.MessageToDict(spec))
