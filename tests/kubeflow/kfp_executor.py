"""Runs compiled pipelines as Kubeflow Pipelines v2 does, with processes for containers.

The order of tasks, exit handlers, inputs, placeholders, environments, retries and timeouts follow
the backend: its compiler to Argo, its driver and its launcher. The pods are processes of this
machine, so an image is an environment that the test gives.
"""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import warm
from kfp.kubernetes.kubernetes_executor_config_pb2 import KubernetesExecutorConfig
from kfp.pipeline_spec import pipeline_spec_pb2
from kfp_pod import kill, run_pod
from kfp_run import Attempt, Run, State, TaskRun
from kfp_spec import BackendError, Spec, parse
from kfp_values import Values, command_of, expand, resolve, root_inputs, task_inputs

EXIT_TASK = pipeline_spec_pb2.PipelineTaskSpec.TriggerPolicy.ALL_UPSTREAM_TASKS_COMPLETED
_METADATA_CONFIG = {
    "METADATA_GRPC_SERVICE_HOST": "metadata-grpc-service",
    "METADATA_GRPC_SERVICE_PORT": "8080",
}
"""What every pod has of the config map metadata-grpc-configmap."""

OnStart = Callable[[str, int, "subprocess.Popen[bytes]"], None]


class Executor:
    """A cluster with one pipeline; runs it, several times at once if need be."""

    def __init__(
        self,
        text: str,
        *,
        workdir: Path,
        image_env: Mapping[str, str],
        image_workdir: Path | None = None,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        claims: Mapping[str, Path] | None = None,
        on_start: OnStart | None = None,
        cold: Collection[str] = (),
    ) -> None:
        """Reads the pipeline.

        Args:
          text: The compiled YAML.
          workdir: Logs go below it, one folder a run.
          image_env: All variables that the image and its nodes set.
          image_workdir: The image's working directory; default: an empty folder a pod.
          secrets: The namespace's secrets.
          claims: The namespace's volume claims, each with the folder that it is here. A pipeline
              must mount it at that very path.
          on_start: Called with task, attempt and process once a pod has started.
          cold: Tasks that start a Python of their own; that of others has imported TFX.

        Raises:
          BackendError: The API server would refuse the pipeline.
        """
        self.spec: Spec = parse(text)
        self.image_env = dict(image_env)
        self.secrets = secrets or {}
        self.claims = claims or {}
        self.on_start = on_start
        self.cold = cold
        self.workdir = workdir
        self.image_workdir = image_workdir

    def run(self, parameters: Mapping[str, Any] | None = None, *, run_id: str | None = None) -> Run:
        """Runs the pipeline to its end.

        Args:
          parameters: Runtime parameters.
          run_id: A UUID; default: a new one.

        Returns:
          What became of it.

        Raises:
          BackendError: The API server would refuse the parameters.
        """
        return self.begin(run_id).run(parameters or {})

    def begin(self, run_id: str | None = None) -> Execution:
        """A run to watch: its `run` does the work, in a thread of the caller's."""
        return Execution(self, run_id or str(uuid.uuid4()))


