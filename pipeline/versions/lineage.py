"""What a metadata store need not remember: records of runs that were deleted, without heirs.

A record stays as long as something has come of it that is still there: the executions behind a
model, and what they took, whose files may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any

from pipeline.versions.artifacts import ArtifactRecords, is_of_runs

OF_EARLIER_RUNS = {"Model", "ModelBlessing", "TransformCache"}
"""Types of artifacts that each run takes from the one before. Followed further, the lineage of the
newest model would be that of all models there ever were."""


def find_forgettable(
    metadata: ArtifactRecords, pipeline: str, own_runs: Set[str], kept_runs: Set[str]
) -> tuple[list[int], list[int]]:
    """The records that nothing needs any more.

    Args:
      metadata: of the pipeline's artifacts, of which those that are not kept have been retired; the
        store may hold other pipelines, too.
      pipeline: its name.
      own_runs: the ids of all its runs.
      kept_runs: the ids of those that are kept.

    Returns:
      The ids of executions, and of artifacts that have to do with no others.
    """
    expired = _executions_of(metadata.store, pipeline, own_runs - kept_runs)
    artifacts = metadata.artifacts
    gone = {a.id for a in artifacts.values() if a.state == a.DELETED and not Path(a.uri).exists()}
    executions = expired - _executions_behind(artifacts.keys() - gone, metadata)
    forgotten = {a for a in gone if metadata.users.get(a, set()) <= executions}
    return sorted(executions), sorted(forgotten)


def _executions_of(store: Any, pipeline: str, runs: Set[str]) -> set[int]:
    """The executions of some runs of a pipeline."""
    context = store.get_context_by_type_and_name("pipeline", pipeline)
    if context is None or not runs:
        return set()
    found = {
        execution.id
        for run in store.get_contexts_by_type("pipeline_run")
        if is_of_runs(run.name, runs)
        for execution in store.get_executions_by_context(run.id)
    }
    # Of another pipeline in the same store, a run may have the same id.
    return found & {execution.id for execution in store.get_executions_by_context(context.id)}


def _executions_behind(artifacts: Iterable[int], metadata: ArtifactRecords) -> set[int]:
    """The executions that artifacts come from, by way of whatever else."""
    behind: set[int] = set()
    waiting, seen = list(artifacts), set(artifacts)
    while waiting:
        makers = metadata.makers.get(waiting.pop(), set())
        # The first has made it; the last says whether it is what counts now of its span.
        new = {min(makers), max(makers)} - behind if makers else set()
        behind |= new
        taken = {a for execution in new for a in metadata.inputs.get(execution, set())} - seen
        seen |= taken
        waiting += [a for a in taken if metadata.artifacts[a].type not in OF_EARLIER_RUNS]
    return behind
