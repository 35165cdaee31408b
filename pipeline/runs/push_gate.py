"""The gate before the Pusher, which decides whether a blessed model is pushed or waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfx.utils import path_utils

from components.example_gen.paths import is_remote
from pipeline.component_ids import ComponentId
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.summary import Candidate, RunSummary
from pipeline.run_context import RunContext
from pipeline.runs.artifact_reader import ArtifactReader
from pipeline.versions.hold import pushing
from pipeline.versions.waiting import find_obstacle, mark_blessing


class PushGate:
    """A gate that decides for each node of a run whether it may run."""

    def __init__(self, context: RunContext, results: ArtifactReader, summary: RunSummary) -> None:
        """Stores the arguments; decides nothing.

        Args:
          context: the context of the run.
          results: the results of components so far.
          summary: the summary of the run, to which a waiting model is added.
        """
        self._context = context
        self._results = results
        self._summary = summary

    @contextmanager
    def __call__(self, node: str) -> Iterator[bool]:
        """Yields whether a node may run; no hold can be set within the block."""
        candidate = self._candidate() if node == ComponentId.PUSHER else None
        if candidate is None:
            yield True
            return
        context = self._context
        report = self._results.variants()
        if self._results.is_refused() or (report is not None and report.unmet):
            # The Pusher reports the refusal. The model must not be the baseline of the next run.
            mark_blessing(context.connection, candidate, waits=True)
            yield True
            return
        event_log = EventLog(context.layout.event_log)
        with pushing(context.layout):
            approve, run = context.config.push.approve, self._summary.run_id
            obstacle = find_obstacle(approve, context.layout, event_log, candidate, run)
            self._summary.waiting = obstacle
            mark_blessing(context.connection, candidate, waits=obstacle is not None)
            yield obstacle is None

    def _candidate(self) -> Candidate | None:
        """Returns the model that the Pusher would push, if it is blessed."""
        model = self._results.blessed_model()
        if model is None:
            return None
        variants = self._results.variants_uri()
        exported = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
        return Candidate(
            model=str(model.uri),
            model_id=model.id,
            model_created=model.mlmd_artifact.create_time_since_epoch,
            exported=_below(self._context.layout, exported),
            certificate=_below(self._context.layout, self._results.certificate_folder()),
            variants=None if variants is None else _below(self._context.layout, variants),
        )


def _below(layout: Layout, path: str) -> str:
    """Returns a path; paths in the pipeline's folder become relative to the folder.

    Later commands may find the folder at another mount path.
    """
    if is_remote(path) or not Path(path).is_relative_to(layout.root):
        return path
    return str(Path(path).relative_to(layout.root))