class Execution:
    """One run under way; its tasks can be read at any time."""

    def __init__(self, cluster: Executor, run_id: str) -> None:
        self.cluster = cluster
        self.spec = cluster.spec
        self.run_id = run_id
        self.folder = cluster.workdir / "pods" / run_id
        self.folder.mkdir(parents=True)
        self.tasks: dict[str, TaskRun] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.lock = threading.Lock()
        self.is_over = False

    def run(self, parameters: Mapping[str, Any]) -> Run:
        root = self.spec.pipeline.root
        inputs = root_inputs(root, parameters)
        state = self._run_dag(root.dag, inputs)
        return Run(self.run_id, state, self.tasks)

    def _run_dag(self, dag: Any, inputs: Values) -> State:
        """Runs the tasks of a DAG, those at once that do not wait for each other.

        Whatever depends on a task that failed is skipped; the others go on to their end.
        """
        self._enter(dag)
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
        if State.FAILED in states.values():
            return State.FAILED
        if waiting:
            raise BackendError(f"tasks that wait for each other, or for nothing: {sorted(waiting)}")
        return State.SUCCEEDED

    def _enter(self, dag: Any) -> None:
        for name in dag.tasks:
            if name in self.tasks:
                raise BackendError(f"two tasks are called {name}: not supported here")
            self.tasks[name] = TaskRun(name)

    def _run_task(self, name: str, dag: Any, parent: Values) -> State:
        """Runs a task, and then the exit task that hangs on it.

        The exit task runs whatever became of the task, unless its driver failed; and what becomes
        of the exit task is nothing to the DAG.
        """
        task, record = dag.tasks[name], self.tasks[name]
        record.started = time.time()
        try:
            component = self.spec.component(task)
            is_dag = component.HasField("dag")
            record.inputs = task_inputs(task, component, parent, self._job(name), is_dag=is_dag)
            if is_dag:
                record.state = self._run_dag(component.dag, record.inputs)
            else:
                record.state = self._run_container(record, task, component, parent)
        except BackendError as error:
            record.state, record.error = State.FAILED, str(error)
            return record.state
        finally:
            record.ended = time.time()
        for hook, exit_task in dag.tasks.items():
            if _is_exit(exit_task) and name in exit_task.dependent_tasks:
                self._run_task(hook, dag, parent)
        return record.state

    def _job(self, task: str) -> dict[str, str]:
        """What stands for a whole constant."""
        return {
            "{{$.pipeline_job_name}}": f"run {self.run_id}",
            "{{$.pipeline_job_resource_name}}": f"workflow-{self.run_id[:8]}",
            "{{$.pipeline_job_uuid}}": self.run_id,
            "{{$.pipeline_task_name}}": task,
        }

    def _run_container(self, record: TaskRun, task: Any, component: Any, parent: Values) -> State:
        label = component.executor_label
        executor = self.spec.executors.get(label)
        if executor is None or not executor.HasField("container"):
            raise BackendError(f"executor {label!r} is no container")
        config = self.spec.kubernetes.get(label, KubernetesExecutorConfig())
        secrets = self._secret_variables(config, parent)
        self._check_claims(config, parent)
        command = command_of(executor.container, component, record.inputs)
        start = subprocess.Popen if record.name in self.cluster.cold else warm.Popen
        policy, began = task.retry_policy, time.monotonic()
        for number in range(policy.max_retry_count + 1):
            # Argo counts from the start of the first attempt; it does so here without its waits.
            is_late = time.monotonic() - began > policy.backoff_max_duration.seconds
            if self.is_over or (number > 0 and is_late):
                break
            attempt = self._attempt(record.name, number, command, executor.container.env, secrets)
            _add_fields(attempt.environment, config.field_path_as_env)
            record.attempts.append(attempt)
            folder = self.cluster.image_workdir or attempt.log_path.parent / "root"
            folder.mkdir(exist_ok=True)
            started = partial(self._started, record.name, number)
            run_pod(attempt, folder, config.active_deadline_seconds, started, start)
            if attempt.exit_code == 0:
                return State.SUCCEEDED
        return State.FAILED

    def _secret_variables(self, config: Any, parent: Values) -> dict[str, str]:
        """The variables that come from secrets; without one of them no container starts."""
        variables = {}
        for source in config.secret_as_env:
            name = self._name_of(source, "secret_name_parameter", source.secret_name, parent)
            secret = self.cluster.secrets.get(name, {})
            for pair in source.key_to_env:
                if pair.secret_key in secret:
                    variables[pair.env_var] = secret[pair.secret_key]
                elif not source.optional:
                    raise BackendError(
                        f"CreateContainerConfigError: no key {pair.secret_key} in secret {name}"
                    )
        return variables

    def _check_claims(self, config: Any, parent: Values) -> None:
        for mount in config.pvc_mount:
            name = self._name_of(mount, "pvc_name_parameter", mount.constant, parent)
            if name not in self.cluster.claims:
                raise BackendError(f'persistentvolumeclaim "{name}" not found')
            if str(self.cluster.claims[name]) != mount.mount_path:
                raise BackendError(
                    f"{name} is {self.cluster.claims[name]} here, mounted at {mount.mount_path}"
                )

    def _name_of(self, source: Any, key: str, plain: str, parent: Values) -> str:
        """A name as newer drivers take it, which must be the one that older ones read."""
        if not source.HasField(key):
            return plain
        name = resolve(key, getattr(source, key), parent, {})
        if plain and name != plain:
            raise BackendError(f"older drivers read {plain!r}, newer ones {name!r}")
        return str(name)

    def _attempt(
        self, task: str, number: int, command: list[str], variables: Any, secrets: dict[str, str]
    ) -> Attempt:
        """What a pod is given."""
        pod = f"{self.run_id[:8]}-{task}-{number}"
        container: dict[str, str] = {}
        for one in variables:
            container[one.name] = expand([one.value], container)[0]
        container |= secrets
        container |= {"KFP_POD_NAME": pod, "KFP_POD_UID": str(uuid.uuid4())}
        cluster = {**_METADATA_CONFIG, "HOSTNAME": pod}
        folder = self.folder / task / str(number)
        folder.mkdir(parents=True)
        return Attempt(
            number=number,
            command=expand(command, container),
            environment={**self.cluster.image_env, **cluster, **container},
            log_path=folder / "main.log",
            started=time.time(),
        )

    def _started(self, task: str, number: int, process: subprocess.Popen[bytes]) -> None:
        with self.lock:
            self.processes.append(process)
        if self.cluster.on_start:
            self.cluster.on_start(task, number, process)

    def end(self) -> None:
        """Kills what runs, and starts no more."""
        self.is_over = True
        with self.lock:
            for process in self.processes:
                if process.poll() is None:
                    kill(process)


def _add_fields(environment: dict[str, str], fields: Any) -> None:
    """Variables that Kubernetes takes from the pod itself."""
    pod = {
        "metadata.name": environment["KFP_POD_NAME"],
        "metadata.uid": environment["KFP_POD_UID"],
        "metadata.namespace": "kubeflow",
    }
    for one in fields:
        environment[one.name] = pod[one.field_path]


def _is_exit(task: Any) -> bool:
    return bool(task.trigger_policy.strategy == EXIT_TASK)
