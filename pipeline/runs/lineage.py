"""Reads the artifacts that the components of a run have read and made, from the metadata."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.components.example_gen import utils
from tfx.orchestration import metadata
from tfx.types import Artifact, artifact_utils

from components.example_gen.paths import is_remote
from pipeline.records.details import ArtifactDetails

_RUN, _NODE = "pipeline_run", "node"
"""TFX's types of contexts."""
_INPUTS = (metadata_store_pb2.Event.INPUT, metadata_store_pb2.Event.DECLARED_INPUT)
_OUTPUTS = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.DECLARED_OUTPUT)
_RESOLVER = "Resolver"
MAX_ARTIFACTS = 200
"""The maximum number of artifacts in the details of a run."""
_MAX_FILES = 10_000
"""The maximum number of files whose sizes are read, over all artifacts."""


@dataclass
class StepArtifacts:
    """The artifacts of a component, by key."""

    inputs: dict[str, list[Artifact]] = field(default_factory=dict)
    outputs: dict[str, list[Artifact]] = field(default_factory=dict)


def read_artifacts(connection: Any, pipeline: str, run_id: str) -> dict[str, StepArtifacts]:
    """Returns the artifacts of each component of a run, cached components included."""
    with metadata.Metadata(connection) as handle:
        store = handle.store
        run = store.get_context_by_type_and_name(_RUN, run_id)
        executions = {} if run is None else {e.id: e for e in _components(store, run.id)}
        events = store.get_events_by_execution_ids(list(executions)) if executions else []
        ids = sorted({event.artifact_id for event in events})
        artifacts = dict(zip(ids, artifacts_by_id(store, ids), strict=True))
        names = {id_: _node_name(store, id_, pipeline) for id_ in executions}
    steps: dict[str, StepArtifacts] = {name: StepArtifacts() for name in names.values()}
    for event in events:
        artifact, step = artifacts[event.artifact_id], steps[names[event.execution_id]]
        key = event.path.steps[0].key if event.path.steps else ""
        if event.type in _INPUTS:
            step.inputs.setdefault(key, []).append(artifact)
        elif event.type in _OUTPUTS and _is_finished(artifact):
            step.outputs.setdefault(key, []).append(artifact)
    return steps


def _components(store: Any, run: int) -> Iterator[Any]:
    executions = sorted(store.get_executions_by_context(run), key=lambda execution: execution.id)
    return (e for e in executions if e.type.rpartition(".")[2] != _RESOLVER)


def artifacts_by_id(store: Any, ids: list[int]) -> list[Artifact]:
    """Returns the artifacts with some ids, in the order of the ids."""
    found = {artifact.id: artifact for artifact in store.get_artifacts_by_id(ids)} if ids else {}
    types = {kind.id: kind for kind in store.get_artifact_types()}
    return [artifact_utils.deserialize_artifact(types[found[i].type_id], found[i]) for i in ids]


def _node_name(store: Any, execution: int, pipeline: str) -> str:
    contexts = store.get_contexts_by_execution(execution)
    name = next((context.name for context in contexts if context.type == _NODE), "")
    return str(name).removeprefix(f"{pipeline}.")


def _is_finished(artifact: Artifact) -> bool:
    """Returns whether the component that makes an artifact has ended well."""
    unfinished = (metadata_store_pb2.Artifact.PENDING, metadata_store_pb2.Artifact.ABANDONED)
    return artifact.mlmd_artifact.state not in unfinished


def newest_statistics(connection: Any, uris: Sequence[str]) -> dict[str, Artifact]:
    """Returns the newest live statistics that were made from examples, by the examples' URI."""
    with metadata.Metadata(connection) as handle:
        store = handle.store
        examples = {a.id: uri for uri in uris for a in store.get_artifacts_by_uri(uri)}
        events = store.get_events_by_artifact_ids(list(examples)) if examples else []
        readers = {e.execution_id: examples[e.artifact_id] for e in events if e.type in _INPUTS}
        events = store.get_events_by_execution_ids(list(readers)) if readers else []
        made = {e.artifact_id: readers[e.execution_id] for e in events if e.type in _OUTPUTS}
        artifacts = artifacts_by_id(store, sorted(made))
    return {
        made[artifact.id]: artifact
        for artifact in artifacts
        if artifact.type_name == "ExampleStatistics"
        and artifact.mlmd_artifact.state == metadata_store_pb2.Artifact.LIVE
    }


def span_of(examples: Any) -> int:
    """Returns the span of examples, as ML Metadata stores them, or -1 for examples without a span.

    Older versions of TFX stored the number as a string.
    """
    value = examples.custom_properties.get(utils.SPAN_PROPERTY_NAME)
    return -1 if value is None else int(value.string_value or value.int_value)


def describe_artifacts(
    steps: dict[str, StepArtifacts],
) -> tuple[list[ArtifactDetails], list[tuple[str, str]]]:
    """Returns the artifacts of a run, the newest last, and the edges between its components."""
    described: dict[int, ArtifactDetails] = {}
    for name, step in steps.items():
        for artifact in (a for artifacts in step.outputs.values() for a in artifacts):
            described[artifact.id] = _describe(artifact, producer=name)
    for name, step in steps.items():
        for artifact in (a for artifacts in step.inputs.values() for a in artifacts):
            details = described.setdefault(artifact.id, _describe(artifact))
            if name not in details.consumers:
                details.consumers.append(name)
    edges = {(a.producer, c): None for a in described.values() if a.producer for c in a.consumers}
    chosen = [described[id_] for id_ in sorted(described)[-MAX_ARTIFACTS:]]
    measure = _size_meter()
    for details in chosen:
        details.bytes = measure(details.uri)
    return chosen, [(str(producer), consumer) for producer, consumer in edges]


def _describe(artifact: Artifact, producer: str | None = None) -> ArtifactDetails:
    return ArtifactDetails(
        id=artifact.id, type=artifact.type_name, uri=artifact.uri, producer=producer
    )


def _size_meter() -> Callable[[str], int | None]:
    """Returns a function that measures local folders, until it has read _MAX_FILES files."""
    files = 0

    def measure(uri: str) -> int | None:
        nonlocal files
        if is_remote(uri) or not Path(uri).exists():
            return None
        size = 0
        for folder, _, names in os.walk(uri):
            files += len(names)
            if files > _MAX_FILES:
                return None
            size += sum(Path(folder, name).lstat().st_size for name in names)
        return size

    return measure
