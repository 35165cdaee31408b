"""Compiles a config for open-source Kubeflow Pipelines: one container per TFX node.

Each step runs its node with TFX's own launcher and the pipeline's own metadata store. TFX, not
Kubeflow, therefore handles resolvers, caching, spans and warm starts.

The module does not postpone annotations, because kfp reads the annotations of pipelines.
"""

from collections.abc import Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from kfp import compiler, dsl, kubernetes
from kfp.pipeline_spec import pipeline_spec_pb2

from components.processes.kubernetes.pod_settings import Resources
from pipeline.component_ids import ComponentId
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import (
    cluster_layout,
    pipeline_name,
    run_root,
    settings_of,
    variables_of,
)
from pipeline.kubeflow.compiled import FINALIZE, SETUP, CompiledPipeline, pack_argument
from pipeline.kubeflow.declared_outputs import outputs_of
from pipeline.kubeflow.image import code_hash
from pipeline.kubeflow.nodes import compile_graph, split_into_nodes
from pipeline.kubeflow.run_parameters import default_parameters
from pipeline.run_context import resolve_elsewhere
from trainer_module.scratch import ScratchFolder

COMMAND = ("python", "-P", "-m", "pipeline.kubeflow.step")
"""The command of every container. With -P, modules in the working directory cannot shadow the
modules of the image.
"""
EXECUTOR_INPUT = "{{$}}"
"""The placeholder that the launcher replaces by its ExecutorInput as JSON: the declared outputs
with their URIs, and the file from which the launcher reads their metadata.
"""
RETRY_SECONDS = 10
"""The wait before a failed step is retried; it doubles each time."""
POD_FIELDS = {"SCOPELINE_POD_NAME": "metadata.name"}
"""Environment variables of the Trainer with fields of its pod, which owns the Trainer's worker
pods.
"""
KEYS_NO_STEP_READS: Any = {
    "kubeflow": {"endpoint", "namespace", "experiment"},
    "schedule": {"cron", "timezone", "on_new_data", "poll", "retry", "timeout"},
}
"""The config keys that only clients read."""


def compile_pipeline(config: PipelineConfig) -> CompiledPipeline:
    """Compiles a pipeline; equal config and code give equal bytes.

    Args:
      config: a config that is checked for Kubeflow.

    Raises:
      ConfigError: the arguments of a container are too long.
    """
    layout = cluster_layout(config, is_elsewhere=True)
    graph = compile_graph(resolve_elsewhere(config, layout))
    nodes = split_into_nodes(graph)
    upstream = {n.pipeline_node.node_info.id: n.pipeline_node.upstream_nodes for n in graph.nodes}
    packed_config = pack_argument(_config_for_steps(config).encode(), "the config")
    kubeflow, variables = settings_of(config), variables_of(config)

    def configure(task: dsl.PipelineTask, name: str) -> dsl.PipelineTask:
        return _configure(task, kubeflow, variables, name)

    has_classes = config.family.has_label and config.task.is_classification

    def make_task(name: str, arguments: list[str]) -> dsl.PipelineTask:
        outputs = outputs_of(name, has_classes)
        return configure(_make_task(kubeflow, name, arguments, outputs), name)

    def steps_of_a_run(epochs: int, strategy: str, span: str) -> None:
        finalize = make_task(FINALIZE, ["conclude", "--config", packed_config])
        with dsl.ExitHandler(finalize):
            setup = _setup_component(kubeflow, packed_config)(
                run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, epochs=epochs, strategy=strategy, span=span
            )
            tasks = {SETUP: configure(setup, SETUP)}
            for node, packed in nodes.items():
                arguments = ["run", "--root", run_root(layout), "--node", packed]
                task = tasks[node] = make_task(node, arguments)
                task.after(*(tasks[before] for before in (upstream[node] or [SETUP])))

    defaults = default_parameters(config)
    steps_of_a_run.__defaults__ = tuple(defaults.values())
    steps = {task_name(name): name for name in (SETUP, *nodes, FINALIZE)}
    pipeline = dsl.pipeline(name=pipeline_name(config))(steps_of_a_run)
    _allow_all_attempts(pipeline.pipeline_spec, kubeflow)
    return CompiledPipeline(pipeline_name(config), _to_yaml(pipeline), steps, defaults)


def task_name(node: str) -> str:
    """Returns the name of a node's task on Kubeflow."""
    return node.lower()


def _config_for_steps(config: PipelineConfig) -> str:
    """Returns the config without the keys that only a client reads.

    The config then compiles to equal bytes, whatever the endpoint.
    """
    return config.model_dump_json(by_alias=True, exclude_unset=True, exclude=KEYS_NO_STEP_READS)


