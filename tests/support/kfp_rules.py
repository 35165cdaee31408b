"""What a compiled pipeline must keep so that the backend runs it as it was meant.

Each rule names the file of the backend that it comes from, below backend/src of
github.com/kubeflow/pipelines, or the part of Argo Workflows or Kubernetes. Some of these files
refuse what breaks a rule, others ignore it silently. What kfp's own compiler, or the rules of a
config, see to is not looked at again. A pipeline that keeps them all runs from Kubeflow Pipelines
2.5.0 on, and is tried again as it asks from 2.14.0 on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.compiled import CompiledPipeline

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?")
"""The name of a workflow gets six more, and is a label of its pods: at most 63."""
CONSTANTS = ("{{$.pipeline_job_uuid}}", "{{$.pipeline_job_name}}")
"""Placeholders that stand for a whole input in every version."""
INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
EXECUTOR_INPUT = "{{$}}"
"""What the launcher replaces by the inputs and outputs of a task, as JSON."""
OUTPUT = re.compile(r"\{\{\$\.outputs\.artifacts\['([^']+)'\]\.path\}\}")
KINDS = ("Dataset", "Model", "Metrics", "ClassificationMetrics", "HTML")
"""Artifacts that the UI has a view for."""
REFERENCE = re.compile(r"\$\$|\$\([^)]*\)")
VARIABLE = re.compile(r"(?!KFP_|ARGO_)[A-Za-z_][A-Za-z0-9_]*")
MOST_WORKFLOW_BYTES = 1_000_000
"""Of the one object that a run is: etcd takes 1.5 MB, and Argo adds to it."""
MOST_ARGUMENT_BYTES = 131_071
"""Of one argument: Linux, MAX_ARG_STRLEN."""
MOST_CONTAINER_BYTES = MOST_ARGUMENT_BYTES // 2
"""Of a container as JSON: it stands twice in ARGO_TEMPLATE, which is one variable."""
KNOWN_CONFIG = {
    *("secret_as_volume", "secret_as_env", "pvc_mount", "node_selector", "pod_metadata"),
    *("image_pull_secret", "image_pull_policy", "config_map_as_volume", "config_map_as_env"),
    *("active_deadline_seconds", "field_path_as_env", "tolerations", "empty_dir_mounts"),
}
"""What drivers from 2.5.0 on read, and what needs no more than they do with it."""


@dataclass(frozen=True)
class Spec:
    """The two documents of a compiled pipeline, and the executors that they describe."""

    pipeline: Any
    """PipelineSpec."""
    executors: dict[str, Any]
    """By label: PipelineDeploymentConfig.ExecutorSpec."""
    kubernetes: dict[str, Any]
    """By label: KubernetesExecutorConfig, of those that have one."""

    def config(self, task: Any) -> Any:
        """The settings of Kubernetes for the pod of a task."""
        label = self.pipeline.components[task.component_ref.name].executor_label
        empty = kubernetes_executor_config_pb2.KubernetesExecutorConfig()
        return self.kubernetes.get(label, empty)

    def tasks(self) -> Iterator[tuple[str, Any]]:
        """All tasks, those of the root and of its exit handler, by name."""
        for component in (self.pipeline.root, *self.pipeline.components.values()):
            yield from sorted(component.dag.tasks.items())

    def containers(self) -> Iterator[tuple[str, Any]]:
        """All containers, by the label of their executor."""
        return ((label, executor.container) for label, executor in self.executors.items())


Rule = Callable[[Spec], Iterator[str]]


def compile_shallow(config: PipelineConfig) -> CompiledPipeline:
    """Compiles in a thread, as kfp reads the sources of all callers for each setting of a step.

    That is nothing for a command, and seconds below a test's dozens of frames.
    """
    from pipeline.kubeflow.compiler import compile_pipeline

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(compile_pipeline, config).result()


def parse(text: str) -> Spec:
    """Reads a compiled pipeline as the backend does: a key that its messages do not know raises."""
    spec, platform = yaml.safe_load_all(text)
    pipeline = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    assert pipeline.schema_version == "2.1.0"
    deployment = json_format.ParseDict(
        json_format.MessageToDict(pipeline.deployment_spec),
        pipeline_spec_pb2.PipelineDeploymentConfig(),
    )
    told = json_format.ParseDict(platform, pipeline_spec_pb2.PlatformSpec()).platforms
    kubernetes = {
        label: json_format.ParseDict(
            json_format.MessageToDict(config),
            kubernetes_executor_config_pb2.KubernetesExecutorConfig(),
        )
        for label, config in told["kubernetes"].deployment_spec.executors.items()
    }
    return Spec(pipeline, dict(deployment.executors), kubernetes)


def check_backend_rules(text: str) -> list[str]:
    """What of a compiled pipeline breaks the backend's rules, each with the place in it."""
    spec = parse(text)
    return [problem for rule in RULES for problem in rule(spec)]


