"""Runs a pipeline with TFX's LocalDagRunner, reports each component, and explains failures."""

from __future__ import annotations

import functools
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.portable import launcher, runtime_parameter_utils
from tfx.orchestration.portable.base_executor_operator import BaseExecutorOperator
from tfx.orchestration.portable.beam_executor_operator import BeamExecutorOperator
from tfx.proto.orchestration import pipeline_pb2
from tfx.proto.orchestration.executable_spec_pb2 import (
    BeamExecutableSpec,
    PythonClassExecutableSpec,
)

from components.compat.speed import speed_up
from components.disk import MAKE_ROOM, first_error_of, free_space, full_file, is_disk_full
from components.processes.failures import Frame, WorkerFailedError
from components.processes.stopping import check_stop
from components.user_errors import find_user_error
from pipeline.records.summary import State, Status

_STATES = {
    metadata_store_pb2.Execution.COMPLETE: State.RAN,
    metadata_store_pb2.Execution.CACHED: State.CACHED,
}


class ComponentFailedError(Exception):
    """The error of a failed component; `__cause__` is the component's own exception, or None."""

    def __init__(self, component: str) -> None:
        super().__init__(component)
        self.component = component


Gate = Callable[[str], AbstractContextManager[bool]]
"""A function that returns the context in which a node runs, and yields whether it may run."""


Meter = Callable[[str], AbstractContextManager[None]]
"""A function that returns the context in which a component is measured."""


class ComponentObserver(Protocol):
    """The interface of observers, which receive the start and end of each component."""

    def started(self, component: str) -> None:
        """Receives the start of a component."""

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        """Receives the end of a component, with the id of its execution in the metadata."""


@dataclass(frozen=True)
class Node:
    """A node of a compiled pipeline, with the arguments of its launcher."""

    id: str
    is_system: bool
    launcher_arguments: dict[str, Any]


class LocalRunner(LocalDagRunner):
    """A runner that runs the nodes one after another and reports each node."""

    def __init__(
        self,
        run_id: str,
        observer: ComponentObserver,
        gate: Gate = lambda _: nullcontext(True),
        measure: Meter = lambda _: nullcontext(),
    ) -> None:
        """Stores the arguments of the run.

        Args:
          run_id: the id of the run in the metadata.
          observer: the observer of each component; it is not notified of resolvers.
          gate: the gate that decides whether a node may run.
          measure: measures each component; resolvers are not measured.
        """
        super().__init__()
        self._run_id = run_id
        self._observer = observer
        self._gate = gate
        self._measure = measure

    def run_with_ir(
        self,
        pipeline: pipeline_pb2.Pipeline,
        run_options: pipeline_pb2.RunOptions | None = None,
    ) -> None:
        """Runs a compiled pipeline.

        Raises:
          ComponentFailedError: a component failed; later components did not run.
          KeyboardInterrupt: a signal stopped the process; no further component begins.
        """
        del run_options
        for node in compiled_nodes(pipeline, self._run_id):
            check_stop()
            if not node.is_system:
                self._observer.started(node.id)
            with self._gate(node.id) as may_run:
                self._run_node(node, may_run)

    def _run_node(self, node: Node, may_run: bool) -> None:
        started = time.monotonic()
        state, execution = State.FAILED, None
        try:
            if may_run:
                with nullcontext() if node.is_system else self._measure(node.id):
                    state, execution = launch(node)
            else:
                state = State.SKIPPED
        except Exception as error:
            raise ComponentFailedError(node.id) from error
        except KeyboardInterrupt:
            state = State.INTERRUPTED
            raise
        finally:
            if not node.is_system:
                seconds = time.monotonic() - started
                self._observer.finished(node.id, state, seconds, execution)
        if state is State.FAILED:
            raise ComponentFailedError(node.id)


