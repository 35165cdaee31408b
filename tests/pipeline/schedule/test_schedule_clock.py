"""Clocks that were set: firings that come again, waits that do not grow, files of the future."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.records.event_log import EventKind
from pipeline.records.summary import Status
from pipeline.schedule import scheduler
from pipeline.schedule.decision import Due, NotDue
from tests.support.scheduled_days import OTHER_ROWS, Days, at

NIGHTLY = {"cron": "0 3 * * *", "window": {"last": 3}, "missing_span": "skip"}


def test_a_clock_that_is_set_stops_no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_clock_set_back_by_seconds_fires_nothing_twice(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY)
    days.deliver(1, 2, 3)
    days.check(at(4))
    days.run(at(4))
    days.deliver(3, rows=OTHER_ROWS, arrives=at(4, 2))
    assert days.check(at(4) - timedelta(seconds=30)) == NotDue("cron has not fired")


def test_retry_does_not_wait_for_the_time_of_another_clock(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY | {"retry": {"attempts": 2, "backoff": "10m"}})
    days.deliver(1, 2, 3)
    assert isinstance(days.check(at(34)), Due)
    days.run(at(34), Status.FAILED)
    again = days.check(at(4, 12))
    assert isinstance(again, Due)
    assert again.reason.startswith("attempt 2 of 2 (")


def test_files_of_the_future_are_told_as_such(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY)
    days.deliver(1, 2, 3)
    days.check(at(4))
    days.run(at(4))
    days.deliver(4, rows=OTHER_ROWS, arrives=at(34))
    why = (
        "span 2026-01-04 has files dated 2026-02-03 03:00 UTC, later than this machine's "
        "clock: correct the clock, or `touch` the files"
    )
    for hour in (3, 4):
        decision = days.check(at(5, hour))
        assert isinstance(decision, NotDue)
        assert f"{why}; it is not read yet" in decision.reason
        assert "being written" not in decision.reason
    assert [event.message for event in days.events(EventKind.LEFT_OUT)] == [why]
    days.deliver(4, rows=OTHER_ROWS, arrives=at(5, 5))  # As `touch` does.
    assert isinstance(days.check(at(6)), Due)


def test_data_of_the_future_without_spans_is_a_problem(tmp_path: Path) -> None:
    days = Days(tmp_path, {"on_new_data": True})
    days.deliver(1, arrives=at(34))
    path = next((tmp_path / "days").glob("*/*.csv")).parent / "*.csv"
    days.change({"data": days.raw["data"] | {"path": str(path)}})
    decision = days.check(at(5))
    assert isinstance(decision, NotDue)
    assert decision.is_problem
    assert decision.reason.startswith("data.path: the data has files dated 2026-02-03 03:00 UTC")