def name_is_one_of_kubernetes(spec: Spec) -> Iterator[str]:
    """apiserver/template/v2_template.go, v2/compiler/argocompiler/argo.go (GenerateName)."""
    name = spec.pipeline.pipeline_info.name
    if not NAME.fullmatch(name):
        yield f"pipelineInfo.name: {name!r} begins no name of a workflow"


def placeholders_stand_for_whole_inputs(spec: Spec) -> Iterator[str]:
    """v2/driver/resolve.go (resolveInputParameter)."""
    for place, task in spec.tasks():
        for name, source in sorted(task.inputs.parameters.items()):
            value = json_format.MessageToDict(source.runtime_value.constant)
            if isinstance(value, str) and "{{" in value and value not in CONSTANTS:
                yield f"{place}.{name}: nothing replaces {value!r}"


def steps_are_not_cached(spec: Spec) -> Iterator[str]:
    """v2/driver/container.go: what Kubeflow has cached never reaches TFX."""
    for place, task in spec.tasks():
        if task.caching_options.enable_cache:
            yield f"{place}: is cached"


def retries_reach_to_the_end(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/container.go, workflow/controller/operator.go of Argo.

    `backoffMaxDuration` counts from the start of the first attempt: nothing is tried again after
    it, and a second attempt is stopped when it is over. Up to 2.5 only tasks of the root have a
    policy, so none inside an exit handler, and all of them share that of one.
    """
    tried = [(place, task) for place, task in spec.tasks() if task.HasField("retry_policy")]
    for place, task in tried:
        policy, deadline = task.retry_policy, spec.config(task).active_deadline_seconds
        if not policy.HasField("backoff_duration"):
            yield f"{place}: a retry policy needs both of its durations"
        if policy.backoff_factor != int(policy.backoff_factor):
            yield f"{place}: backoffFactor {policy.backoff_factor} is no whole number"
        needed = deadline * (policy.max_retry_count + 1)
        if not deadline or policy.backoff_max_duration.seconds < needed:
            yield (
                f"{place}: {policy.max_retry_count} retries of up to {deadline} s do not fit into "
                f"backoffMaxDuration, {policy.backoff_max_duration.seconds} s"
            )
    if len({task.retry_policy.SerializeToString(deterministic=True) for _, task in tried}) > 1:
        yield "tasks have different retry policies"


def the_workflow_fits_into_one_object(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/argo.go (saveProtoToArguments), limits of etcd.

    The workflow holds each container once in its arguments, and in the status of a driver, of an
    executor and of each attempt once more or twice.
    """
    size = 0
    for _, task in spec.tasks():
        component = spec.pipeline.components[task.component_ref.name]
        if executor := spec.executors.get(component.executor_label):
            copies = 6 + 2 * task.retry_policy.max_retry_count
            size += copies * len(json_format.MessageToJson(executor, indent=None))
        size += 2 * len(json_format.MessageToJson(task, indent=None))
    if size > MOST_WORKFLOW_BYTES:
        yield f"a run would take {size:,} bytes, {MOST_WORKFLOW_BYTES:,} are allowed"


def placeholders_are_those_of_old_launchers(spec: Spec) -> Iterator[str]:
    """v2/driver/util.go (resolveContainerArgs), v2/component/launcher_v2.go (getPlaceholders).

    Launchers before 2.16 know neither IfPresent nor Concat, and leave them as they are.
    """
    for label, container in spec.containers():
        for word in (*container.command, *container.args):
            if "{{" in OUTPUT.sub("", INPUT.sub("", word)).replace(EXECUTOR_INPUT, ""):
                yield f"{label}: nothing replaces the placeholder in {word[:100]!r}"
            if word.lstrip().startswith(('{"IfPresent"', '{"Concat"')):
                yield f"{label}: {word[:100]!r} is no text to older versions"


def outputs_reach_the_ui(spec: Spec) -> Iterator[str]:
    """v2/component/launcher_v2.go (getPlaceholders, uploadOutputArtifacts), and
    frontend/src/components/viewers/MetricsVisualizations.tsx.

    A container finds its outputs, and the file for their metadata, in the executor's input. Newer
    launchers have an output of their own, executor-logs.
    """
    for component in spec.pipeline.components.values():
        if (executor := spec.executors.get(component.executor_label)) is None:
            continue
        label, declared = component.executor_label, component.output_definitions.artifacts
        words = executor.container.args
        named = {name for word in words for name in OUTPUT.findall(word)}
        for name in sorted(named ^ set(declared)):
            yield f"{label}: the output {name!r} is not both declared and given to the container"
        if declared and EXECUTOR_INPUT not in words:
            yield f"{label}: cannot say the metadata of its outputs without {EXECUTOR_INPUT}"
        for name, output in sorted(declared.items()):
            if (
                output.artifact_type.schema_title.removeprefix("system.") not in KINDS
                or name == "executor-logs"
            ):
                yield f"{label}: {name!r}, {output.artifact_type.schema_title}, is not shown"


def nothing_is_expanded_by_accident(spec: Spec) -> Iterator[str]:
    """Kubernetes expands $(NAME) and $$ in commands, arguments and variables; Argo expands {{."""
    for label, container in spec.containers():
        values = [variable.value for variable in container.env]
        for word in (*container.command, *container.args, *values):
            if REFERENCE.search(word):
                yield f"{label}: Kubernetes changes {REFERENCE.search(word)[0]!r}"
        for value in values:
            if "{{" in value:
                yield f"{label}: Argo changes {value[:100]!r}"


def arguments_are_short_enough(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/container.go: the driver gets the container as one argument."""
    for label, container in spec.containers():
        for word in (*container.command, *container.args):
            if len(word.encode()) > MOST_ARGUMENT_BYTES:
                yield f"{label}: an argument takes {len(word.encode()):,} bytes"
        size = len(json_format.MessageToJson(container, indent=None, ensure_ascii=False).encode())
        if size > MOST_CONTAINER_BYTES:
            yield f"{label}: takes {size:,} bytes, {MOST_CONTAINER_BYTES:,} are allowed"


def variables_are_named_once(spec: Spec) -> Iterator[str]:
    """v2/driver/k8s.go (extendPodSpecPatch): variables of secrets and fields follow the others."""
    for label, container in spec.containers():
        names = [variable.name for variable in container.env]
        if config := spec.kubernetes.get(label):
            names += [pair.env_var for one in config.secret_as_env for pair in one.key_to_env]
            names += [one.name for one in config.field_path_as_env]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{label}: {name} is set twice"
        for name in names:
            if not VARIABLE.fullmatch(name):
                yield f"{label}: {name!r} is no variable of ours"


def old_drivers_know_the_config(spec: Spec) -> Iterator[str]:
    """v2/driver/k8s.go: what is newer than 2.5 is left out; there, names stand in two fields."""
    for label, config in spec.kubernetes.items():
        for field, _ in config.ListFields():
            if field.name not in KNOWN_CONFIG:
                yield f"{label}: {field.name} is unknown to drivers of 2.5"
        for one in (*config.secret_as_env, *config.image_pull_secret):
            newer = one.secret_name_parameter.runtime_value.constant.string_value
            if newer != one.secret_name:
                yield f"{label}: older drivers read {one.secret_name!r}, newer ones {newer!r}"


RULES: tuple[Rule, ...] = (
    name_is_one_of_kubernetes,
    placeholders_stand_for_whole_inputs,
    steps_are_not_cached,
    retries_reach_to_the_end,
    the_workflow_fits_into_one_object,
    placeholders_are_those_of_old_launchers,
    outputs_reach_the_ui,
    nothing_is_expanded_by_accident,
    arguments_are_short_enough,
    variables_are_named_once,
    old_drivers_know_the_config,
)
