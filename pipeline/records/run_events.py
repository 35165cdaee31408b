"""Records the events of a run in the event log, and sends its notifications."""

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

STATUSES_OF_FINISHED_RUNS = (
    *(Status.PUSHED, Status.NOT_BLESSED, Status.VALIDATED, Status.TUNED),
    *(Status.HELD, Status.WAITS, Status.SUPERSEDED),
)


SpanStates = dict[str, dict[str, str]]
"""The states of spans by number: mappings with `signature` and `digest`."""


def span_states(spans: list[Span], event_log: EventLog) -> SpanStates:
    """Returns the states of spans; reads only files whose digest the event log does not contain."""
    known = event_log.known_digests()
    return {
        str(span.number): {
            "signature": span.signature,
            "digest": known.get(span.signature) or _digest(span),
        }
        for span in spans
    }


def _digest(span: Span) -> str:
    """Returns the digest of a span, or an empty string if its files have been deleted."""
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
        reason: str,
        states: SpanStates | None = None,
    ) -> None:
        """Computes the states of the spans; records no event.

        Args:
          data: the spans to train on, oldest first; data without spans counts as one span.
          states: the result of `span_states` in an earlier step of the run; default: computed now.
        """
        self._event_log = event_log
        self._config = config
        self._run = run_id
        self._data = data
        self._window = [span.number for span in data]
        # The states are read before the data, so that a change during the run is new to the next
        # run.
        self.states = span_states(data, event_log) if states is None else states
        self._reason = reason
        self._has_begun = False

    def record_start(self) -> None:
        """Records the start of the run; further calls do nothing."""
        if not self._has_begun:
            self._has_begun = True
            # If each step is a separate process, an earlier step may have recorded the start.
            if self._event_log.events(EventKind.STARTED, run=self._run):
                return
            self._record(
                EventKind.STARTED,
                self._reason,
                window=self._window,
                newest=str(self._data[-1]),
                warm_start=self._config.schedule_or_default.warm_start,
                process=os.getpid(),
            )

    def set_window(self, spans: Sequence[Span]) -> None:
        """Stores the spans that the run trains on, without refused spans; records no event."""
        self._window = [span.number for span in spans]

    def record_reading(self, span: Span, examples: dict[str, int], settings: str, uri: str) -> None:
        """Records that a span was read and checked, unless the event log has the same event.

        Args:
          examples: the number of examples by split.
          settings: the fingerprint of the settings that affect the examples.
        """
        reading = {
            "span": span.number,
            "signature": span.signature,
            "settings": settings,
            "examples": examples,
            "uri": uri,
        }
        known = SpanRecords(self._event_log).current_reading(span)
        if known is None or known.details != reading:
            counts = ", ".join(f"{split} {count:,}" for split, count in examples.items())
            self._record(EventKind.INGESTED, f"span {span}: {counts}", **reading)

    def record_refusal(
        self,
        span: Span,
        message: str,
        settings: str,
        has_drifted: bool,
        compared_with: int | None = None,
    ) -> None:
        """Records that a span was refused, unless the event log has the same event.

        Args:
          settings: the fingerprint of the settings that affect the check, or an empty string if the
            next run checks the span again even with equal settings.
          has_drifted: whether drift is the only problem.
          compared_with: the number of the span that this span was compared with to find drift. A
            later run reuses the refusal only if it would compare with the same span. None for the
            newest span, whose refusal is never reused.
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

    def record_drift(self, span: Span, messages: Sequence[str]) -> None:
        """Records that a span has drifted but was not refused, once for each message.

        A run that trains may find drift that an earlier data check has recorded. The notification
        is sent at the end of the run.

        Args:
          messages: a message for each drifted column.
        """
        known = {
            (e.details["span"], e.details.get("signature", span.signature), e.message)
            for e in self._event_log.events(EventKind.DRIFT)
        }
        for drift in messages:
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
        self._record_anomalies(summary.anomalies)
        self.record_drift(self._data[-1], summary.drift)
        if new := self._event_log.events(EventKind.DRIFT, run=self._run):
            self._notify(Occasion.DRIFT, "; ".join(self._describe(event) for event in new))
        if summary.blessed is not None:
            # A blessed model has the status NOT_BLESSED if a later check failed, such as the check
            # of a required variant.
            passed = summary.blessed and summary.status is not Status.NOT_BLESSED
            kind = EventKind.BLESSED if passed else EventKind.NOT_BLESSED
            self._record(kind, summary.reason or "")
        if summary.pushed is not None:
            self._record_push(summary, summary.pushed, model)
        if summary.waiting is not None:
            self._record_waiting(summary, summary.waiting)
        if left_out := self._describe_left_out():
            self._notify(Occasion.LEFT_OUT, "; ".join(left_out))
        self._record_result(summary)

    def _record_anomalies(self, found: Sequence[str]) -> None:
        """Records the anomalies of the newest span in one event."""
        newest = self._data[-1]
        details = {"span": newest.number, "anomalies": list(found), "columns": len(found)}
        if found and self._last_details(EventKind.ANOMALY, newest) != details:
            message = "; ".join(found)
            if len(found) > 1:
                message = f"{len(found)} columns: {message}"
            self._record(EventKind.ANOMALY, message, **details)

    def _last_details(self, kind: EventKind, span: Span) -> dict[str, Any]:
        """Returns the details of a span's last event of a kind, or {} if there is none."""
        of_span = (
            event.details
            for event in reversed(self._event_log.events(kind))
            if event.details.get("span") == span.number
        )
        return next(of_span, {})

    def _describe(self, event: LoggedEvent) -> str:
        """Returns the message of an event, with its span if the data has spans."""
        number = event.details["span"]
        if number == NO_SPAN:
            return event.message
        return f"span {span_kind(self._config.data).show(number)}: {event.message}"

    def _describe_left_out(self) -> list[str]:
        """Returns the reasons for refusing spans that the run left out."""
        if self._config.schedule_or_default.missing_span is MissingSpan.FAIL:
            return []
        refused = self._event_log.events(EventKind.UNUSABLE_SPAN, run=self._run)
        # A refusal without settings concerns the newest span. Such a refusal ends the run, so the
        # span is not left out.
        return [event.message for event in refused if event.details["settings"]]

    def _record_push(self, summary: RunSummary, path: str, model: str | None) -> None:
        """Records a pushed version, unless the event log contains it, as after a resumed run."""
        pushed = [event.details["path"] for event in self._event_log.events(EventKind.PUSHED)]
        if path in pushed:
            return
        model_details = self._model_details(summary)
        self._record(
            EventKind.PUSHED,
            f"to {path}",
            version=PurePosixPath(path).name,
            path=path,
            model=model,
            **model_details,
        )
        self._notify(Occasion.PUSHED, f"pushed to {path}", metrics=model_details["metrics"])

    def _record_waiting(self, summary: RunSummary, waiting: WaitingSummary) -> None:
        """Records a model that was not pushed, unless an earlier run has recorded the model."""
        known = [event.details["version"] for event in self._event_log.events(EventKind.WAITS)]
        if waiting.version in known:
            return
        message = f"version {waiting.version}: {waiting.reason}"
        details = asdict(waiting) | {"superseded": waiting.status is Status.SUPERSEDED}
        del details["status"]
        details |= self._model_details(summary)
        self._record(EventKind.WAITS, message, **details)
        notice = f"blessed, but not pushed: {message}"
        self._notify(Occasion.HELD, notice, metrics=details["metrics"])

    def _model_details(self, summary: RunSummary) -> dict[str, Any]:
        """Returns the details of events about a model."""
        # JSON has no NaN.
        values = {name: metric.value for name, metric in summary.metrics.items()}
        return {
            "metrics": {n: value if math.isfinite(value) else None for n, value in values.items()},
            "window": self._window,
            "strategy": summary.strategy,
            "model_kind": summary.training.get("model"),
        }

    def _record_result(self, summary: RunSummary) -> None:
        status = summary.status
        details: dict[str, Any] = {"status": status.value, "exit_code": status.exit_code}
        if status in STATUSES_OF_FINISHED_RUNS:
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
        component = f"{error.component}: " if error and error.component else ""
        message = component + (error.message if error else status.value)
        self._record(EventKind.FAILED, message, **details)
        if status is not Status.INTERRUPTED:  # A user who stopped the run needs no notification.
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
