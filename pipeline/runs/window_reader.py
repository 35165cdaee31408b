"""Reads the spans of a window that have not been read yet, one after another."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata

from components.schema_gen.files import schema_content
from pipeline.config.fingerprint import config_fingerprint
from pipeline.config.schedule import MissingSpan
from pipeline.data.spans import Span, Window
from pipeline.graph import Spans, create_ingestion
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import State, Status
from pipeline.run_context import RunContext
from pipeline.runs.console import RunConsole
from pipeline.runs.failures import explain
from pipeline.runs.local import LocalRunner
from pipeline.runs.results.artifact_reader import ArtifactReader, gist

logger = logging.getLogger(__name__)


Reading = tuple[str, str]
"""How a span was read: the signature of its files, and the fingerprint of the settings."""


def usability_fingerprint(context: RunContext) -> str:
    """Changes with what decides whether a span can be used, but for its files."""
    # The schema is read anew each time: the first span that can be used writes it.
    content = schema_content(context.ingestion.settings.schema_file)
    parts = (context.ingestion.fingerprint, config_fingerprint(context.config), content)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def usable_spans(window: Window, context: RunContext, event_log: EventLog) -> list[Span]:
    """The spans of a window but for those that earlier runs could not use, and may leave out."""
    settings = usability_fingerprint(context)
    if context.config.schedule_or_default.missing_span is MissingSpan.FAIL:
        return list(window.spans)
    broken = _last_readings(event_log, EventKind.UNUSABLE_SPAN)
    older = [
        span for span in window.spans[:-1] if broken.get(span.number) != (span.signature, settings)
    ]
    return [*older, window.newest]


def make_spans(usable: Sequence[Span], event_log: EventLog) -> Spans:
    """What the graph is told of the spans to train on, oldest first.

    Args:
      usable: spans of the window.
      event_log: knows what was trained on before.
    """
    newest = usable[-1].number
    # Of earlier nights alone: a rerun of this one has to find the same.
    trained = [
        event.details["window"][-1]
        for event in event_log.events(EventKind.FINISHED)
        if event.details["status"] != Status.VALIDATED and event.details["window"][-1] < newest
    ]
    return Spans(newest, tuple(span.number for span in usable), max(trained, default=None))


def _last_readings(event_log: EventLog, kind: EventKind) -> dict[int, Reading]:
    """By span, what the last event of a kind was about."""
    return {
        event.details["span"]: (event.details["signature"], event.details["settings"])
        for event in event_log.events(kind)
    }


def left_out(window: Window, usable: Sequence[Span]) -> list[str]:
    """What people should know of the spans of a window that are not among those to train on."""
    return [
        f"span {span} is left out: it could not be used"
        for span in window.spans
        if span not in usable
    ]


class WindowReader:
    """Reads, counts and checks the older spans of a window; what is cached costs nothing."""

    def __init__(
        self, context: RunContext, event_log: EventLog, run_events: RunEvents, run_id: str
    ) -> None:
        """Reads nothing yet.

        Args:
          context: of the run.
          event_log: of the pipeline.
          run_events: of the run.
          run_id: of the run.
        """
        self._context = context
        self._event_log = event_log
        self._run_events = run_events
        self._run_id = run_id
        self.notes: list[str] = []
        """What ExampleGen has said of the spans that were read."""

    def read(self, window: Window, console: RunConsole) -> list[Span]:
        """Reads what is new but for the newest span, which the run itself begins with.

        Args:
          window: of the run.
          console: shows a line for each span that is read.

        Returns:
          The spans to train on: those of the window, but for those that cannot be used.

        Raises:
          ComponentFailedError: a span cannot be used and `missing_span` is `fail`, or reading
            failed for another reason than the data.
        """
        ingested = _last_readings(self._event_log, EventKind.INGESTED)
        uris = {
            e.details["span"]: e.details["uri"] for e in self._event_log.events(EventKind.INGESTED)
        }
        present = self._live_examples() if ingested else set()
        usable = []
        for span in usable_spans(window, self._context, self._event_log)[:-1]:
            reading = (span.signature, self._context.ingestion.fingerprint)
            is_read = ingested.get(span.number) == reading and uris[span.number] in present
            if is_read or self._ingest(span, console):
                usable.append(span)
        usable.append(window.newest)
        self._run_events.trains_on(usable)
        return usable

    def _ingest(self, span: Span, console: RunConsole) -> bool:
        """Reads a span; returns whether it can be used."""
        context = self._context
        title, began = f"span {span.name}", time.monotonic()
        observer = _SpanObserver(ArtifactReader(context.connection, context.config))
        had_schema = context.layout.schema.exists()
        self._run_events.started()
        console.started(title)
        pipeline = create_ingestion(context, Spans(span.number))
        try:
            LocalRunner(f"{self._run_id}.{span.name}", observer).run(pipeline)
        except Exception as error:
            status, message = explain(error)
            console.finished(title, State.FAILED, time.monotonic() - began, message)
            skips = context.config.schedule_or_default.missing_span is MissingSpan.SKIP
            if status is not Status.UNUSABLE or not skips:
                raise
            logger.warning("Span %s is left out: %s", span, message)
            if not had_schema:
                # A schema inferred from such data would make all that follows unusable, too.
                context.layout.schema.unlink(missing_ok=True)
            self._run_events.unusable(span, message, usability_fingerprint(context))
            return False
        reader = observer.reader
        examples = reader.examples_per_split()
        fingerprint = context.ingestion.fingerprint
        self._run_events.ingested(span, examples, fingerprint, reader.examples_uri())
        notes = reader.notes()
        self.notes += [f"{title}: {note}" for note in notes]
        counts = ", ".join(f"{split} {n:,}" for split, n in examples.items())
        detail = "; ".join(filter(None, (counts, gist(notes))))
        console.finished(title, observer.state, time.monotonic() - began, detail)
        return True

    def _live_examples(self) -> set[str]:
        """The uris of the examples whose files are there."""
        with metadata.Metadata(self._context.connection) as handle:
            artifacts = handle.store.get_artifacts_by_type("Examples")
        return {
            artifact.uri
            for artifact in artifacts
            if artifact.state == metadata_store_pb2.Artifact.LIVE
        }


class _SpanObserver:
    """Notes what the components that read one span have left."""

    def __init__(self, reader: ArtifactReader) -> None:
        self.reader = reader
        self.state = State.CACHED

    def started(self, component: str) -> None:
        """Does nothing: the console has a line per span, not per component."""

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        """A component ended."""
        if state is not State.CACHED:
            self.state = state
        if execution is not None and state is not State.FAILED:
            self.reader.add(component, execution)
