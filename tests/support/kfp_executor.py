"""Runs compiled pipelines as Kubeflow Pipelines v2 does, with processes for containers.

The order of tasks, exit handlers, inputs, environments, retries and timeouts follow the backend:
its compiler to Argo, its driver and its launcher. The pods are processes of this machine, so an
image is an environment that the test gives. What the backend would refuse is for `kfp_rules`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from kfp.local.executor_input_utils import construct_executor_input
from kfp.local.executor_output_utils import get_outputs_for_task
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.support import warm
from tests.support.kfp_rules import EXECUTOR_INPUT, INPUT, OUTPUT, Spec, parse

EXIT_TASK = pipeline_spec_pb2.PipelineTaskSpec.TriggerPolicy.ALL_UPSTREAM_TASKS_COMPLETED
_REFERENCE = re.compile(r"\$(\$|\(([^)]+)\))")
_METADATA_CONFIG = {
    "METADATA_GRPC_SERVICE_HOST": "metadata-grpc-service",
    "METADATA_GRPC_SERVICE_PORT": "8080",
}
"""What every pod has of the config map metadata-grpc-configmap."""

OnStart = Callable[[str, int, "subprocess.Popen[bytes]"], None]
Values = dict[str, Any]


class BackendError(Exception):
    """The API server refuses the parameters, or no pod can start."""


class State(StrEnum):
    """What became of a task or a run."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


@dataclass
class Attempt:
    """One pod."""

    log_path: Path
    exit_code: int | None = None

    @property
    def log(self) -> str:
        """What it wrote."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""


@dataclass
class TaskRun:
    """A task of a run."""

    name: str
    state: State = State.SKIPPED
    attempts: list[Attempt] = field(default_factory=list)
    error: str = ""
    """Why no pod could start."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """The artifacts of kfp that it has written, by name, as kfp's local runner reads them."""
    started: float = 0.0
    ended: float = 0.0

    @property
    def log(self) -> str:
        """That of the last attempt."""
        return self.attempts[-1].log if self.attempts else ""

    @property
    def is_running(self) -> bool:
        """Whether it has begun, and has not come to its end yet."""
        return self.started > 0 and self.ended == 0


@dataclass
class Run:
    """A run that has ended."""

    run_id: str
    state: State
    tasks: dict[str, TaskRun]
    """All containers and DAGs, by the task's name."""

    def report(self) -> str:
        """What failed, with its log: for assertions."""
        lines = [f"run {self.run_id}: {self.state}"]
        for task in self.tasks.values():
            lines.append(f"{task.name}: {task.state}, attempts {len(task.attempts)} {task.error}")
            if task.state == State.FAILED:
                lines += [f"    {line}" for line in task.log.splitlines()[-40:]]
        return "\n".join(lines)


@dataclass(kw_only=True)
class Executor:
    """A cluster with one pipeline; runs it, several times at once if need be."""

    text: str
    """The compiled YAML."""
    workdir: Path
    """Logs go below it, one folder a run."""
    image_env: Mapping[str, str]
    """All variables that the image and its nodes set."""
    secrets: Mapping[str, Mapping[str, str]]
    claims: Mapping[str, Path]
    """Volume claims, each with the folder that it is here, and must be mounted at."""
    on_start: OnStart | None = None
    """Called with task, attempt and process once a pod has started."""

    def run(self, parameters: Mapping[str, Any] | None = None) -> Run:
        """Runs the pipeline to its end."""
        return self.begin().run(parameters or {})

    def begin(self, run_id: str | None = None) -> Execution:
        """A run to watch: its `run` does the work, in a thread of the caller's."""
        return Execution(self, run_id or str(uuid.uuid4()))


