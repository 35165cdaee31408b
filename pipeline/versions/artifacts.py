"""Artifacts that no run needs any more: marked as deleted in the metadata, then deleted on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.pusher.versions import BLESSED_MODEL_PROPERTY, WAITING_PROPERTY, WITHDRAWN_PROPERTY
from pipeline.layout import Layout

_CLOCK_MILLISECONDS = 2000
"""The largest difference between the clocks of a file system and a metadata server."""
CARRIED_OVER_TYPES = {"Model", "ModelBlessing", "TransformCache"}
"""Types of artifacts that each run takes from the run before. If they were followed, the lineage of
the newest model would include all earlier models.
"""


@dataclass
class ArtifactRecords:
    """The part of the metadata about this pipeline's artifacts."""

    store: Any
    """A `ml_metadata.MetadataStore`."""
    artifacts: dict[int, Any]
    """The artifacts below the pipeline's root by id; the files of others must not be deleted."""
    kept_executions: set[int]
    """The executions of runs to keep."""
    expired: dict[tuple[str, int], Any]
    """The other executions of this pipeline, by node and id."""
    users: dict[int, set[int]] = field(default_factory=dict)
    """The executions that made, took or resolved an artifact, by the artifact's id."""
    inputs: dict[int, set[int]] = field(default_factory=dict)
    """The input artifacts of an execution, by the execution's id."""
    makers: dict[int, set[int]] = field(default_factory=dict)
    """The executions that output an artifact, anew or from the cache, by the artifact's id."""

    @property
    def retired_uris(self) -> set[str]:
        """The URIs of artifacts that are all marked as deleted."""
        live = {a.uri for a in self.artifacts.values() if a.state != a.DELETED}
        return {a.uri for a in self.artifacts.values()} - live


def belongs_to_runs(name: str, runs: Set[str]) -> bool:
    """Returns whether a context of ML Metadata belongs to one of some runs, by its name.

    A run that reads older spans first appends their names to its id, after a dot.
    """
    return name in runs or name.rpartition(".")[0] in runs


def find_models(store: Any, uri: str, created: int | None) -> list[Any]:
    """Returns the Model artifacts at a URI; with new metadata, a URI may be used again.

    Args:
      store: a `ml_metadata.MetadataStore`.
      uri: the URI of the model.
      created: the creation time of the artifact, in milliseconds since 1970; None for any time.
    """
    return [
        artifact
        for artifact in store.get_artifacts_by_uri(uri)
        if artifact.type == "Model" and created in (None, artifact.create_time_since_epoch)
    ]


def retire_artifacts(
    layout: Layout, connection: Any, runs: Set[str], needed: Set[str]
) -> ArtifactRecords:
    """Marks the artifacts that only expired runs have used as DELETED in the metadata.

    TFX takes only LIVE artifacts from the cache or for a resolver, so artifacts are marked before
    their files are deleted, and TFX never takes one without files. After an interruption, the next
    call finds marks and files, and `delete_files` deletes the files.

    Args:
      layout: the layout of the pipeline.
      connection: the connection settings of ML Metadata.
      runs: the ids of the runs to keep.
      needed: the URIs of artifacts to keep in any case, such as models.
    """
    metadata = _read(layout, connection, runs)
    _retire(metadata, _artifacts_to_keep(metadata, needed))
    return metadata


def delete_files(layout: Layout, metadata: ArtifactRecords) -> int:
    """Deletes the files of retired artifacts.

    Returns:
      The bytes of other deleted files, which executions leave besides their artifacts.
    """
    for uri in metadata.retired_uris:
        if Path(uri).exists():
            shutil.rmtree(uri)
    return _delete_leftovers(layout, metadata)


