"""Clocks that were set: firings that come again, waits that do not grow, files of the future."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from scheduled_days import OTHER_ROWS, Days, at
from scheduler_process import FAKETIME, RUNNER, command, fake_clock

from pipeline.clock import system_clock
from pipeline.records.event_log import EventKind
from pipeline.records.summary import Status
from pipeline.schedule.decisions.decision import Due, NotDue
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once

needs_faketime = pytest.mark.skipif(FAKETIME is None, reason="faketime is not installed")
NIGHTLY = {"cron": "0 3 * * *", "window": {"last": 3}, "missing_span": "skip"}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def runs(days: Days) -> int:
    return len(days.events(EventKind.FINISHED))


@needs_faketime
def test_clock_that_jumped_ahead_silences_neither_cron_nor_new_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = Days(tmp_path, {"cron": "* * * * *", "settle": "0s", "missing_span": "skip"})
    output = days.layout.output
    (output / "behaviour").write_text("not_blessed")
    days.deliver(1)
    offset = tmp_path / "offset"
    offset.write_text("+30d")
    ahead = command("once", days.file, output=output)
    subprocess.run(ahead, env=fake_clock(offset), check=True, capture_output=True)
    assert runs(days) == 1
    days.deliver(2)
    look = (load_pipelines([days.file], [], output), days.layout.scheduler_lock, RUNNER)
    assert check_once(*look, system_clock) == 0
    said = capsys.readouterr().out
    assert runs(days) == 2, said
    assert ": what lies in the future does not count" in said
    assert len(days.events(EventKind.CLOCK_SET_BACK)) == 1
    assert check_once(*look, system_clock) == 0
    assert "in the future" not in capsys.readouterr().out
    assert len(days.events(EventKind.CLOCK_SET_BACK)) == 1


@needs_faketime
def test_daemon_goes_on_looking_after_its_clock_went_ahead_and_back(tmp_path: Path) -> None:
    days = Days(
        tmp_path, {"on_new_data": True, "poll": "1s", "settle": "0s", "missing_span": "skip"}
    )
    output, log, offset = days.layout.output, tmp_path / "log", tmp_path / "offset"
    (output / "behaviour").write_text("not_blessed")
    offset.write_text("+0")
    days.deliver(1)
    with log.open("w") as opened:
        scheduler = subprocess.Popen(
            command("serve", days.file, output=output),
            stdout=opened,
            stderr=subprocess.STDOUT,
            env=fake_clock(offset),
        )
    try:
        until(lambda: runs(days) == 1)
        for number, shift, words in ((2, "+2h", "set forward by 2:00"), (3, "+0", "set back by ")):
            offset.write_text(shift)
            until(lambda words=words: words in log.read_text())
            days.deliver(number)
            until(lambda number=number: runs(days) == number)
    finally:
        scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(timeout=60) == 0, log.read_text()


def test_firings_of_a_clock_set_back_come_again(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY)
    days.deliver(1, 2, 3)
    assert isinstance(days.check(at(4)), Due)
    days.run(at(4))
    assert isinstance(days.check(at(34)), NotDue)  # Thirty days ahead, and back.
    assert days.check(at(4, 5)) == NotDue("the clock has not fired")
    days.deliver(4)
    due = days.check(at(5))
    assert isinstance(due, Due)
    assert due.reason.startswith("the clock fired at 2026-01-05 03:00 UTC; ")
    (told,) = days.events(EventKind.CLOCK_SET_BACK)
    assert told.message.startswith(
        "the clock shows 2026-01-04 05:00 UTC, but the last look was at 2026-02-03 03:00 UTC"
    )


def test_clock_set_back_by_seconds_fires_nothing_twice(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY)
    days.deliver(1, 2, 3)
    days.check(at(4))
    days.run(at(4))
    days.deliver(3, rows=OTHER_ROWS, arrives=at(4, 2))
    assert days.check(at(4) - timedelta(seconds=30)) == NotDue("the clock has not fired")
    assert days.events(EventKind.CLOCK_SET_BACK) == []


def test_retry_does_not_wait_for_the_time_of_another_clock(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY | {"retry": {"attempts": 2, "backoff": "10m"}})
    days.deliver(1, 2, 3)
    assert isinstance(days.check(at(34)), Due)
    days.run(at(34), Status.FAILED)
    waits = days.check(at(4, 12))
    assert waits.reason == "the last run failed; it is tried again at 2026-01-04 12:10 UTC"
    assert isinstance(days.check(at(4, 12, 11)), Due)


@pytest.mark.parametrize("schedule", [NIGHTLY, {"on_new_data": True, "missing_span": "skip"}])
def test_files_of_the_future_are_told_as_such(tmp_path: Path, schedule: dict[str, object]) -> None:
    days = Days(tmp_path, schedule)
    days.deliver(1, 2, 3)
    days.check(at(4))
    days.run(at(4))
    days.deliver(4, rows=OTHER_ROWS, arrives=at(34))
    why = (
        "span 2026-01-04 has files dated 2026-02-03 03:00 UTC, in the future of this machine's "
        "clock: set the clock right, or `touch` the files"
    )
    for hour in (3, 4):
        decision = days.check(at(5, hour))
        assert isinstance(decision, NotDue)
        assert f"{why}, and waits" in decision.reason
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
