"""Schedulers and their runs as processes: stopped, killed, twice, with bad configs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pipeline.lock import is_held
from pipeline.records.event_log import EventKind
from pipeline.schedule import run_process as run_process_module
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once, serve
from tests.support.scheduled_days import Days, at
from tests.support.scheduler_process import RUNNER, command, until
from trainer_module.errors import ConfigError

pytestmark = pytest.mark.slow

EAGER = {"on_new_data": True, "poll": "1s", "settle": "0s", "missing_span": "skip"}


@pytest.fixture
def days(tmp_path: Path) -> Iterator[Days]:
    """A day of data, and a schedule that checks for new data every second."""
    days = Days(tmp_path, EAGER)
    days.deliver(1)
    behave(days, "not_blessed")
    yield days
    while SCHEDULERS:
        SCHEDULERS.pop().process.kill()
    for line in calls(days):
        pid = int(line.split()[2])
        with suppress(psutil.NoSuchProcess):
            if "fake_runner" in " ".join(psutil.Process(pid).cmdline()):
                os.kill(pid, signal.SIGKILL)


def behave(days: Days, behaviour: str) -> None:
    (days.folder / "output" / "behaviour").write_text(behaviour)


def calls(days: Days) -> list[str]:
    path = days.folder / "output" / "calls"
    return path.read_text().splitlines() if path.exists() else []


class Scheduler:
    """A scheduler in a process of its own."""

    def __init__(self, days: Days, *others: Path) -> None:
        output = days.folder / "output"
        self._log = days.folder / f"scheduler{len(SCHEDULERS)}.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command("serve", days.file, *others, output=output),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=days.folder,
            )
        SCHEDULERS.append(self)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> str:
        """Stops it by SIGTERM; returns its output."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0, self.log
        return self.log


SCHEDULERS: list[Scheduler] = []
"""Started by the test that runs; none outlives it."""


def lock_file(days: Days) -> Path:
    return days.layout.scheduler_lock


def once(days: Days, day: int = 2, hour: int = 3) -> int:
    pipelines = load_pipelines([days.file], [], days.folder / "output")
    now = at(day, hour)
    return check_once(pipelines, lock_file(days), RUNNER, lambda: now)


def count(days: Days, kind: EventKind) -> int:
    return len(days.events(kind))


def test_scheduler_runs_what_comes_and_stops_cleanly(days: Days) -> None:
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.FINISHED) == 1)
    days.deliver(2)
    until(lambda: count(days, EventKind.FINISHED) == 2)
    time.sleep(2.2)  # At least one more check finds nothing; only the first one is worth a line.
    log = scheduler.stop()
    assert [line.split()[:2] for line in calls(days)] == [
        ["days", "2026-01-01"],
        ["days", "2026-01-02"],
    ]
    assert re.search(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  days: starts: new or changed: 2026-01-02", log, re.M
    )
    assert "days: finished: not blessed" in log
    assert log.partition("starts: new or changed: 2026-01-02")[2].count("nothing new") == 1
    assert "heavy: set()" in log


def test_stopped_scheduler_stops_its_run_and_the_next_goes_on(days: Days) -> None:
    behave(days, "hang")
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.STARTED) == 1)
    log = scheduler.stop()
    assert "stopped; the next scheduler resumes the run" in log
    assert [event.details["exit_code"] for event in days.events(EventKind.FAILED)] == [130]
    assert not is_held(days.layout.lock)
    behave(days, "not_blessed")
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.FINISHED) == 1)
    assert "resumes the stopped run (new or changed: 2026-01-01)" in scheduler.stop()


def test_killed_scheduler_leaves_its_run_and_the_next_starts_no_second(days: Days) -> None:
    behave(days, "hang")
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.STARTED) == 1)
    scheduler.process.kill()
    scheduler.process.wait()
    assert once(days) == 0
    assert len(calls(days)) == 1
    os.kill(int(calls(days)[0].split()[2]), signal.SIGKILL)
    until(lambda: not is_held(days.layout.scheduled))
    behave(days, "not_blessed")
    assert once(days) == 0
    assert (count(days, EventKind.FINISHED), len(calls(days))) == (1, 2)
    assert once(days) == 0
    assert len(calls(days)) == 2


def test_several_pipelines_run_side_by_side(days: Days, tmp_path: Path) -> None:
    behave(days, "hang")
    other = tmp_path / "other.yaml"
    other.write_text(days.file.read_text().replace("name: days", "name: other"))
    scheduler = Scheduler(days, other)
    until(lambda: len(calls(days)) == 2)
    scheduler.stop()
    assert {line.split()[0] for line in calls(days)} == {"days", "other"}


def test_second_scheduler_is_refused(days: Days) -> None:
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.FINISHED) == 1)
    refused = f"another scheduler, process {scheduler.process.pid}, uses this folder"
    with pytest.raises(ConfigError, match=refused):
        serve(load_pipelines([days.file], [], days.layout.output), lock_file(days), RUNNER)
    with pytest.raises(ConfigError, match=refused):
        once(days)
    scheduler.stop()


def test_invalid_config_is_recorded_once_and_can_be_corrected(days: Days) -> None:
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.FINISHED) == 1)
    days.file.write_text("name: days\n")
    until(lambda: count(days, EventKind.SKIPPED) == 1)
    time.sleep(2.2)  # At least one more check finds the same.
    assert count(days, EventKind.SKIPPED) == 1
    days.change({"schedule": EAGER | {"poll": "2s"}})
    days.deliver(2)
    until(lambda: count(days, EventKind.FINISHED) == 2)
    until(lambda: "the schedule has changed; checks every 2s" in scheduler.log)
    assert scheduler.stop().count("data: this key is missing") == 1


@pytest.mark.parametrize(
    ("behaviour", "code", "message"),
    [
        ("failed", 1, "Trainer: it broke"),
        ("refused", 2, "run of days: refused"),
    ],
)
def test_failure_counts_and_is_recorded(
    days: Days, behaviour: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(days, behaviour)
    assert once(days) == code
    (failed,) = days.events(EventKind.FAILED)
    assert (failed.details["exit_code"], failed.message) == (code, message)
    assert f"days: failed: {message}" in capsys.readouterr().out
    begun = days.events(EventKind.STARTED)
    assert [event.run for event in begun] == ([failed.run] if failed.run else [])


@pytest.mark.parametrize("behaviour", ["deaf"])
def test_run_that_takes_too_long_is_stopped(
    days: Days, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clock() -> float:
        """An hour passes with each run that has begun."""
        return time.monotonic() + 3600 * count(days, EventKind.STARTED)

    monkeypatch.setattr(run_process_module, "SCHEDULED_RUN_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(
        run_process_module,
        "time",
        SimpleNamespace(monotonic=clock, sleep=time.sleep, time=time.time),
    )
    days.change({"schedule": EAGER | {"timeout": "1h"}})
    behave(days, behaviour)
    assert once(days) == 1
    failed = days.events(EventKind.FAILED)[-1]
    assert failed.message == "ran longer than 1h, and was stopped"
    assert failed.run == days.events(EventKind.STARTED)[-1].run
    assert not is_held(days.layout.scheduled)
    assert once(days, 2, 5) == 1  # After the wait it is tried again.
    assert count(days, EventKind.STARTED) == 2
