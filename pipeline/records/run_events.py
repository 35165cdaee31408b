"""The events that a run records in the event log, and its notifications."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any

from pipeline.config.sections.data import NO_SPAN, span_kind
from pipeline.config.sections.notify import Occasion
from pipeline.config.sections.schedule import MissingSpan
from pipeline.config.settings import PipelineConfig
from pipeline.data.spans import Span
from pipeline.records.data_records import SpanRecords
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import notify
from pipeline.records.summary import RunSummary, State, Status, WaitingSummary

ENDED_WELL = (
    *(Status.PUSHED, Status.NOT_BLESSED, Status.VALIDATED, Status.TUNED),
    *(Status.HELD, Status.WAITS, Status.SUPERSEDED),
)


SpanStates = dict[str, dict[str, str]]
"""The `signature` and `digest` of each span, by number."""


def span_states(spans: list[Span], event_log: EventLog) -> SpanStates:
    """Returns each span's signature and digest, by number; known signatures need no reading."""
    known = event_log.known_digests()
    return {
        str(span.number): {
            "signature": span.signature,
            "digest": known.get(span.signature) or _digest(span),
        }
        for span in spans
    }


def _digest(span: Span) -> str:
    """Returns the digest of a span; empty if its files have been deleted."""
    try:
        return span.digest()
    except OSError:
        return ""


