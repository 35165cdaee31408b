"""Clocks that were set: firings that come again, waits that do not grow, files of the future."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.schedule import scheduler
from pipeline.schedule.decision import Due, NotDue
from tests.support.scheduled_days import Days, at

NIGHTLY = {"cron": "0 3 * * *", "window": {"last": 3}, "missing_span": "skip"}


def test_changed_clock_does_not_stop_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, passed = at(4).timestamp(), 0.0
    monkeypatch.setattr(
        scheduler, "time", SimpleNamespace(time=lambda: shown, monotonic=lambda: passed)
    )
    monkeypatch.setattr(scheduler, "system_clock", lambda: at(4))
    is_due = scheduler.make_due_check(
        ScheduleSettings.model_validate({"cron": "0 4 * * *", "poll": "5m"})
    )
    assert not is_due()
    shown += 3600  # Set forward, over a firing.
    assert is_due()
    shown -= 86400  # And back, by a day.
    assert not is_due()
    passed = 300.0
    assert is_due()


def test_firings_of_a_clock_set_back_come_again(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY)
    days.deliver(1, 2, 3)
    assert isinstance(days.check(at(4)), Due)
    days.run(at(4))
    assert isinstance(days.check(at(34)), NotDue)  # Thirty days ahead, and back.
    assert days.check(at(4, 5)) == NotDue("cron has not fired")
    days.deliver(4)
    due = days.check(at(5))
    assert isinstance(due, Due)
    assert due.reason.startswith("cron fired at 2026-01-05 03:00 UTC; ")
