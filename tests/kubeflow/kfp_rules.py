"""What a compiled pipeline must keep so that the backend runs it as it was meant.

Each rule names the file of the backend that it comes from, below backend/src of
github.com/kubeflow/pipelines, or the part of Argo Workflows or Kubernetes. Some of these files
refuse what breaks a rule, others ignore it silently. A pipeline that keeps them all runs from
Kubeflow Pipelines 2.5.0 on, and is tried again as it asks from 2.14.0 on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from kfp_pod_rules import POD_RULES
from kfp_spec import BackendError, Spec, parse

Rule = Callable[[Spec], Iterator[str]]

EXIT_TASK = pipeline_spec_pb2.PipelineTaskSpec.TriggerPolicy.ALL_UPSTREAM_TASKS_COMPLETED
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MOST_NAME_CHARACTERS = 57
"""The name of a workflow gets six more, and is a label of its pods: at most 63."""
CONSTANTS = ("{{$.pipeline_job_uuid}}", "{{$.pipeline_job_name}}")
"""Placeholders that stand for a whole input in every version."""
MOST_WORKFLOW_BYTES = 1_000_000
"""Of the one object that a run is: etcd takes 1.5 MB, and Argo adds to it."""


def check_backend_rules(text: str) -> list[str]:
    """Checks a compiled pipeline.

    Args:
      text: The YAML, one document or two.

    Returns:
      What breaks the backend's rules, each with the place in the pipeline.
    """
    try:
        spec = parse(text)
    except BackendError as error:
        return [str(error)]
    return [problem for rule in (*RULES, *POD_RULES) for problem in rule(spec)]


def dags(spec: Spec) -> Iterator[tuple[str, Any]]:
    """The root and all components that are DAGs, with their names."""
    yield "root", spec.pipeline.root
    for name, component in spec.pipeline.components.items():
        if component.HasField("dag"):
            yield name, component


def tasks(spec: Spec) -> Iterator[tuple[str, Any, Any]]:
    """All tasks: where they are, the task, and the component of the DAG that they are in."""
    for name, component in dags(spec):
        for key, task in sorted(component.dag.tasks.items()):
            yield f"{name}.{key}", task, component


def name_is_one_of_kubernetes(spec: Spec) -> Iterator[str]:
    """apiserver/template/v2_template.go, v2/compiler/argocompiler/argo.go (GenerateName)."""
    name = spec.pipeline.pipeline_info.name
    if not LABEL.fullmatch(name) or len(name) > MOST_NAME_CHARACTERS:
        yield f"pipelineInfo.name: {name!r} begins no name of a workflow"


def tasks_have_usable_names(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/dag.go: each task gets a neighbour called `<task>-driver`."""
    for name, component in dags(spec):
        keys = set(component.dag.tasks)
        for key in sorted(keys):
            if not LABEL.fullmatch(key) or len(key) > 63:
                yield f"{name}.{key}: is no name of a task"
            if f"{key}-driver" in keys:
                yield f"{name}.{key}-driver: is what the driver of {key} is called"


def components_are_containers_or_dags(spec: Spec) -> Iterator[str]:
    """v2/compiler/visitor.go, v2/compiler/argocompiler/dag.go: resolvers and the like fail."""
    for name, component in spec.pipeline.components.items():
        if component.HasField("dag"):
            continue
        executor = spec.executors.get(component.executor_label)
        if executor is None:
            yield f"{name}: executor {component.executor_label!r} not found"
        elif not executor.HasField("container"):
            yield f"{name}: a {executor.WhichOneof('spec')} executor is not supported"
    for place, task, _ in tasks(spec):
        if task.component_ref.name not in spec.pipeline.components:
            yield f"{place}: component {task.component_ref.name!r} not found"


