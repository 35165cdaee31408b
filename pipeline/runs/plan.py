"""Predicts which components a run would execute, and why, without running anything.

TFX's own launcher decides: it runs every node against a copy of the metadata, with artifacts in a
scratch folder and an executor that only raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import compiler, constants
from tfx.dsl.io import fileio
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import execution_result_pb2
from tfx.types.standard_component_specs import CUSTOM_CONFIG_KEY
from tfx.utils import json_utils

from components.example_validator.component import SETTINGS_KEY as VALIDATION_KEY
from components.named_columns import check_named_columns
from components.schema_gen.files import read_schema
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import CODE_KEY, FILES_KEY
from pipeline.graph.create import create_pipeline
from pipeline.graph.data import Spans
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import copy_to_sqlite, sqlite_connection
from pipeline.records.summary import State
from pipeline.run_context import RunContext, resolve_run
from pipeline.runs.local import Node, ReplacingOperator, compiled_nodes, launch
from pipeline.runs.window_reader import make_spans, usable_spans
from trainer_module.scratch import ScratchFolder
from trainer_module.settings import SETTINGS_KEY

DERIVED_PROPERTIES = {"constant", "declared", "input_config", "module_path", "span", "version"}
"""Execution properties that follow from other properties, or that a driver sets."""

_DONE = (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED)

HASHES = {
    CODE_KEY: "the code that it runs",
    FILES_KEY: "the weights or the vocabulary that it reads",
    "pictures_revision": "the pictures that the table names",
    "input_fingerprint": "the data",
    "revision": "the schema file",
    "eval_config": "evaluate",
    "verdict": "evaluate",
}
"""Descriptions of properties whose values, mostly hashes, are not shown."""

PATH_PREFIXES = (
    f"{CUSTOM_CONFIG_KEY}.{SETTINGS_KEY}.",
    f"{CUSTOM_CONFIG_KEY}.{CUSTOM_CONFIG_KEY}.value.",
    f"{CUSTOM_CONFIG_KEY}.",
    f"{VALIDATION_KEY}.",
)
"""Prefixes that settings have in execution properties, but not in the config."""


@dataclass(frozen=True)
class PlannedComponent:
    """The prediction whether a component would run, with the reason."""

    name: str
    runs: bool
    reason: str


class _WouldRunError(Exception):
    """An exception that stops the launcher at the executor, as no cached execution matches."""

    def __init__(self, info: data_types.ExecutionInfo) -> None:
        super().__init__()
        self.execution_id: int = info.execution_id
        self.properties = _parse_properties(info.exec_properties)


class _DryRunOperator(ReplacingOperator):
    """An operator that raises instead of running the executor."""

    def run_executor(
        self, execution_info: data_types.ExecutionInfo
    ) -> execution_result_pb2.ExecutorOutput:
        raise _WouldRunError(execution_info)


def make_plan(config: PipelineConfig, layout: Layout) -> Iterator[PlannedComponent]:
    """Yields the components in the order in which they would run, with predictions.

    Args:
      layout: the layout of the pipeline, whose files do not change.
    """
    with ScratchFolder() as scratch:
        copy = Path(scratch) / "metadata.db"
        copy_to_sqlite(config.metadata, layout, copy)
        context = resolve_run(config, layout)
        _check_columns(context)
        pipeline = create_pipeline(context, _spans(context))
        pipeline.metadata_connection_config = sqlite_connection(copy)
        compiled = compiler.Compiler().compile(pipeline)
        would_run: set[str] = set()
        for node in compiled_nodes(compiled, "plan", pipeline_root=scratch):
            planned = _plan_node(node, would_run)
            if node.is_system:
                continue
            if planned.runs:
                would_run.add(node.id)
            yield planned


def _check_columns(context: RunContext) -> None:
    """Raises DataError if the config names a column that the schema lacks."""
    config, schema_file = context.config, context.ingestion.settings.schema_file
    if fileio.exists(schema_file):
        schema = read_schema(schema_file, config.data.label)
        names = [feature.name for feature in schema.feature]
        check_named_columns(config.all_named_columns, names, "schema")


def _spans(context: RunContext) -> Spans | None:
    """Returns the spans that a run would read and train on now."""
    if context.window is None:
        return None
    event_log = EventLog(context.layout.event_log)
    usable = usable_spans(context.window, context, event_log)
    return make_spans(usable, context.config.drift, event_log)


def _plan_node(node: Node, would_run: set[str]) -> PlannedComponent:
    upstream = [name for name in _producers(node) if name in would_run]
    if upstream:
        return PlannedComponent(node.id, True, f"after {', '.join(upstream)}")
    try:
        state, _ = launch(node, _DryRunOperator)
    except _WouldRunError as signal:
        return PlannedComponent(node.id, True, _describe_cause(node, signal))
    if state is State.FAILED:
        return PlannedComponent(node.id, True, "its inputs do not exist yet")
    return PlannedComponent(node.id, False, "its inputs and settings have not changed")


def _producers(node: Node) -> list[str]:
    """Returns the upstream nodes that produce inputs of a node; a node may have other upstream
    nodes.
    """
    pipeline_node = node.launcher_arguments["pipeline_node"]
    producers = {
        channel.producer_node_query.id
        for source in pipeline_node.inputs.inputs.values()
        for channel in source.channels
    }
    return [name for name in pipeline_node.upstream_nodes if name in producers]


def _describe_cause(node: Node, signal: _WouldRunError) -> str:
    """Returns the differences from the node's last successful execution, for a message."""
    with node.launcher_arguments["mlmd_connection"] as handle:
        store = handle.store
        # The name has the pipeline's id, as a server's database may contain other pipelines.
        name = f"{node.launcher_arguments['pipeline_info'].id}.{node.id}"
        context = store.get_context_by_type_and_name(constants.NODE_CONTEXT_TYPE_NAME, name)
        done = [
            execution
            for execution in store.get_executions_by_context(context.id)
            if execution.id != signal.execution_id and execution.last_known_state in _DONE
        ]
        if not done:
            return "it has not run yet"
        last = max(done, key=lambda e: e.id)
        # A key of the config may be part of several properties.
        before = _recorded_properties(_origin(store, last))
        changes = list(dict.fromkeys(_differences(before, signal.properties)))
        if changes:
            return "changed: " + "; ".join(changes)
        if _inputs(store, last.id) != _inputs(store, signal.execution_id):
            return "an input differs from the last run"
    return "the last run with these inputs did not finish, or its files are gone"