def size_of(folder: Path) -> int:
    """Returns the bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _read(layout: Layout, connection: Any, runs: Set[str]) -> ArtifactRecords:
    import ml_metadata as mlmd

    store = mlmd.MetadataStore(connection)
    root, prefix = f"{layout.pipeline_root}/", f"{layout.name}."
    kept = {
        execution.id
        for context in store.get_contexts_by_type("pipeline_run")
        if belongs_to_runs(context.name, runs)
        for execution in store.get_executions_by_context(context.id)
    }
    metadata = ArtifactRecords(
        store=store,
        artifacts={a.id: a for a in store.get_artifacts() if a.uri.startswith(root)},
        kept_executions=kept,
        expired={
            (context.name.removeprefix(prefix), execution.id): execution
            for context in store.get_contexts_by_type("node")
            if context.name.startswith(prefix)
            for execution in store.get_executions_by_context(context.id)
            if execution.id not in kept
        },
    )
    if metadata.artifacts:
        for event in store.get_events_by_artifact_ids(list(metadata.artifacts)):
            artifact, execution = event.artifact_id, event.execution_id
            metadata.users.setdefault(artifact, set()).add(execution)
            if event.type == event.INPUT:
                metadata.inputs.setdefault(execution, set()).add(artifact)
            elif event.type == event.OUTPUT:
                metadata.makers.setdefault(artifact, set()).add(execution)
    return metadata


def _artifacts_to_keep(metadata: ArtifactRecords, needed: Set[str]) -> set[int]:
    """Returns the ids of the artifacts to keep.

    These are the artifacts that a kept run has made, taken (also from the cache) or resolved;
    needed artifacts, the latest blessed model and their blessings; and the statistics of kept
    examples, with which a later run compares its own.
    """
    kept = {a for a, users in metadata.users.items() if users & metadata.kept_executions}
    live = [a for a in metadata.artifacts.values() if a.state == a.LIVE]
    blessings = {
        _property(a, BLESSED_MODEL_PROPERTY): a.id
        for a in live
        if a.type == "ModelBlessing" and _property(a, "blessed")
    }
    blessed = [
        a.id
        for a in live
        if a.type == "Model"
        and a.id in blessings
        and not _property(metadata.artifacts[blessings[a.id]], WAITING_PROPERTY)
        and not _property(a, WITHDRAWN_PROPERTY)
    ]
    kept |= {a.id for a in live if a.uri in needed}
    kept |= set(sorted(blessed)[-1:])
    kept |= {blessing for model, blessing in blessings.items() if model in kept}
    examples = {a.id for a in live if a.type == "Examples" and a.id in kept}
    kept |= {
        a.id
        for a in live
        if a.type == "ExampleStatistics"
        and any(
            metadata.inputs.get(maker, set()) & examples
            for maker in metadata.makers.get(a.id, set())
        )
    }
    return kept


def _property(artifact: Any, name: str) -> int:
    """Returns a custom property; 0 if there is none."""
    # Indexing the map with a missing key would add the key.
    found = name in artifact.custom_properties
    return artifact.custom_properties[name].int_value if found else 0


def _retire(metadata: ArtifactRecords, kept: Iterable[int]) -> None:
    """Marks all other artifacts as DELETED, in one transaction."""
    retired = [
        artifact
        for artifact in metadata.artifacts.values()
        if artifact.id not in kept and artifact.state != artifact.DELETED
    ]
    for artifact in retired:
        artifact.state = artifact.DELETED
    if retired:
        metadata.store.put_artifacts(retired)


def _delete_leftovers(layout: Layout, metadata: ArtifactRecords) -> int:
    """Deletes the files that executions leave besides their artifacts; returns the bytes.

    These are TFX's own files of each execution, and outputs of executions that were killed before
    they recorded them.
    """
    known = {artifact.uri for artifact in metadata.artifacts.values()}
    traces = [
        *layout.pipeline_root.glob("*/.system/executor_execution/*"),
        *(path for path in layout.pipeline_root.glob("*/[!.]*/*") if str(path) not in known),
    ]
    freed = 0
    for folder in traces:
        if folder.name.isdigit() and _is_of_expired(folder, layout, metadata):
            freed += size_of(folder)
            shutil.rmtree(folder)
    return freed


def _is_of_expired(folder: Path, layout: Layout, metadata: ArtifactRecords) -> bool:
    """Returns whether a folder belongs to an expired execution in this store.

    An earlier store of the pipeline numbered its executions from 1 as well: a folder older than the
    execution of its number belongs to the earlier store.
    """
    node = folder.relative_to(layout.pipeline_root).parts[0]
    execution = metadata.expired.get((node, int(folder.name)))
    if execution is None:
        return False
    changed = folder.stat().st_mtime * 1000
    return bool(changed >= execution.create_time_since_epoch - _CLOCK_MILLISECONDS)


def find_deletable_records(
    metadata: ArtifactRecords, pipeline: str, own_runs: Set[str], kept_runs: Set[str]
) -> tuple[list[int], list[int]]:
    """Returns the records that can be deleted.

    Args:
      metadata: the records of the pipeline's artifacts, after `retire_artifacts`; the store may
        contain other pipelines too.
      pipeline: the name of the pipeline.
      own_runs: the ids of all its runs.
      kept_runs: the ids of the kept runs.

    Returns:
      The ids of executions, and of artifacts that only these executions use.
    """
    expired = _executions_of(metadata.store, pipeline, own_runs - kept_runs)
    artifacts = metadata.artifacts
    gone = {a.id for a in artifacts.values() if a.state == a.DELETED and not Path(a.uri).exists()}
    executions = expired - _lineage_of(artifacts.keys() - gone, metadata)
    forgotten = {a for a in gone if metadata.users.get(a, set()) <= executions}
    return sorted(executions), sorted(forgotten)


def _executions_of(store: Any, pipeline: str, runs: Set[str]) -> set[int]:
    """Returns the executions of some runs of a pipeline."""
    context = store.get_context_by_type_and_name("pipeline", pipeline)
    if context is None or not runs:
        return set()
    found = {
        execution.id
        for run in store.get_contexts_by_type("pipeline_run")
        if belongs_to_runs(run.name, runs)
        for execution in store.get_executions_by_context(run.id)
    }
    # A run of another pipeline in the same store may have the same id.
    return found & {execution.id for execution in store.get_executions_by_context(context.id)}


def _lineage_of(artifacts: Iterable[int], metadata: ArtifactRecords) -> set[int]:
    """Returns the executions in the lineage of artifacts."""
    behind: set[int] = set()
    waiting, seen = list(artifacts), set(artifacts)
    while waiting:
        makers = metadata.makers.get(waiting.pop(), set())
        # The first execution made it; the last one shows whether it is the span's current version.
        new = {min(makers), max(makers)} - behind if makers else set()
        behind |= new
        taken = {a for execution in new for a in metadata.inputs.get(execution, set())} - seen
        seen |= taken
        waiting += [a for a in taken if metadata.artifacts[a].type not in CARRIED_OVER_TYPES]
    return behind
