"""Reads the spans of a window that have not been read yet, one after another."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata

from components.example_validator.verdict import span_command
from components.schema_gen.files import schema_content
from components.user_errors import is_drift
from pipeline.config.sections.schedule import DriftSettings, MissingSpan, OnDrift
from pipeline.data.spans import Span, Window
from pipeline.graph.create import create_ingestion
from pipeline.graph.data import Spans
from pipeline.records.data_records import SpanRecords
from pipeline.records.event_log import EventLog, LoggedEvent
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import State, Status
from pipeline.run_context import RunContext
from pipeline.runs.artifact_reader import ArtifactReader, gist
from pipeline.runs.console import RunConsole
from pipeline.runs.local import LocalRunner, explain
from trainer_module.typed_words import typed_command

logger = logging.getLogger(__name__)


def usability_fingerprint(context: RunContext) -> str:
    """Returns a hash of everything that determines whether a span can be used, except its files."""
    # The schema is read each time, as the first usable span writes it.
    content = schema_content(context.ingestion.settings.schema_file)
    parts = (context.ingestion.fingerprint, context.config.fingerprint, content)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def usable_spans(window: Window, context: RunContext, event_log: EventLog) -> list[Span]:
    """Returns the spans of a window.

    If gaps are allowed, spans that earlier runs refused are omitted.
    """
    if context.config.schedule_or_default.missing_span is MissingSpan.FAIL:
        return list(window.spans)
    settings, records = usability_fingerprint(context), SpanRecords(event_log)
    older = window.spans[:-1]
    usable = [s for s in older if not _is_still_refused(s, settings, context.config.drift, records)]
    return [*usable, window.newest]


def _is_still_refused(
    span: Span, settings: str, drift: DriftSettings, records: SpanRecords
) -> bool:
    """Returns whether a span was refused, and would be refused again."""
    refusal = records.refusal(span)
    # With other settings or another schema, the span may pass.
    if refusal is None or refusal.details["settings"] != settings:
        return False
    if not refusal.details.get("has_drifted"):
        return True
    # Compared with another span, such as a span that was accepted since, the span may pass.
    return refusal.details.get("compared_with") == _compared_with(span, drift, records)


def make_spans(usable: Sequence[Span], drift: DriftSettings, event_log: EventLog) -> Spans:
    """Returns the spans for the graph, by number.

    Args:
      usable: the spans to train on, oldest first.
      drift: the thresholds and the reaction to drift.
      event_log: the event log, with the spans that were read before.
    """
    numbers = tuple(span.number for span in usable)
    compared_with = _compared_with(usable[-1], drift, SpanRecords(event_log))
    return Spans(numbers[-1], numbers, compared_with)


def _compared_with(span: Span, drift: DriftSettings, records: SpanRecords) -> int | None:
    """Returns the span with which a span is compared for drift, or None without a comparison."""
    if not drift.columns:
        return None
    if records.acceptance(span):
        return None
    return records.compared_with(span.number, drift.on_drift)


def describe_left_out(window: Window, usable: Sequence[Span], event_log: EventLog) -> list[str]:
    """Returns notes on the spans of a window that are left out."""
    records = SpanRecords(event_log)
    return [
        f"span {span} is left out: {_explain_refusal(records.refusal(span))}"
        for span in window.spans
        if span not in usable
    ]


def _explain_refusal(refusal: LoggedEvent | None) -> str:
    if refusal is not None and refusal.details.get("has_drifted"):
        return f"the span has drifted; if the data is correct, accept the span: `{span_command()}`"
    return f"the span could not be used; `{typed_command('spans list')}` shows the reason"


@dataclass
class WindowReader:
    """A reader of the older spans of a window, which reads, counts and checks them."""

    _context: RunContext
    _event_log: EventLog
    _run_events: RunEvents
    _run_id: str
    notes: list[str] = field(default_factory=list)
    """Notes on the spans that were read."""

    def read(self, window: Window, console: RunConsole) -> list[Span]:
        """Reads the new spans of a window, except the newest span, which the run itself reads.

        Args:
          console: the console, which shows a line for each span that is read.

        Returns:
          The spans to train on: the window without the spans that cannot be used.

        Raises:
          ComponentFailedError: a span cannot be used and `missing_span` is `fail`, or reading
            failed for another reason than the data.
        """
        if not self._context.config.family.data_graph:
            return list(window.spans)  # The training reads the data.
        records, fingerprint = SpanRecords(self._event_log), self._context.ingestion.fingerprint
        older = window.spans[:-1]
        readings = {
            span.number: event for span in older if (event := records.current_reading(span))
        }
        present = self._live_examples() if readings else set()
        is_read = {
            number
            for number, event in readings.items()
            if event.details["settings"] == fingerprint and event.details["uri"] in present
        }
        if self._context.config.drift.on_drift is OnDrift.FAIL:
            # Spans that drifted when drift was only a warning are checked again.
            is_read -= {s.number for s in older if records.drift(s) and not records.acceptance(s)}
        usable = [
            span for span in older if span.number in is_read or self._can_be_used(span, console)
        ]
        usable.append(window.newest)
        self._run_events.set_window(usable)
        return usable

    def _can_be_used(self, span: Span, console: RunConsole) -> bool:
        """Reads a span, unless it would be refused again; returns whether it can be used."""
        context = self._context
        if context.config.schedule_or_default.missing_span is not MissingSpan.FAIL:
            # The records have changed if the span to compare with was read just now.
            records, settings = SpanRecords(self._event_log), usability_fingerprint(context)
            if _is_still_refused(span, settings, context.config.drift, records):
                return False
        return self._ingest(span, console)

    def _ingest(self, span: Span, console: RunConsole) -> bool:
        """Reads a span; returns whether it can be used."""
        context = self._context
        title, began = f"span {span.name}", time.monotonic()
        observer = _SpanObserver(ArtifactReader(context.connection, context.config.criteria))
        had_schema = context.layout.schema.exists()
        self._run_events.record_start()
        console.started(title)
        records = SpanRecords(self._event_log)
        compared_with = _compared_with(span, context.config.drift, records)
        pipeline = create_ingestion(context, Spans(span.number, compared_with=compared_with))
        try:
            LocalRunner(f"{self._run_id}.{span.name}", observer).run(pipeline)
        except Exception as error:
            status, message = explain(error)
            console.finished(title, State.FAILED, time.monotonic() - began, message)
            if status is not Status.UNUSABLE:
                raise
            if not had_schema:
                # With a schema inferred from this data, all later data would be unusable, too.
                context.layout.schema.unlink(missing_ok=True)
            settings = usability_fingerprint(context)
            self._run_events.record_refusal(span, message, settings, is_drift(error), compared_with)
            if context.config.schedule_or_default.missing_span is MissingSpan.FAIL:
                raise
            logger.warning("Span %s is left out: %s", span, message)
            return False
        reader = observer.reader
        examples = reader.examples_per_split()
        fingerprint = context.ingestion.fingerprint
        self._run_events.record_reading(span, examples, fingerprint, reader.examples_uri())
        drift = [str(anomaly) for anomaly in reader.anomalies() if anomaly.is_drift]
        self._run_events.record_drift(span, drift)
        notes = [*reader.notes(), *(f"drift: {anomaly}" for anomaly in drift)]
        self.notes += [f"{title}: {note}" for note in notes]
        counts = ", ".join(f"{split} {n:,}" for split, n in examples.items())
        detail = "; ".join(filter(None, (counts, gist(notes))))
        console.finished(title, observer.state, time.monotonic() - began, detail)
        return True

    def _live_examples(self) -> set[str]:
        """Returns the URIs of the examples whose files exist."""
        with metadata.Metadata(self._context.connection) as handle:
            artifacts = handle.store.get_artifacts_by_type("Examples")
        return {
            artifact.uri
            for artifact in artifacts
            if artifact.state == metadata_store_pb2.Artifact.LIVE
        }


class _SpanObserver:
    """An observer that registers the executions of one span's components."""

    def __init__(self, reader: ArtifactReader) -> None:
        self.reader = reader
        self.state = State.CACHED

    def started(self, component: str) -> None:
        """Does nothing: the console has a line per span, not per component."""

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        """Registers the execution of a component that has ended."""
        if state is not State.CACHED:
            self.state = state
        if execution is not None and state.has_result:
            self.reader.add(component, execution)