def components_with_one_container_have_one_interface(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/argo.go: hashComponentContainer names components by container."""
    interfaces: dict[bytes, tuple[str, Any]] = {}
    for name, component in sorted(spec.pipeline.components.items()):
        executor = spec.executors.get(component.executor_label)
        if executor is None:
            continue
        key = executor.SerializeToString(deterministic=True)
        first, interface = interfaces.setdefault(key, (name, component.input_definitions))
        if interface != component.input_definitions:
            yield f"{name}: has the container of {first}, but other inputs: it would get those"


def dependencies_are_in_the_dag(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/dag.go (depends), workflow/validate of Argo."""
    for name, component in dags(spec):
        graph = {key: list(task.dependent_tasks) for key, task in component.dag.tasks.items()}
        for key, dependencies in sorted(graph.items()):
            for missing in sorted(set(dependencies) - set(graph)):
                yield f"{name}.{key}: depends on {missing!r}, which is not there"
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            yield f"{name}: tasks depend on each other: {' -> '.join(error.args[1])}"


def exit_tasks_hang_on_one_dag(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/dag.go: an exit task is a lifecycle hook of one other task."""
    for name, component in dags(spec):
        members = component.dag.tasks
        exits = {key for key, task in members.items() if _is_exit(task)}
        if exits == set(members):
            yield f"{name}: must contain one or more non-exit tasks"
        hung: dict[str, str] = {}
        for key in sorted(exits):
            on = list(members[key].dependent_tasks)
            if len(on) != 1 or on[0] in exits:
                yield f"{name}.{key}: an exit task depends on one task that is none, found {on}"
            elif hung.setdefault(on[0], key) != key:
                yield f"{name}.{key}: {on[0]} has the exit task {hung[on[0]]} already"
        for key, task in sorted(members.items()):
            for before in sorted(exits & set(task.dependent_tasks)):
                yield f"{name}.{key}: depends on {before}, an exit task"


def tasks_are_plain(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/dag.go: iterators, conditions and artifacts are more than we use."""
    for place, task, _ in tasks(spec):
        for key in ("parameter_iterator", "artifact_iterator"):
            if task.WhichOneof("iterator") == key:
                yield f"{place}: has a {key}"
        if task.trigger_policy.condition:
            yield f"{place}: has a condition"
        for name in sorted(task.inputs.artifacts):
            yield f"{place}.{name}: is an artifact; steps share a folder"


def inputs_are_constants_or_parameters(spec: Spec) -> Iterator[str]:
    """v2/driver/resolve.go (resolveInputParameter): placeholders stand for a whole constant."""
    for place, task, dag in tasks(spec):
        component = spec.pipeline.components.get(task.component_ref.name)
        known = component.input_definitions.parameters if component else {}
        for name, source in sorted(task.inputs.parameters.items()):
            where = f"{place}.{name}"
            kind = source.WhichOneof("kind")
            if name not in known:
                yield f"{where}: its component has no such input"
            if source.parameter_expression_selector:
                yield f"{where}: selects by expression"
            if kind == "component_input_parameter":
                outer = source.component_input_parameter
                if outer not in dag.input_definitions.parameters:
                    yield f"{where}: {outer!r} is no input of the DAG"
            elif kind != "runtime_value" or not source.runtime_value.HasField("constant"):
                yield f"{where}: is neither a constant nor a parameter"
            else:
                value = json_format.MessageToDict(source.runtime_value.constant)
                if isinstance(value, str) and "{{" in value and value not in CONSTANTS:
                    yield f"{where}: nothing replaces {value!r}"
        for name in sorted(set(known) - set(task.inputs.parameters)):
            yield f"{place}.{name}: newer drivers want a value for every input"


def steps_are_not_cached(spec: Spec) -> Iterator[str]:
    """v2/driver/container.go: what Kubeflow has cached never reaches TFX."""
    for place, task, _ in tasks(spec):
        if task.caching_options.enable_cache:
            yield f"{place}: is cached"


def retries_reach_to_the_end(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/container.go, workflow/controller/operator.go of Argo.

    `backoffMaxDuration` counts from the start of the first attempt: nothing is tried again after
    it, and a second attempt is stopped when it is over. Up to 2.5 only tasks of the root have a
    policy, so none inside an exit handler, and all of them share that of one.
    """
    policies: dict[bytes, str] = {}
    for place, task, _ in tasks(spec):
        if not task.HasField("retry_policy"):
            continue
        policy = task.retry_policy
        policies.setdefault(policy.SerializeToString(deterministic=True), place)
        if not policy.HasField("backoff_duration") or not policy.HasField("backoff_max_duration"):
            yield f"{place}: a retry policy needs both of its durations"
        if policy.backoff_factor != int(policy.backoff_factor):
            yield f"{place}: backoffFactor {policy.backoff_factor} is no whole number"
        component = spec.pipeline.components.get(task.component_ref.name)
        config = spec.kubernetes.get(component.executor_label) if component else None
        deadline = config.active_deadline_seconds if config else 0
        needed = deadline * (policy.max_retry_count + 1)
        if not deadline or policy.backoff_max_duration.seconds < needed:
            yield (
                f"{place}: {policy.max_retry_count} retries of up to {deadline} s do not fit into "
                f"backoffMaxDuration, {policy.backoff_max_duration.seconds} s"
            )
    if len(policies) > 1:
        yield f"{' and '.join(sorted(policies.values()))}: have different retry policies"


def the_workflow_fits_into_one_object(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/argo.go (saveProtoToArguments), limits of etcd.

    The workflow holds each container once in its arguments, and in the status of a driver, of an
    executor and of each attempt once more or twice.
    """
    size = 0
    for _, task, _ in tasks(spec):
        component = spec.pipeline.components.get(task.component_ref.name)
        executor = spec.executors.get(component.executor_label) if component else None
        if executor is not None:
            copies = 6 + 2 * task.retry_policy.max_retry_count
            size += copies * len(json_format.MessageToJson(executor, indent=None))
        size += 2 * len(json_format.MessageToJson(task, indent=None))
    if size > MOST_WORKFLOW_BYTES:
        yield f"a run would take {size:,} bytes, {MOST_WORKFLOW_BYTES:,} are allowed"


def _is_exit(task: Any) -> bool:
    return bool(task.trigger_policy.strategy == EXIT_TASK)


RULES: tuple[Rule, ...] = (
    name_is_one_of_kubernetes,
    tasks_have_usable_names,
    components_are_containers_or_dags,
    components_with_one_container_have_one_interface,
    dependencies_are_in_the_dag,
    exit_tasks_hang_on_one_dag,
    tasks_are_plain,
    inputs_are_constants_or_parameters,
    steps_are_not_cached,
    retries_reach_to_the_end,
    the_workflow_fits_into_one_object,
)