def _origin(store: Any, execution: metadata_store_pb2.Execution) -> Any:
    """Returns the execution that made the outputs of a cached execution.

    The record of that execution has more properties.
    """
    outputs = _artifacts(store, execution.id, metadata_store_pb2.Event.OUTPUT)
    if not outputs:
        return execution
    makers = [
        event.execution_id
        for event in store.get_events_by_artifact_ids(list(outputs))
        if event.type == metadata_store_pb2.Event.OUTPUT
    ]
    (origin,) = store.get_executions_by_id([min(makers)])
    return origin


def _inputs(store: Any, execution_id: int) -> set[int]:
    return _artifacts(store, execution_id, metadata_store_pb2.Event.INPUT)


def _artifacts(store: Any, execution_id: int, direction: int) -> set[int]:
    """Returns the ids of an execution's inputs or outputs."""
    events = store.get_events_by_execution_ids([execution_id])
    return {event.artifact_id for event in events if event.type == direction}


def _recorded_properties(execution: metadata_store_pb2.Execution) -> dict[str, Any]:
    """Returns the recorded properties of an execution, parsed by `_parse_properties`."""
    return _parse_properties(
        {
            name: getattr(value, value.WhichOneof("value"))
            for name, value in execution.custom_properties.items()
        }
    )


def _parse_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the execution properties that depend on settings or data, with JSON parsed."""
    return {
        name: _parse_json(value)
        for name, value in properties.items()
        if value is not None and name not in DERIVED_PROPERTIES and not name.startswith("__")
    }


def _parse_json(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json_utils.loads(value)
        except (ValueError, json.JSONDecodeError):
            return value
    return value


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yields the values that differ, such as `train.epochs 3 -> 5`."""
    key = path
    for prefix in PATH_PREFIXES:
        key = key.removeprefix(prefix)
    if key in DERIVED_PROPERTIES:
        return
    if key not in HASHES and isinstance(old, Mapping) and isinstance(new, Mapping):
        old, new = _without_model_defaults(old, new)
        absent = "default" if key in ("model", "train") else None
        for name in sorted(set(old) | set(new)):
            child = f"{path}.{name}" if path else str(name)
            yield from _differences(old.get(name, absent), new.get(name, absent), child)
    elif old != new:
        if key in HASHES:
            yield HASHES[key]
        elif key == "aside":
            yield "the columns whose types are inferred"
        elif key == "mixed_columns":
            yield "features: the columns that are declared categorical or ignored"
        elif key == "number_columns":
            yield "features: the columns that are declared numeric"
        else:
            yield f"{key} {_short(old)} -> {_short(new)}"


def _without_model_defaults(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns both settings, without the model's defaults if only one side names a model.

    In this case, only the keys of `model` and `train` remain that both sides have.
    """
    models = [side.get("model") for side in (old, new)]
    has_kind = [isinstance(model, Mapping) and "kind" in model for model in models]
    if has_kind[0] == has_kind[1] or None in models:
        return old, new
    common = {s: {"kind", *(old[s].keys() & new[s].keys())} for s in ("model", "train")}
    old_part, new_part = (
        {**side, **{s: {k: side[s][k] for k in common[s] & side[s].keys()} for s in common}}
        for side in (old, new)
    )
    return old_part, new_part


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
