"""What is due and why, by a clock that the test sets."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pipeline.lock import ProcessLock
from pipeline.records.event_log import EventKind
from pipeline.records.summary import Status
from pipeline.schedule.decision import Due, NotDue
from pipeline.versions.hold import set_hold
from tests.support.scheduled_days import OTHER_ROWS, ROWS, Days, at, day_number

NIGHTLY = {"cron": "0 3 * * *", "window": {"last": 3}, "missing_span": "skip"}
AS_IT_COMES = {"on_new_data": True, "window": {"last": 3}}


@pytest.fixture
def nightly(tmp_path: Path) -> Days:
    """Trained by the clock, on the days up to the third."""
    days = Days(tmp_path, NIGHTLY)
    days.deliver(1, 2, 3)
    assert isinstance(days.check(at(4)), Due)
    days.run(at(4))
    return days


@pytest.fixture
def eager(tmp_path: Path) -> Days:
    """Trained as data comes, on the days up to the third."""
    days = Days(tmp_path, AS_IT_COMES)
    days.deliver(1, 2, 3)
    assert isinstance(days.check(at(4)), Due)
    days.run(at(4))
    return days


def test_new_day_is_due_when_the_clock_fires_and_not_before(nightly: Days) -> None:
    nightly.deliver(4)
    assert nightly.check(at(5, 2, 59)) == NotDue("cron has not fired")
    due = nightly.check(at(5, 3, 0))
    assert isinstance(due, Due)
    assert due.through == day_number(4)
    assert due.reason == "cron fired at 2026-01-05 03:00 UTC; new or changed: 2026-01-04"
    nightly.run(at(5))
    assert nightly.check(at(5, 3, 1)) == NotDue("cron has not fired")


def test_nothing_new_at_a_firing_is_skipped_and_recorded_once(nightly: Days) -> None:
    for minute in (0, 1, 2):
        decision = nightly.check(at(5, 3, minute))
        assert isinstance(decision, NotDue)
    (skipped,) = nightly.events(EventKind.SKIPPED)
    assert skipped.message == "cron fired at 2026-01-05 03:00 UTC: nothing is new"
    assert skipped.details["firing"] == "2026-01-05T03:00:00+00:00"


def test_missed_firings_start_one_run(nightly: Days) -> None:
    nightly.deliver(4, 5, 6)
    due = nightly.check(at(9, 12))
    assert isinstance(due, Due)
    assert due.reason.startswith("cron fired at 2026-01-09 03:00 UTC, after 4 missed firings; ")
    assert due.details["firings"] == 5
    nightly.run(at(9, 12))
    assert isinstance(nightly.check(at(9, 13)), NotDue)


def test_changed_config_runs_at_the_next_firing(nightly: Days) -> None:
    nightly.change({"train": {"epochs": 7}})
    assert isinstance(nightly.check(at(5, 2)), NotDue)
    assert nightly.check(at(5)).reason.endswith("; the config has changed")


def test_firing_waits_for_data_being_written(nightly: Days) -> None:
    nightly.deliver(4, arrives=at(5, 2, 59) + timedelta(seconds=30))
    waits = nightly.check(at(5))
    assert isinstance(waits, NotDue)
    assert "span 2026-01-04 is still being written (schedule.settle" in waits.reason
    assert nightly.events(EventKind.SKIPPED) == []
    due = nightly.check(at(5, 3, 5))
    assert isinstance(due, Due)
    assert due.through == day_number(4)


@pytest.mark.parametrize(
    ("last_check", "checked_at", "fired"),
    [
        # 02:30 is left out: it comes right after the gap.
        ("2026-03-29T01:00", "2026-03-29T03:05", "2026-03-29 03:00 CEST"),
        # 02:30 comes twice: the first one counts.
        ("2026-10-25T01:00", "2026-10-25T02:45", "2026-10-25 02:30 CEST"),
    ],
)
def test_cron_follows_its_time_zone_over_clock_changes(
    tmp_path: Path, last_check: str, checked_at: str, fired: str
) -> None:
    zone = ZoneInfo("Europe/Paris")
    days = Days(tmp_path, {"cron": "30 2 * * *", "timezone": "Europe/Paris"})
    days.deliver(1)
    assert isinstance(days.check(datetime.fromisoformat(last_check).replace(tzinfo=zone)), NotDue)
    now = datetime.fromisoformat(checked_at).replace(tzinfo=zone)
    due = days.check(now)
    assert isinstance(due, Due)
    assert due.reason.startswith(f"cron fired at {fired}; ")
    days.run(now)
    days.deliver(2)
    for later in (now.replace(fold=1), now.replace(hour=23)):
        assert days.check(later) == NotDue("cron has not fired")


def test_new_span_is_due_as_it_comes(eager: Days) -> None:
    assert eager.check(at(4, 4)) == NotDue("nothing new")
    eager.deliver(4)
    due = eager.check(at(5, 1, 30))
    assert isinstance(due, Due)
    assert (due.reason, due.through) == ("new or changed: 2026-01-04", day_number(4))


def test_changed_content_is_due_and_a_second_delivery_is_not(eager: Days) -> None:
    eager.deliver(2, arrives=at(4, 5))
    again = eager.check(at(4, 6))
    assert isinstance(again, NotDue)
    assert again.reason == (
        "nothing new; span 2026-01-02 was delivered again with the same content"
    )
    eager.deliver(2, rows=OTHER_ROWS, arrives=at(4, 7))
    assert eager.check(at(4, 8)).reason == "new or changed: 2026-01-02"


def test_late_span_counts_inside_the_window_alone(tmp_path: Path) -> None:
    days = Days(tmp_path, AS_IT_COMES | {"missing_span": "skip"})
    days.deliver(3, 4, 6)
    assert isinstance(days.check(at(7)), Due)
    days.run(at(7))
    days.deliver(2, arrives=at(7, 4))
    before = days.check(at(7, 5))
    assert isinstance(before, NotDue)
    assert (
        "span 2026-01-02 arrived late and is before the window, so no run trains on it"
        in before.reason
    )
    days.deliver(5, arrives=at(7, 6))
    inside = days.check(at(7, 7))
    assert isinstance(inside, Due)
    assert inside.reason.startswith("new or changed: 2026-01-05; ")
    assert inside.through == day_number(6)


def test_missing_data_exits_with_2(tmp_path: Path) -> None:
    days = Days(tmp_path, AS_IT_COMES)
    shown = "data.path: there is no span to train on"
    assert days.check(at(1)) == NotDue(shown, {}, exit_code=2, is_problem=True)


def test_run_under_way_is_left_alone(eager: Days) -> None:
    eager.deliver(4)
    for path in (eager.layout.lock, eager.layout.scheduled):
        held = ProcessLock(path)
        assert eager.check(at(5)) == NotDue("a run is under way", is_unchecked=True)
        held.close()
    assert isinstance(eager.check(at(5)), Due)


def test_killed_run_goes_on_to_the_same_span(eager: Days) -> None:
    eager.deliver(4)
    eager.check(at(5))
    eager.begin(at(5))
    eager.deliver(5)
    goes_on = eager.check(at(6))
    assert isinstance(goes_on, Due)
    assert goes_on.through == day_number(4)
    assert goes_on.reason == ("resumes the interrupted run (new or changed: 2026-01-04)")
    # Killed once more, before the run began.
    again = eager.check(at(6, 4))
    assert isinstance(again, Due)
    assert (again.through, again.details["because"]) == (
        day_number(4),
        "new or changed: 2026-01-04",
    )
    assert again.reason.startswith("starts the run that was due but did not begin (")
    eager.run(at(6, 4), through=day_number(4))
    after = eager.check(at(6, 5))
    assert isinstance(after, Due)
    assert (after.through, after.reason) == (day_number(5), "new or changed: 2026-01-05")


def test_failed_run_is_tried_again_with_longer_and_longer_waits(nightly: Days) -> None:
    retry = {"attempts": 3, "backoff": "10m"}
    nightly.change({"schedule": NIGHTLY | {"retry": retry}})
    nightly.deliver(4)
    nightly.check(at(5))
    nightly.run(at(5), Status.FAILED)
    waits = nightly.check(at(5, 3, 9))
    assert isinstance(waits, NotDue)
    assert waits.reason == "the last run failed; the run is retried at 2026-01-05 03:10 UTC"
    second = nightly.check(at(5, 3, 11))
    assert isinstance(second, Due)
    assert second.reason.startswith("attempt 2 of 3 (cron fired at 2026-01-05 03:00 UTC")
    nightly.run(at(5, 3, 11), Status.FAILED)
    assert isinstance(nightly.check(at(5, 3, 30)), NotDue)
    assert isinstance(nightly.check(at(5, 3, 32)), Due)
    nightly.run(at(5, 3, 32), Status.FAILED)
    given_up = nightly.check(at(5, 23))
    assert given_up == NotDue(
        "the last run failed 3 times; the next run waits for cron or new data", exit_code=1
    )
    fresh = nightly.check(at(6))
    assert isinstance(fresh, Due)
    assert fresh.details["attempt"] == 1


def test_unusable_data_is_tried_again_when_it_has_changed(nightly: Days) -> None:
    nightly.deliver(4)
    nightly.check(at(5))
    nightly.run(at(5), Status.UNUSABLE)
    assert isinstance(nightly.check(at(5, 9)), NotDue)
    waits = nightly.check(at(5, 10))
    assert isinstance(waits, NotDue)
    assert waits.reason == "the last run could not use data or config: Trainer: it broke"
    at_firing = nightly.check(at(6))
    assert isinstance(at_firing, Due), "a server may have been down"
    nightly.run(at(6), Status.UNUSABLE)
    nightly.deliver(4, rows=OTHER_ROWS, arrives=at(6, 4))
    changed = nightly.check(at(6, 5))
    assert isinstance(changed, Due)
    reason = "data or config have changed since the last run, which could not use them"
    assert changed.reason == reason


def test_drift_makes_a_run_due(tmp_path: Path) -> None:
    drift = {"columns": {"a": {"jensen_shannon": 0.1}}, "on_drift": "retrain"}
    days = Days(tmp_path, {"cron": "0 3 1 1 *", "missing_span": "skip"}, drift=drift)
    days.deliver(1)
    first_ever = days.check(at(2, 4))
    assert isinstance(first_ever, Due)
    assert not first_ever.validate_only, "there is nothing yet to have drifted from"
    days.run(at(2, 4))
    days.deliver(2)
    first = days.check(at(3, 4))
    assert isinstance(first, Due)
    assert first.validate_only
    assert first.reason == "span 2026-01-02 is new, and is checked for drift"
    days.run(at(3, 4), Status.VALIDATED)
    assert days.check(at(3, 5)) == NotDue("cron has not fired")
    days.deliver(3)
    assert days.check(at(4, 4)).validate_only
    days.run(at(4, 4), Status.VALIDATED, drift=["a has drifted: 0.3"])
    second = days.check(at(4, 5))
    assert isinstance(second, Due)
    assert not second.validate_only
    assert second.reason == "span 2026-01-03 has drifted: a has drifted: 0.3"
    days.run(at(4, 5))
    assert isinstance(days.check(at(4, 6)), NotDue)


def test_data_without_spans_is_compared_as_a_whole(tmp_path: Path) -> None:
    data = {"format": "csv", "path": str(tmp_path / "data*.csv"), "label": "label"}
    path = tmp_path / "data.csv"

    def write(rows: str, moment: datetime) -> None:
        path.write_text(rows)
        os.utime(path, (moment.timestamp(), moment.timestamp()))

    write(ROWS, at(1))
    days = Days(tmp_path, {"on_new_data": True}, data=data)
    first = days.check(at(2))
    assert isinstance(first, Due)
    assert first.through is None
    days.run(at(2))
    write(ROWS, at(3))
    assert (
        days.check(at(4)).reason
        == "nothing new; the data was delivered again with the same content"
    )
    write(OTHER_ROWS, at(5))
    assert "still being written (schedule.settle" in days.check(at(5)).reason
    assert isinstance(days.check(at(5, 4)), Due)
    days.run(at(5, 4))
    days.begin(at(5, 5), because="by hand")
    by_hand = days.check(at(5, 6))
    assert isinstance(by_hand, Due)
    assert by_hand.through is None
    days.run(at(5, 6))
    path.unlink()
    gone = days.check(at(6))
    assert isinstance(gone, NotDue)
    assert gone.reason.startswith("No file matches ")


def test_held_firing_runs_after_the_hold(nightly: Days) -> None:
    now = datetime.now().astimezone()
    ends = now + timedelta(days=2)
    set_hold(nightly.layout, nightly.event_log, "complaints", until=ends, stops_runs=True)
    nightly.deliver(4)
    for minutes in (0, 1):
        held = nightly.check(now + timedelta(minutes=minutes))
        assert isinstance(held, NotDue)
        assert "scheduled runs are held" in held.reason
    assert len(nightly.events(EventKind.SKIPPED)) == 1
    assert isinstance(nightly.check(ends), Due)
