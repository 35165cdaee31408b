"""What a decision says, and everything that it rests on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.config.sections.data import has_spans
from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.config.settings import PipelineConfig
from pipeline.data.spans import Span
from pipeline.exit_codes import EXIT_PUSHED
from pipeline.layout import Layout
from pipeline.schedule.cron import firings_between, show_time
from pipeline.schedule.decisions.data_changes import (
    DataChanges,
    DataSnapshot,
    compare_with_trained,
    take_snapshot,
)
from pipeline.schedule.decisions.history import History

FIRST_CHECK_LOOKS_BACK = timedelta(hours=1)
"""A firing counts that came at most so long before the first check of a pipeline: what calls
`schedule --once` is set to a little after the firing that it serves."""


@dataclass(frozen=True)
class Due:
    """A run is to be started now."""

    reason: str
    through: int | None = None
    """The span to end at; None where the data does not come in spans."""
    validate_only: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    """For the event log; later decisions read them there."""
    left_out: tuple[str, ...] = ()
    """Why spans wait until somebody does something about them, a sentence each."""
    empty_spans: tuple[Span, ...] = ()
    """Those that the run goes on without, as they hold no row."""


@dataclass(frozen=True)
class NotDue:
    """Nothing is to be started now."""

    reason: str
    details: dict[str, Any] | None = None
    """For the event log; None if the decision is not worth recording."""
    exit_code: int = EXIT_PUSHED
    """Of a look that comes to it: not 0 while something is wrong."""
    is_problem: bool = False
    """Whether to tell of it; the run that failed has done so itself."""
    says_nothing: bool = False
    """Whether it says nothing of what was wrong before, as it has not looked at the data."""
    left_out: tuple[str, ...] = ()
    """As of a decision to run."""
    empty_spans: tuple[Span, ...] = ()
    """Those that are waited for, as they hold no row."""


@dataclass(frozen=True)
class DecisionInputs:
    """Everything that a decision rests on, read once."""

    config: PipelineConfig
    now: datetime
    history: History
    snapshot: DataSnapshot
    changes: DataChanges
    firings: list[datetime]
    """The firings that no decision has dealt with yet."""
    is_first_check: bool
    """Whether no earlier decision knew this cron expression and time zone."""
    schema_hash: str
    """Of the schema's file, which people edit after data was refused; empty without one."""

    @classmethod
    def read(
        cls, config: PipelineConfig, layout: Layout, history: History, now: datetime
    ) -> DecisionInputs:
        """Reads the data and the schema as they are now."""
        settings = config.schedule_or_default
        snapshot = take_snapshot(config, layout, now)
        trained = history.trained.details["spans"] if history.trained else {}
        due = history.due
        decided_at = history.believed(due.at, due, now) if due else None
        accepted = {event.details["span"] for event in history.accepted}
        in_spans = has_spans(config.data)
        changes = compare_with_trained(snapshot, trained, decided_at, in_spans, accepted)
        handled = history.firings_handled_until(_clock_id(settings), now)
        after = now - FIRST_CHECK_LOOKS_BACK if handled is None else handled
        firings = firings_between(settings, after, now)
        schema_file = Path(config.schema_file) if config.schema_file else layout.schema
        schema_hash = _hash_file(schema_file)
        return cls(config, now, history, snapshot, changes, firings, handled is None, schema_hash)

    @property
    def settings(self) -> ScheduleSettings:
        """The schedule."""
        return self.config.schedule_or_default

    @property
    def fingerprint(self) -> str:
        """The config's."""
        return self.config.fingerprint

    @property
    def has_changed(self) -> bool:
        """Whether data, config or schema have changed since the last decision to run.

        Nor is data what it was once somebody has accepted a span.
        """
        decided = self.history.decision
        return self.snapshot.problem is None and (
            decided.get("spans") != self.snapshot.signatures
            or decided.get("config") != self.fingerprint
            or decided.get("schema") != self.schema_hash
            or bool(self.history.accepted)
        )

    @property
    def firings_in_words(self) -> str:
        """Such as `the clock fired at 2026-01-05 03:00 UTC, and 2 missed before`."""
        last, missed = self.firings[-1], len(self.firings) - 1
        more = f", and {missed} missed before" if missed and not self.is_first_check else ""
        return f"the clock fired at {show_time(last, self.settings)}{more}"

    def clock_details(self) -> dict[str, Any]:
        """Details by which later decisions know that all firings up to now are dealt with."""
        if self.settings.cron is None:
            return {}
        details: dict[str, Any] = {
            "clock": _clock_id(self.settings),
            "handled": self.now.isoformat(),
        }
        if self.firings:
            details |= {"firing": self.firings[-1].isoformat(), "firings": len(self.firings)}
        return details

    def due(self, reason: str, validate_only: bool = False) -> Due:
        """A decision to run on the window as it is now."""
        window = self.snapshot.window
        through = window.newest.number if window and has_spans(self.config.data) else None
        details = self.clock_details() | {
            "because": reason,
            "through": through,
            "validate_only": validate_only,
            "attempt": 1,
            "spans": self.snapshot.signatures,
            "config": self.fingerprint,
            "schema": self.schema_hash,
        }
        return Due(reason, through, validate_only, details)

    def not_due(self, reason: str) -> NotDue:
        """A decision against a run; a firing that waits for one is dealt with by it."""
        if self.firings:
            return NotDue(f"{self.firings_in_words}: {reason}", self.clock_details())
        return NotDue(reason)


def _clock_id(settings: ScheduleSettings) -> str:
    return f"{settings.cron} {settings.timezone}"


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""
