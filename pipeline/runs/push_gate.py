"""The gate before the Pusher, which decides whether a blessed model is pushed or waits."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from tfx.dsl.io import fileio
from tfx.utils import path_utils

from components.example_gen.paths import is_remote
from components.pusher.versions import CARD_FOLDER, CARD_JSON, CARD_MARKDOWN
from pipeline.component_ids import ComponentId
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.summary import Candidate, RunSummary
from pipeline.report.model_card import CardSource, card_as_json
from pipeline.report.model_card_markdown import card_as_markdown
from pipeline.run_context import RunContext
from pipeline.runs.artifact_reader import ArtifactReader
from pipeline.versions.hold import pushing
from pipeline.versions.waiting import find_obstacle, mark_blessing

logger = logging.getLogger(__name__)


class PushGate:
    """A gate that decides for each node of a run whether it may run.

    Before the Pusher, the gate writes the model card of this run into the Model artifact, beside
    those of other runs with the same model. The Pusher and `approve` copy the card, so a version
    has its card from the moment it appears, and a card is no part of the Pusher's cache key.
    """

    def __init__(
        self,
        context: RunContext,
        results: ArtifactReader,
        summary: RunSummary,
        card: RunSummary | None = None,
    ) -> None:
        """Stores the arguments; decides nothing.

        Args:
          results: the results of components so far.
          summary: the summary of the run, to which a waiting model is added.
          card: the summary for the model card, with the results of all components before the
            Pusher; default: `summary`.
        """
        self._context = context
        self._results = results
        self._summary = summary
        self._card = card or summary

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
        self._write_card(candidate)
        event_log = EventLog(context.layout.event_log)
        with pushing(context.layout):
            approve, run = context.config.push.approve, self._summary.run_id
            obstacle = find_obstacle(approve, context.layout, event_log, candidate, run)
            self._summary.waiting = obstacle
            mark_blessing(context.connection, candidate, waits=obstacle is not None)
            yield obstacle is None

    def _write_card(self, candidate: Candidate) -> None:
        """Writes the model card; an error is a note in the summary, and does not fail the run."""
        folder = posixpath.join(candidate.model, CARD_FOLDER, self._summary.run_id)
        try:
            exported = self._context.layout.root / candidate.exported
            trained = datetime.fromtimestamp(candidate.model_created / 1000).astimezone()
            source = CardSource.read(self._context.config, self._card, exported, trained)
            texts = {CARD_JSON: card_as_json(source), CARD_MARKDOWN: card_as_markdown(source)}
            fileio.makedirs(folder)
            for name, text in texts.items():
                with fileio.open(posixpath.join(folder, name), "w") as opened:
                    opened.write(text)
        except Exception as error:
            logger.exception("The model card could not be written")
            with suppress(Exception):  # An incomplete or outdated card must not be pushed.
                fileio.rmtree(folder)
            note = f"the version has no model card: {type(error).__name__}: {error}"
            self._summary.notes.append(note)

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
