"""Compiles a config for open-source Kubeflow Pipelines: one container per TFX node.

Each step runs its node with TFX's own launcher, against a metadata store of ours: so resolvers,
caching, spans and warm starts are TFX's, not those of Kubeflow.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfp import compiler, dsl, kubernetes

from components.trainer.cluster.kubernetes.pod_settings import Resources
from pipeline.config.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import cluster_layout, run_root, settings_of
from pipeline.kubeflow.compiled import FINALIZE, SETUP, CompiledPipeline, ParameterValue
from pipeline.kubeflow.compiling.codec import pack_argument
from pipeline.kubeflow.compiling.nodes import compile_graph, cut
from pipeline.kubeflow.image import code_hash
from pipeline.run_context import resolve_elsewhere

COMMAND = ("python", "-P", "-m", "pipeline.kubeflow.step")
"""Of every container; -P: whatever lies in the folder that it starts in hides no module."""
RETRY_SECONDS = 10
"""The wait before a step is tried again; it doubles each time."""
KFP_LONGEST = "backoffMaxDuration: 3600s"
"""What kfp writes, whatever it is told beyond. Argo counts it from the first attempt's start: no
later one may begin after it, nor live on."""
GIVEN_BY_KUBEFLOW = {"SCOPELINE_POD_NAME": "metadata.name"}
"""Of its pod, which a cluster of pods that it starts belongs to."""
NOT_FOR_STEPS: Any = {
    "kubeflow": {"endpoint", "namespace", "experiment"},
    "schedule": {"cron", "timezone", "on_new_data", "poll", "retry", "timeout"},
}


def compile_pipeline(config: PipelineConfig) -> CompiledPipeline:
    """Compiles a pipeline; the same config and code give the same bytes.

    Args:
      config: checked for Kubeflow.

    Raises:
      ConfigError: a step would have to be told too much.
    """
    layout = cluster_layout(config, is_elsewhere=True)
    graph = compile_graph(resolve_elsewhere(config, layout))
    nodes = cut(graph)
    upstream = {n.pipeline_node.node_info.id: n.pipeline_node.upstream_nodes for n in graph.nodes}
    told = pack_argument(_tell(config).encode(), "the config")
    kubeflow = settings_of(config)

    def body(epochs: int, strategy: str, span: str) -> None:
        conclude = _step(kubeflow, FINALIZE, ["conclude", "--config", told])
        with dsl.ExitHandler(_finish(conclude, kubeflow, FINALIZE)):
            begin = _first_step(kubeflow, told)(
                run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, epochs=epochs, strategy=strategy, span=span
            )
            tasks = {SETUP: _finish(begin, kubeflow, SETUP)}
            for node, packed in nodes.items():
                task = _step(kubeflow, node, ["run", "--root", run_root(layout), "--node", packed])
                tasks[node] = _finish(task, kubeflow, node)
                task.after(*(tasks[before] for before in (upstream[node] or [SETUP])))

    defaults: dict[str, ParameterValue] = {
        "epochs": config.train.epochs,
        "strategy": config.train.strategy.kind,
        "span": "",
    }
    body.__defaults__ = tuple(defaults.values())
    steps = {task_name(name): name for name in (SETUP, *nodes, FINALIZE)}
    text = _to_yaml(config.name, body)
    text = text.replace(KFP_LONGEST, f"backoffMaxDuration: {_longest(kubeflow)}s")
    return CompiledPipeline(config.name, text, steps, defaults)


def _tell(config: PipelineConfig) -> str:
    """The config, but for what is no step's business: who compiles from elsewhere gets the same."""
    return config.model_dump_json(by_alias=True, exclude_unset=True, exclude=NOT_FOR_STEPS)


def task_name(node: str) -> str:
    """What Kubeflow calls a node's task."""
    return node.lower()


def _step(kubeflow: KubeflowSettings, name: str, arguments: list[str]) -> dsl.PipelineTask:
    """A container that is told the run's id, besides what is known now."""

    def container(run_id: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image=kubeflow.image,
            command=list(COMMAND),
            args=[*arguments, "--run-id", run_id],
        )

    container.__name__ = task_name(name)
    return dsl.container_component(container)(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)


def _first_step(kubeflow: KubeflowSettings, told: str) -> dsl.base_component.BaseComponent:
    """The one step that is told the pipeline's parameters."""

    def begin(run_id: str, epochs: int, strategy: str, span: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image=kubeflow.image,
            command=list(COMMAND),
            args=[
                *("begin", "--config", told, "--code", code_hash(), "--run-id", run_id),
                *("--epochs", epochs, "--strategy", strategy, "--span", span),
            ],
        )

    begin.__name__ = task_name(SETUP)
    return dsl.container_component(begin)


def _finish(task: dsl.PipelineTask, kubeflow: KubeflowSettings, name: str) -> dsl.PipelineTask:
    """Says where and how a step runs."""
    # TFX knows better what has changed.
    task.set_caching_options(False)
    if kubeflow.retries:
        task.set_retry(
            kubeflow.retries,
            backoff_duration=f"{RETRY_SECONDS}s",
            backoff_factor=2.0,
        )
    for variable, value in kubeflow.environment.items():
        task.set_env_variable(variable, value)
    for variable, secret in kubeflow.secrets.items():
        kubernetes.use_secret_as_env(task, secret.secret, {secret.key: variable})
    if kubeflow.volume is not None:
        kubernetes.mount_pvc(task, kubeflow.volume.claim, kubeflow.volume.path)
    if kubeflow.image_pull_secrets:
        kubernetes.set_image_pull_secrets(task, list(kubeflow.image_pull_secrets))
    kubernetes.set_timeout(task, int(kubeflow.timeout.total_seconds()))
    if name == "Trainer":
        for variable, path in GIVEN_BY_KUBEFLOW.items():
            kubernetes.use_field_path_as_env(task, variable, path)
    # The first step reads the older spans.
    reads = name == SETUP and SETUP not in kubeflow.resources
    _give(task, kubeflow.resources_of("ExampleGen" if reads else name))
    return task


def _longest(kubeflow: KubeflowSettings) -> int:
    """Seconds from a step's first attempt to the end of its last one."""
    attempts = kubeflow.retries + 1
    return attempts * int(kubeflow.timeout.total_seconds()) + RETRY_SECONDS * 2**attempts


def _give(task: dsl.PipelineTask, resources: Resources) -> None:
    amounts = (
        (task.set_cpu_request, resources.cpu),
        (task.set_cpu_limit, resources.cpu_limit),
        (task.set_memory_request, resources.memory),
        (task.set_memory_limit, resources.memory_limit),
    )
    for give, amount in amounts:
        if amount is not None:
            give(amount)
    if resources.accelerator is not None:
        task.set_accelerator_type(resources.accelerator.type)
        task.set_accelerator_limit(resources.accelerator.count)
    for label, value in resources.node_selector.items():
        kubernetes.add_node_selector(task, label, value)
    for toleration in resources.tolerations:
        kubernetes.add_toleration(
            task, toleration.key, toleration.operator.value, toleration.value, toleration.effect
        )


def _to_yaml(name: str, body: Callable[[int, str, str], None]) -> str:
    """Kfp writes to files alone."""
    with tempfile.TemporaryDirectory(prefix="scopeline-") as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(dsl.pipeline(name=name)(body), str(path))
        return path.read_text()