def _make_task(
    kubeflow: KubeflowSettings, name: str, arguments: list[str], outputs: Mapping[str, str]
) -> dsl.PipelineTask:
    """Returns a task with a container, whose arguments are constant except for the run's id.

    Args:
      kubeflow: the settings of Kubeflow.
      name: the node, or `FINALIZE`.
      outputs: the types of the declared outputs, such as `Metrics`, by name.
    """

    def container(run_id: str, *artifacts: Any) -> dsl.ContainerSpec:
        paths = [
            f"--output={output}={artifact.path}"
            for output, artifact in zip(outputs, artifacts, strict=True)
        ]
        return dsl.ContainerSpec(
            image=kubeflow.image,
            command=list(COMMAND),
            args=[
                *(*arguments, "--run-id", run_id),
                *(("--executor-input", EXECUTOR_INPUT, *paths) if outputs else ()),
            ],
        )

    annotations: dict[str, Any] = {
        "run_id": str,
        **{output: dsl.Output[getattr(dsl, kind)] for output, kind in outputs.items()},
    }
    container.__name__ = task_name(name)
    # kfp reads the inputs and outputs of a container from its signature.
    container.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(parameter, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
            for parameter, annotation in annotations.items()
        ]
    )
    return dsl.container_component(container)(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)


def _setup_component(
    kubeflow: KubeflowSettings, packed_config: str
) -> dsl.base_component.BaseComponent:
    """Returns the component of the first step, the only one that receives the run parameters."""

    def container(run_id: str, epochs: int, strategy: str, span: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image=kubeflow.image,
            command=list(COMMAND),
            args=[
                *("begin", "--config", packed_config, "--code", code_hash(), "--run-id", run_id),
                # Name and value are one argument, so that a value may begin with a hyphen.
                *(f"--epochs={epochs}", f"--strategy={strategy}", f"--span={span}"),
            ],
        )

    container.__name__ = task_name(SETUP)
    return dsl.container_component(container)


def _configure(
    task: dsl.PipelineTask, kubeflow: KubeflowSettings, variables: Mapping[str, str], name: str
) -> dsl.PipelineTask:
    """Sets the retries, variables, volumes and resources of a step; returns the task."""
    # Only TFX's cache is used, which also compares the data and the code.
    task.set_caching_options(False)
    if kubeflow.retries:
        task.set_retry(
            kubeflow.retries,
            backoff_duration=f"{RETRY_SECONDS}s",
            backoff_factor=2.0,
        )
    for variable, value in variables.items():
        task.set_env_variable(variable, value)
    for variable, secret in kubeflow.secrets.items():
        kubernetes.use_secret_as_env(task, secret.secret, {secret.key: variable})
    if kubeflow.volume is not None:
        kubernetes.mount_pvc(task, kubeflow.volume.claim, kubeflow.volume.path)
    if kubeflow.image_pull_secrets:
        kubernetes.set_image_pull_secrets(task, list(kubeflow.image_pull_secrets))
    kubernetes.set_timeout(task, int(kubeflow.timeout.total_seconds()))
    if name == ComponentId.TRAINER:
        for variable, path in POD_FIELDS.items():
            kubernetes.use_field_path_as_env(task, variable, path)
    # The first step reads older spans in the same way as ExampleGen reads the newest span.
    reads_like_example_gen = name == SETUP and SETUP not in kubeflow.resources
    _set_resources(
        task, kubeflow.resources_of(ComponentId.EXAMPLE_GEN if reads_like_example_gen else name)
    )
    return task


def _set_resources(task: dsl.PipelineTask, resources: Resources) -> None:
    amounts = (
        (task.set_cpu_request, resources.cpu),
        (task.set_cpu_limit, resources.cpu_limit),
        (task.set_memory_request, resources.memory),
        (task.set_memory_limit, resources.memory_limit),
    )
    for set_amount, amount in amounts:
        if amount is not None:
            set_amount(amount)
    if resources.accelerator is not None:
        task.set_accelerator_type(resources.accelerator.type)
        task.set_accelerator_limit(resources.accelerator.count)
    for label, value in resources.node_selector.items():
        kubernetes.add_node_selector(task, label, value)
    for toleration in resources.tolerations:
        kubernetes.add_toleration(
            task, toleration.key, toleration.operator.value, toleration.value, toleration.effect
        )


def _allow_all_attempts(
    specification: pipeline_spec_pb2.PipelineSpec, kubeflow: KubeflowSettings
) -> None:
    """Gives each step a time limit that covers all its attempts.

    kfp limits `backoff_max_duration` to an hour. Argo measures this duration from the start of the
    first attempt. At its end, Argo stops the current attempt and starts no other. The duration must
    therefore cover all attempts and the waits between them.
    """
    attempts = kubeflow.retries + 1
    timeout = int(kubeflow.timeout.total_seconds())
    seconds = attempts * timeout + RETRY_SECONDS * 2**attempts
    for component in (specification.root, *specification.components.values()):
        for task in component.dag.tasks.values():
            if task.HasField("retry_policy"):
                task.retry_policy.backoff_max_duration.seconds = seconds


def _to_yaml(pipeline: dsl.base_component.BaseComponent) -> str:
    """Returns the YAML of a pipeline, through a file, because kfp only writes files."""
    with ScratchFolder() as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        return path.read_text()