def compiled_nodes(
    pipeline: pipeline_pb2.Pipeline,
    run_id: str,
    pipeline_root: str | None = None,
    connection: Any = None,
) -> Iterator[Node]:
    """Yields the nodes of a compiled pipeline in topological order, with a run's parameters.

    Args:
      pipeline: the compiled pipeline; its runtime parameters are substituted in place.
      run_id: the id of the run in the metadata.
      pipeline_root: the folder for artifacts; default: that of the pipeline.
      connection: the connection settings of the metadata; default: those of the pipeline.
    """
    parameters = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
    if pipeline_root is not None:
        parameters[constants.PIPELINE_ROOT_PARAMETER_NAME] = pipeline_root
    runtime_parameter_utils.substitute_runtime_parameter(pipeline, parameters)
    deployment = runner_utils.extract_local_deployment_config(pipeline)
    if connection is None:
        configured = deployment.metadata_connection_config
        connection = getattr(configured, configured.WhichOneof("connection_config"))
    for node in (node.pipeline_node for node in pipeline.nodes):
        executor = runner_utils.extract_executor_spec(deployment, node.node_info.id)
        operators = {}
        if isinstance(executor, BeamExecutableSpec):
            full_spec = BeamExecutableSpec.FromString(executor.SerializeToString())
            operators[BeamExecutableSpec] = functools.partial(_make_beam_operator, full_spec)
            # The cache key contains this spec, so the runner's options are removed from the spec.
            executor.ClearField("beam_pipeline_args")
            executor.ClearField("beam_pipeline_args_placeholders")
        yield Node(
            id=node.node_info.id,
            is_system=executor is None,
            launcher_arguments={
                "pipeline_node": node,
                "mlmd_connection": metadata.Metadata(connection),
                "pipeline_info": pipeline.pipeline_info,
                "pipeline_runtime_spec": pipeline.runtime_spec,
                "executor_spec": executor,
                "custom_executor_operators": operators,
                "custom_driver_spec": runner_utils.extract_custom_driver_spec(
                    deployment, node.node_info.id
                ),
            },
        )


def _make_beam_operator(
    full_spec: BeamExecutableSpec, executor_spec: BeamExecutableSpec, platform_config: Any
) -> BeamExecutorOperator:
    """Returns an operator for the full spec of an executor, not for the spec in the cache key."""
    del executor_spec
    return BeamExecutorOperator(full_spec, platform_config)


class ReplacingOperator(BaseExecutorOperator):
    """An operator that replaces the executor of any component by its `run_executor`."""

    SUPPORTED_EXECUTOR_SPEC_TYPE = [PythonClassExecutableSpec, BeamExecutableSpec]
    SUPPORTED_PLATFORM_CONFIG_TYPE = None


def launch(node: Node, operator: type[ReplacingOperator] | None = None) -> tuple[State, int | None]:
    """Launches a node with TFX's own launcher.

    Args:
      operator: an operator that replaces the executor of the node.

    Returns:
      The state, and the id of the execution. If the inputs could not be resolved, the launcher
      returns without an error, and the state is FAILED.
    """
    arguments = dict(node.launcher_arguments)
    if operator is not None:
        operators = dict.fromkeys(operator.SUPPORTED_EXECUTOR_SPEC_TYPE, operator)
        arguments["custom_executor_operators"] = operators
    node_launcher = launcher.Launcher(**arguments)
    speed_up()  # The launcher has imported the executor's libraries, which this call changes.
    info = node_launcher.launch()
    if info is None or not info.execution_id:
        return (State.RAN, None) if node.is_system else (State.FAILED, None)
    with node.launcher_arguments["mlmd_connection"] as handle:
        (execution,) = handle.store.get_executions_by_id([info.execution_id])
    return _STATES.get(execution.last_known_state, State.FAILED), info.execution_id


def explain(error: BaseException, sources: Iterable[Path] = ()) -> tuple[Status, str]:
    """Returns the status of a run that an error has ended, and a sentence about the cause.

    Args:
      error: the exception of a run.
      sources: files of the user's code; the message names the failing line in them.
    """
    if isinstance(error, KeyboardInterrupt):
        return Status.INTERRUPTED, "interrupted"
    user_error = find_user_error(error)
    if user_error is not None:
        return Status.after(user_error), str(user_error)
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if is_disk_full(cause):
        return Status.FAILED, f"the disk is full ({_full_disk(cause)}); {MAKE_ROOM}"
    if isinstance(cause, ComponentFailedError):
        return Status.FAILED, "the inputs could not be resolved; the log has the reason"
    if isinstance(cause, WorkerFailedError):
        return Status.FAILED, _location(cause.frames, sources) + str(cause)
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    message = f"{type(cause).__name__}: {lines[-1] if lines else 'no message'}"
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(cause.__traceback__)]
    return Status.FAILED, _location(frames, sources) + message


def _full_disk(error: BaseException) -> str:
    """Returns the file that could not be written and the free space on its disk, if known."""
    if not isinstance(error, OSError):
        file = full_file(error)
        return f"{file}: {free_space(Path(file))}" if file else "the metadata could not be written"
    first = first_error_of(error)
    if first.filename is None:
        return "the error names no file"
    if first.strerror != os.strerror(first.errno or 0):
        return f"{first.filename}: {first.strerror}"
    return f"{first.filename}: {free_space(Path(first.filename))}"


def _location(frames: Iterable[Frame], sources: Iterable[Path]) -> str:
    """Returns the location of an error in the user's code, such as `my_model.py, line 6: `.

    The location is empty if the error is not in the user's code.
    """
    user_files = set(sources)
    own = [(file, line) for file, line in frames if Path(file).resolve() in user_files]
    return f"{Path(own[-1][0]).name}, line {own[-1][1]}: " if own else ""
