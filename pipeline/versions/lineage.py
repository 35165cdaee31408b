"""What a metadata store need not remember: records of runs that were deleted, without heirs.

A record stays as long as something has come of it that is still there: the executions behind a
model, and what they took, whose files may be gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.layout import Layout

OF_EARLIER_RUNS = {"Model", "ModelBlessing", "TransformCache"}
"""Types of artifacts that each run takes from the one before. Followed further, the lineage of the
newest model would be that of all models there ever were."""


@dataclass
class _Events:
    """Who has made and taken what."""

    users: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By an artifact's id, the executions that it has to do with."""
    makers: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By an artifact's id, the executions that gave it, anew or from the cache."""
    inputs: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By an execution's id, what it took."""

    @classmethod
    def of(cls, store: Any, artifacts: Iterable[int]) -> _Events:
        """Reads those of some artifacts."""
        found, ids = cls(), list(artifacts)
        for event in store.get_events_by_artifact_ids(ids) if ids else []:
            artifact, execution = event.artifact_id, event.execution_id
            found.users[artifact].add(execution)
            if event.type == event.INPUT:
                found.inputs[execution].add(artifact)
            elif event.type == event.OUTPUT:
                found.makers[artifact].add(execution)
        return found


def find_forgettable(
    store: Any, layout: Layout, own_runs: Set[str], kept_runs: Set[str]
) -> tuple[list[int], list[int]]:
    """The records that nothing needs any more.

    Args:
      store: a `ml_metadata.MetadataStore`, which may hold other pipelines, too.
      layout: of the pipeline.
      own_runs: the ids of all runs of the pipeline.
      kept_runs: the ids of those that are kept.

    Returns:
      The ids of executions, and of artifacts that have to do with no others.
    """
    expired = _executions_of(store, layout.name, own_runs - kept_runs)
    root = f"{layout.pipeline_root}/"
    artifacts = {a.id: a for a in store.get_artifacts() if a.uri.startswith(root)}
    events = _Events.of(store, artifacts)
    gone = {a.id for a in artifacts.values() if a.state == a.DELETED and not Path(a.uri).exists()}
    behind = _executions_behind(artifacts.keys() - gone, artifacts, events)
    executions = expired - behind
    forgotten = {a for a in gone if events.users[a] <= executions}
    return sorted(executions), sorted(forgotten)


def _executions_of(store: Any, pipeline: str, runs: Set[str]) -> set[int]:
    """The executions of some runs of a pipeline."""
    context = store.get_context_by_type_and_name("pipeline", pipeline)
    if context is None or not runs:
        return set()
    found = {
        execution.id
        for run in store.get_contexts_by_type("pipeline_run")
        # A run that reads older spans first adds their names to its id.
        if run.name in runs or run.name.rpartition(".")[0] in runs
        for execution in store.get_executions_by_context(run.id)
    }
    # Of another pipeline in the same store, a run may have the same id.
    return found & {execution.id for execution in store.get_executions_by_context(context.id)}


def _executions_behind(
    artifacts: Iterable[int], known: dict[int, Any], events: _Events
) -> set[int]:
    """The executions that artifacts come from, by way of whatever else."""
    behind: set[int] = set()
    waiting, seen = list(artifacts), set(artifacts)
    while waiting:
        makers = events.makers[waiting.pop()]
        # The first has made it; the last says whether it is what counts now of its span.
        new = {min(makers), max(makers)} - behind if makers else set()
        behind |= new
        taken = {a for execution in new for a in events.inputs[execution]} - seen
        seen |= taken
        waiting += [a for a in taken if known[a].type not in OF_EARLIER_RUNS]
    return behind