class RunEvents:
    """A recorder of one run's events, which also sends notifications."""

    def __init__(
        self,
        event_log: EventLog,
        config: PipelineConfig,
        run_id: str,
        data: list[Span],
        because: str,
        states: SpanStates | None = None,
    ) -> None:
        """Reads the state of the data's files; records nothing yet.

        Args:
          event_log: the event log of the pipeline.
          config: the config of the run.
          run_id: the run's id.
          data: the spans to train on, oldest first; data without spans counts as one.
          because: the reason for the run.
          states: the result of `span_states` at the start of the run, if an earlier step computed
            it.
        """
        self._event_log = event_log
        self._config = config
        self._run = run_id
        self._data = data
        self._window = [span.number for span in data]
        # Read before the data itself, so that later changes are new to the next run.
        self.states = span_states(data, event_log) if states is None else states
        self._because = because
        self._has_begun = False

    def started(self) -> None:
        """Records the start of the run when the first component begins; does nothing afterwards."""
        if not self._has_begun:
            self._has_begun = True
            # If each step is a process of its own, an earlier step may have recorded it.
            if self._event_log.events(EventKind.STARTED, run=self._run):
                return
            self._record(
                EventKind.STARTED,
                self._because,
                window=self._window,
                newest=str(self._data[-1]),
                warm_start=self._config.schedule_or_default.warm_start,
                process=os.getpid(),
            )

    def record_window(self, spans: Sequence[Span]) -> None:
        """Stores which of the spans can be used."""
        self._window = [span.number for span in spans]

    def ingested(self, span: Span, examples: dict[str, int], settings: str, uri: str) -> None:
        """Records that a span was read and checked, unless the event log has the same reading.

        Args:
          span: the span.
          examples: the number of examples by split.
          settings: the fingerprint of the settings for making examples.
          uri: the URI of the examples.
        """
        reading = {
            "span": span.number,
            "signature": span.signature,
            "settings": settings,
            "examples": examples,
            "uri": uri,
        }
        known = SpanRecords(self._event_log).read(span)
        if known is None or known.details != reading:
            counts = ", ".join(f"{split} {count:,}" for split, count in examples.items())
            self._record(EventKind.INGESTED, f"span {span}: {counts}", **reading)

    def unusable(
        self,
        span: Span,
        message: str,
        settings: str,
        has_drifted: bool,
        compared_with: int | None = None,
    ) -> None:
        """Records that a span was refused, unless the event log has the same refusal.

        Args:
          span: the span.
          message: the reason.
          settings: the fingerprint of the settings that decide whether the span can be used; empty
            to check the span again with any settings.
          has_drifted: whether drift is the only problem.
          compared_with: the span with which it was compared for drift; not needed for the newest
            span, which is checked again in any case.
        """
        full_message = f"span {span}: {message}"
        refusal = {
            "span": span.number,
            "signature": span.signature,
            "settings": settings,
            "has_drifted": has_drifted,
            "compared_with": compared_with,
        }
        known = SpanRecords(self._event_log).refusal(span)
        if known is None or (known.message, known.details) != (full_message, refusal):
            self._record(EventKind.UNUSABLE_SPAN, full_message, **refusal)

    def drifted(self, span: Span, found: Sequence[str]) -> None:
        """Records that a span has drifted and is used nevertheless, once for each finding.

        The notification is sent at the end of the run. A run that trains finds the same drift as an
        earlier run that checked the data.
        """
        known = {
            (e.details["span"], e.details.get("signature", span.signature), e.message)
            for e in self._event_log.events(EventKind.DRIFT)
        }
        for drift in found:
            if (span.number, span.signature, drift) not in known:
                self._record(EventKind.DRIFT, drift, span=span.number, signature=span.signature)

    def record_end(self, summary: RunSummary, model: str | None) -> None:
        """Records the end of the run, and sends notifications.

        Args:
          summary: the final summary.
          model: the URI of the Model artifact, if there is one.
        """
        if cached := [c.name for c in summary.components if c.state is State.CACHED]:
            self._record(EventKind.CACHED, f"{', '.join(cached)}: nothing new", components=cached)
        self._found_anomalies(summary.anomalies)
        self.drifted(self._data[-1], summary.drift)
        if new := self._event_log.events(EventKind.DRIFT, run=self._run):
            self._notify(Occasion.DRIFT, "; ".join(self._with_span(event) for event in new))
        if summary.blessed is not None:
            is_good = summary.blessed and summary.status is not Status.NOT_BLESSED
            kind = EventKind.BLESSED if is_good else EventKind.NOT_BLESSED
            self._record(kind, summary.reason or "")
        if summary.pushed is not None:
            self._pushed(summary, summary.pushed, model)
        if summary.waiting is not None:
            self._waits(summary, summary.waiting)
        if left_out := self._left_out():
            self._notify(Occasion.LEFT_OUT, "; ".join(left_out))
        self._ended(summary)

    def _found_anomalies(self, found: Sequence[str]) -> None:
        """Records the anomalies of all columns of a span in one event."""
        newest = self._data[-1]
        details = {"span": newest.number, "anomalies": list(found), "columns": len(found)}
        if found and self._last_of_span(EventKind.ANOMALY, newest) != details:
            message = "; ".join(found)
            if len(found) > 1:
                message = f"{len(found)} columns: {message}"
            self._record(EventKind.ANOMALY, message, **details)

    def _last_of_span(self, kind: EventKind, span: Span) -> dict[str, Any]:
        """Returns the details of a span's last event of a kind; empty if there is none."""
        of_span = (
            event.details
            for event in reversed(self._event_log.events(kind))
            if event.details.get("span") == span.number
        )
        return next(of_span, {})

    def _with_span(self, event: LoggedEvent) -> str:
        """Returns the message of an event, with its span if the data has spans."""
        number = event.details["span"]
        if number == NO_SPAN:
            return event.message
        return f"span {span_kind(self._config.data).show(number)}: {event.message}"

    def _left_out(self) -> list[str]:
        """Returns the reasons of refused spans without which the run continued."""
        if self._config.schedule_or_default.missing_span is MissingSpan.FAIL:
            return []
        refused = self._event_log.events(EventKind.UNUSABLE_SPAN, run=self._run)
        # Refusals without settings are those of the newest span, which is always checked again.
        return [event.message for event in refused if event.details["settings"]]

    def _pushed(self, summary: RunSummary, path: str, model: str | None) -> None:
        """Records a pushed version, unless a run that this one resumes has recorded it."""
        pushed = [event.details["path"] for event in self._event_log.events(EventKind.PUSHED)]
        if path in pushed:
            return
        found = self._found(summary)
        self._record(
            EventKind.PUSHED,
            f"to {path}",
            version=PurePosixPath(path).name,
            path=path,
            model=model,
            **found,
        )
        self._notify(Occasion.PUSHED, f"pushed to {path}", metrics=found["metrics"])

    def _waits(self, summary: RunSummary, waiting: WaitingSummary) -> None:
        """Records a model that waits, unless an earlier run has recorded the same model."""
        known = [event.details["version"] for event in self._event_log.events(EventKind.WAITS)]
        if waiting.version in known:
            return
        found, message = self._found(summary), f"version {waiting.version}: {waiting.reason}"
        details = asdict(waiting) | {"superseded": waiting.status is Status.SUPERSEDED}
        del details["status"]
        self._record(EventKind.WAITS, message, **details, **found)
        self._notify(Occasion.HELD, f"blessed, and not pushed: {message}", metrics=found["metrics"])

    def _found(self, summary: RunSummary) -> dict[str, Any]:
        """Returns the details that events of a model record."""
        # JSON has no NaN.
        values = {name: metric.value for name, metric in summary.metrics.items()}
        return {
            "metrics": {n: value if math.isfinite(value) else None for n, value in values.items()},
            "window": self._window,
            "strategy": summary.strategy,
            "model_kind": summary.training.get("model"),
        }

    def _ended(self, summary: RunSummary) -> None:
        status = summary.status
        details: dict[str, Any] = {"status": status.value, "exit_code": status.exit_code}
        if status in ENDED_WELL:
            details |= {
                "window": self._window,
                "spans": self.states,
                "config": self._config.fingerprint,
            }
            self._record(EventKind.FINISHED, summary.reason or status.value, **details)
            if status is Status.NOT_BLESSED:
                self._notify(Occasion.NOT_BLESSED, summary.reason or "")
            return
        error = summary.error
        where = f"{error.component}: " if error and error.component else ""
        message = where + (error.message if error else status.value)
        self._record(EventKind.FAILED, message, **details)
        if status is not Status.INTERRUPTED:  # The user stopped the run.
            self._notify(Occasion.FAILED, message)

    def _record(self, kind: EventKind, message: str, **details: Any) -> None:
        self._event_log.record(kind, message, run=self._run, **details)

    def _notify(self, occasion: Occasion, message: str, **details: Any) -> None:
        notify(
            self._config.notify,
            self._config.name,
            occasion,
            message,
            details,
            self._event_log,
            run=self._run,
        )