class Execution:
    """One run under way; its tasks can be read at any time."""

    def __init__(self, cluster: Executor, run_id: str) -> None:
        self.cluster = cluster
        self.spec: Spec = parse(cluster.text)
        self.run_id = run_id
        self.folder = cluster.workdir / "pods" / run_id
        self.tasks: dict[str, TaskRun] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.lock = threading.Lock()
        self.is_over = False

    def run(self, parameters: Mapping[str, Any]) -> Run:
        root = self.spec.pipeline.root
        known = root.input_definitions.parameters
        defaults = {n: json_format.MessageToDict(p.default_value) for n, p in known.items()}
        for name, value in parameters.items():
            if name not in known or isinstance(value, str) != isinstance(defaults[name], str):
                raise BackendError(f"the parameter {name} cannot be {value!r}")
        state = self._run_dag(root.dag, defaults | parameters)
        return Run(self.run_id, state, self.tasks)

    def _run_dag(self, dag: Any, inputs: Values) -> State:
        """Runs the tasks of a DAG, those at once that do not wait for each other.

        Whatever depends on a task that failed is skipped; the others go on to their end.
        """
        self.tasks |= {name: TaskRun(name) for name in dag.tasks}
        waiting = {name for name, task in dag.tasks.items() if not _is_exit(task)}
        running: dict[Future[State], str] = {}
        states: dict[str, State] = {}
        with ThreadPoolExecutor(max_workers=max(len(waiting), 1)) as threads:
            try:
                while True:
                    for name in sorted(waiting):
                        upstream = dag.tasks[name].dependent_tasks
                        if all(states.get(dep) == State.SUCCEEDED for dep in upstream):
                            running[threads.submit(self._run_task, name, dag, inputs)] = name
                    waiting -= set(running.values())
                    if not running:
                        break
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        states[running.pop(future)] = future.result()
            except BaseException:
                self.end()
                raise
        return State.FAILED if State.FAILED in states.values() else State.SUCCEEDED

    def _run_task(self, name: str, dag: Any, parent: Values) -> State:
        """Runs a task, and then the exit task that hangs on it.

        The exit task runs whatever became of the task, unless its driver failed; and what becomes
        of the exit task is nothing to the DAG.
        """
        task, record = dag.tasks[name], self.tasks[name]
        record.started = time.time()
        try:
            component = self.spec.pipeline.components[task.component_ref.name]
            inputs = {n: self._value(s, parent) for n, s in task.inputs.parameters.items()}
            if component.HasField("dag"):
                record.state = self._run_dag(component.dag, inputs)
            else:
                record.state = self._run_container(record, task, component, inputs)
        except BackendError as error:
            record.state, record.error = State.FAILED, str(error)
            return record.state
        finally:
            record.ended = time.time()
        for hook, exit_task in dag.tasks.items():
            if _is_exit(exit_task) and name in exit_task.dependent_tasks:
                self._run_task(hook, dag, parent)
        return record.state

    def _value(self, source: Any, parent: Values) -> Any:
        """The value of an input, from where the task takes it."""
        if outer := source.component_input_parameter:
            return parent[outer]
        value = json_format.MessageToDict(source.runtime_value.constant)
        return self.run_id if value == "{{$.pipeline_job_uuid}}" else value

    def _run_container(self, record: TaskRun, task: Any, component: Any, inputs: Values) -> State:
        container = self.spec.executors[component.executor_label].container
        config = self.spec.config(task)
        secrets = self._secret_variables(config)
        for mount in config.pvc_mount:
            if str(self.cluster.claims.get(mount.constant)) != mount.mount_path:
                raise BackendError(f"{mount.constant} cannot be mounted at {mount.mount_path}")
        words = [
            INPUT.sub(lambda match: _text_of(inputs[match[1]]), word)
            for word in (*container.command, *container.args)
        ]
        policy, began = task.retry_policy, time.monotonic()
        for number in range(policy.max_retry_count + 1):
            # Argo counts from the start of the first attempt; it does so here without its waits.
            is_late = time.monotonic() - began > policy.backoff_max_duration.seconds
            if self.is_over or (number > 0 and is_late):
                break
            pod = f"{self.run_id[:8]}-{record.name}-{number}"
            own: dict[str, str] = {}
            for one in container.env:
                own[one.name] = _expand(one.value, own)
            own |= {**secrets, "KFP_POD_NAME": pod, "KFP_POD_UID": str(uuid.uuid4())}
            fields = {"metadata.name": pod, "metadata.namespace": "kubeflow"}
            own |= {one.name: fields[one.field_path] for one in config.field_path_as_env}
            environment = {**self.cluster.image_env, **_METADATA_CONFIG, "HOSTNAME": pod, **own}
            # The outputs of an attempt are in its own pod.
            outputs = self.folder / record.name / str(number) / "outputs"
            given = construct_executor_input(component, inputs, str(outputs), True)
            command = [_expand(word, own) for word in _with_outputs(words, given)]
            attempt = Attempt(self.folder / record.name / str(number) / "main.log")
            record.attempts.append(attempt)
            deadline = config.active_deadline_seconds or None
            attempt.exit_code = self._run_pod(record.name, number, command, environment, deadline)
            if attempt.exit_code == 0:
                record.outputs = get_outputs_for_task(given, component)
                return State.SUCCEEDED
        return State.FAILED

    def _secret_variables(self, config: Any) -> dict[str, str]:
        """The variables that come from secrets; without one of them no container starts."""
        try:
            return {
                pair.env_var: self.cluster.secrets[source.secret_name][pair.secret_key]
                for source in config.secret_as_env
                for pair in source.key_to_env
            }
        except KeyError as error:
            raise BackendError(f"CreateContainerConfigError: no secret {error}") from None

    def _run_pod(
        self,
        task: str,
        number: int,
        command: list[str],
        environment: dict[str, str],
        deadline: float | None,
    ) -> int:
        """Runs a pod to its end; one that takes longer than its deadline is killed."""
        folder = self.folder / task / str(number) / "root"
        folder.mkdir(parents=True)
        with (folder.parent / "main.log").open("wb") as log:
            process = warm.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            with self.lock:
                self.processes.append(process)
            if self.cluster.on_start:
                self.cluster.on_start(task, number, process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(deadline)
        finally:
            _kill(process)
        return process.wait()

    def end(self) -> None:
        """Kills what runs, and starts no more."""
        self.is_over = True
        with self.lock:
            for process in self.processes:
                if process.poll() is None:
                    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a container with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _text_of(value: Any) -> str:
    """A value as the driver and the launcher write it: 3.0 becomes 3."""
    is_whole = isinstance(value, float) and value.is_integer()
    return value if isinstance(value, str) else json.dumps(int(value) if is_whole else value)


def _with_outputs(words: list[str], given: Any) -> list[str]:
    """Replaces the placeholders of outputs, as the launcher does."""
    artifacts, text = given.outputs.artifacts, json_format.MessageToJson(given, indent=None)
    return [
        OUTPUT.sub(lambda match: artifacts[match[1]].artifacts[0].uri, word).replace(
            EXECUTOR_INPUT, text
        )
        for word in words
    ]


def _expand(word: str, environment: Mapping[str, str]) -> str:
    """Replaces $(NAME) as Kubernetes does; `$$` stands for `$`, and unknown names stay."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else environment.get(match[2], match[0])

    return _REFERENCE.sub(value, word)


def _is_exit(task: Any) -> bool:
    return bool(task.trigger_policy.strategy == EXIT_TASK)
