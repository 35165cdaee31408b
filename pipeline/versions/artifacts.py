"""Deletes artifacts that no run needs: marks them in the metadata, then deletes their files."""

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
"""The types of artifacts that each run takes from the run before. The search for a lineage does not
follow them, as the lineage of the newest model would then include all earlier models.
"""


@dataclass
class ArtifactRecords:
    """The part of the metadata about this pipeline's artifacts."""

    store: Any
    """A `ml_metadata.MetadataStore`."""
    artifacts: dict[int, Any]
    """The artifacts below the pipeline's root, by id. Other artifacts are never deleted."""
    kept_executions: set[int]
    """The executions of runs to keep."""
    expired: dict[tuple[str, int], Any]
    """The other executions of this pipeline, by node and id."""
    users: dict[int, set[int]] = field(default_factory=dict)
    """The executions that output, read or resolved an artifact, by the artifact's id."""
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
    """Returns whether an ML Metadata context of type `pipeline_run` belongs to one of some runs.

    For an older span that it reads first, a run has a context named `<run>.<span>`.
    """
    return name in runs or name.rpartition(".")[0] in runs


def find_models(store: Any, uri: str, created: int | None) -> list[Any]:
    """Returns the Model artifacts at a URI.

    If the metadata was deleted, a later model may get the URI of an earlier model.

    Args:
      created: the creation time of the artifact, in milliseconds since 1970, or None for any time.
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

    TFX's cache and resolvers use only LIVE artifacts. An artifact is marked before its files are
    deleted, so TFX never uses an artifact without files. If the process is interrupted in between,
    the next call of `delete_files` deletes the files of the marked artifacts.

    Args:
      runs: the ids of the runs to keep.
      needed: the URIs of artifacts to keep in any case, such as models.
    """
    metadata = _read(layout, connection, runs)
    _retire(metadata, _artifacts_to_keep(metadata, needed))
    return metadata


def delete_files(layout: Layout, metadata: ArtifactRecords) -> int:
    """Deletes the files of retired artifacts.

    Returns:
      The size in bytes of the other deleted files, which executions leave next to artifacts.
    """
    for uri in metadata.retired_uris:
        if Path(uri).exists():
            shutil.rmtree(uri)
    return _delete_leftovers(layout, metadata)


def size_of(folder: Path) -> int:
    """Returns the total size in bytes of all files below a folder."""
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

    These are:
    - the artifacts that a kept run has output, read (also from the cache) or resolved;
    - the artifacts in `needed`, the latest blessed model, and the blessings of these models;
    - the statistics of kept examples, with which a later run compares its own statistics.
    """
    to_keep = {a for a, users in metadata.users.items() if users & metadata.kept_executions}
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
    to_keep |= {a.id for a in live if a.uri in needed}
    to_keep |= set(sorted(blessed)[-1:])
    to_keep |= {blessing for model, blessing in blessings.items() if model in to_keep}
    examples = {a.id for a in live if a.type == "Examples" and a.id in to_keep}
    to_keep |= {
        a.id
        for a in live
        if a.type == "ExampleStatistics"
        and any(
            metadata.inputs.get(maker, set()) & examples
            for maker in metadata.makers.get(a.id, set())
        )
    }
    return to_keep


def _property(artifact: Any, name: str) -> int:
    """Returns an integer custom property, or 0 if the artifact lacks the property."""
    # Indexing the map with a missing key would add the key.
    exists = name in artifact.custom_properties
    return artifact.custom_properties[name].int_value if exists else 0


def _retire(metadata: ArtifactRecords, to_keep: Iterable[int]) -> None:
    """Marks all artifacts that are not kept as DELETED, in one transaction."""
    retired = [
        artifact
        for artifact in metadata.artifacts.values()
        if artifact.id not in to_keep and artifact.state != artifact.DELETED
    ]
    for artifact in retired:
        artifact.state = artifact.DELETED
    if retired:
        metadata.store.put_artifacts(retired)


def _delete_leftovers(layout: Layout, metadata: ArtifactRecords) -> int:
    """Deletes the files that executions leave next to artifacts; returns their size in bytes.

    These are TFX's own files of each execution, and outputs that an execution did not record
    because it was killed.
    """
    recorded = {artifact.uri for artifact in metadata.artifacts.values()}
    folders = [
        *layout.pipeline_root.glob("*/.system/executor_execution/*"),
        *(path for path in layout.pipeline_root.glob("*/[!.]*/*") if str(path) not in recorded),
    ]
    freed = 0
    for folder in folders:
        if folder.name.isdigit() and _belongs_to_expired(folder, layout, metadata):
            freed += size_of(folder)
            shutil.rmtree(folder)
    return freed


def _belongs_to_expired(folder: Path, layout: Layout, metadata: ArtifactRecords) -> bool:
    """Returns whether a folder belongs to an expired execution in this store.

    An earlier store of the pipeline numbered its executions from 1 as well. A folder that is older
    than the execution with its number belongs to the earlier store.
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
      own_runs: the ids of all runs of the pipeline.
      kept_runs: the ids of the kept runs.

    Returns:
      The ids of executions, and of artifacts that only these executions use.
    """
    expired = _executions_of(metadata.store, pipeline, own_runs - kept_runs)
    artifacts = metadata.artifacts
    deleted = {
        a.id for a in artifacts.values() if a.state == a.DELETED and not Path(a.uri).exists()
    }
    executions = expired - _lineage_of(artifacts.keys() - deleted, metadata)
    unused = {a for a in deleted if metadata.users.get(a, set()) <= executions}
    return sorted(executions), sorted(unused)


def _executions_of(store: Any, pipeline: str, runs: Set[str]) -> set[int]:
    """Returns the executions of some runs of a pipeline."""
    context = store.get_context_by_type_and_name("pipeline", pipeline)
    if context is None or not runs:
        return set()
    executions = {
        execution.id
        for run in store.get_contexts_by_type("pipeline_run")
        if belongs_to_runs(run.name, runs)
        for execution in store.get_executions_by_context(run.id)
    }
    # A run of another pipeline in the same store may have the same id.
    return executions & {execution.id for execution in store.get_executions_by_context(context.id)}


def _lineage_of(artifacts: Iterable[int], metadata: ArtifactRecords) -> set[int]:
    """Returns the executions in the lineage of artifacts."""
    lineage: set[int] = set()
    queue, visited = list(artifacts), set(artifacts)
    while queue:
        makers = metadata.makers.get(queue.pop(), set())
        # The first execution made the artifact. The last execution shows whether the artifact is
        # the current version of its span.
        new = {min(makers), max(makers)} - lineage if makers else set()
        lineage |= new
        inputs = {a for execution in new for a in metadata.inputs.get(execution, set())} - visited
        visited |= inputs
        queue += [a for a in inputs if metadata.artifacts[a].type not in CARRIED_OVER_TYPES]
    return lineage
