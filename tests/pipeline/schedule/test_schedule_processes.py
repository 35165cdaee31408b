"""Schedulers and their runs as processes: stopped, killed, twice, with bad configs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pipeline.clock import system_clock
from pipeline.exit_codes import worse
from pipeline.lock import ProcessLock, is_held
from pipeline.records.event_log import EventKind
from pipeline.schedule import run_process as run_process_module
from pipeline.schedule import scheduler as scheduler_module
from pipeline.schedule.run_process import TimeLimit, _began, end_overdue, run_process
from pipeline.schedule.scheduled_pipeline import ScheduledPipeline, load_pipelines
from pipeline.schedule.scheduler import check_once, serve
from tests.support.scheduled_days import Days, at
from tests.support.scheduler_process import RUNNER, command, until
from trainer_module.errors import ConfigError, InternalError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
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
        """Stops it by SIGTERM; gives everything that it said."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0, self.log
        return self.log


SCHEDULERS: list[Scheduler] = []
"""Started by the test that runs; none outlives it."""


def serve_until(days: Days, condition: Callable[[], object]) -> None:
    """A scheduler in this process, stopped by SIGTERM as soon as a condition holds."""
    has_ended = threading.Event()

    def stop() -> None:
        try:
            until(condition)
        finally:
            if not has_ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        serve(load_pipelines([days.file], [], days.layout.output), lock_file(days), RUNNER)
    finally:
        has_ended.set()
        thread.join()


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


@pytest.mark.parametrize("behaviour", ["hang", "deaf"])
def test_run_that_outlives_its_scheduler_and_its_time_is_ended_by_the_next_look(
    days: Days, behaviour: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(days, behaviour)
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.STARTED) == 1)
    scheduler.process.kill()
    scheduler.process.wait()
    run = psutil.Process(int(calls(days)[0].split()[2]))

    def look(hours: int = 0) -> int:
        """By the clock that the scheduler had."""
        pipelines, now = load_pipelines([days.file], [], days.layout.output), system_clock()
        then = now + timedelta(hours=hours)
        return check_once(pipelines, lock_file(days), RUNNER, lambda: then)

    assert look() == 0
    assert is_alive(run)

    monkeypatch.setattr(run_process_module, "SCHEDULED_RUN_GRACE_SECONDS", 0.5)
    tomorrow = SimpleNamespace(
        monotonic=lambda: time.monotonic() + 86400, sleep=time.sleep, time=time.time
    )
    with monkeypatch.context() as patch:
        patch.setattr(run_process_module, "time", tomorrow)
        assert look() == 1
    assert not is_alive(run)
    assert not is_held(days.layout.scheduled)
    failed = days.events(EventKind.FAILED)[-1]
    assert (failed.message, failed.details["how"]) == (
        "ran longer than 1d, and was stopped",
        "timed out",
    )
    assert failed.run == days.events(EventKind.STARTED)[0].run
    assert "days: failed: ran longer than 1d, and was stopped" in capsys.readouterr().out
    assert 'scopeline_look_exit_code{pipeline="days"} 1.000' in days.layout.metrics.read_text()
    assert len(calls(days)) == 1, "it is tried again after the wait"
    behave(days, "not_blessed")
    assert look(hours=2) == 0
    assert len(calls(days)) == 2


def test_overdue_run_ends_also_where_the_config_is_bad_by_now(days: Days) -> None:
    days.check(at(2))
    lock = overdue(days)
    held = subprocess.Popen(
        ["sleep", "60"], start_new_session=True, pass_fds=[lock.descriptor], stdout=subprocess.PIPE
    )
    lock.write(overdue_limit(held.pid).to_json())
    lock.close()
    days.file.write_text("name: days\n")
    pipelines = [ScheduledPipeline("days", days.file, (), days.layout.output)]
    assert check_once(pipelines, lock_file(days), RUNNER, lambda: at(2)) == 2
    assert held.wait(timeout=10) == -signal.SIGTERM
    (failed,) = days.events(EventKind.FAILED)
    assert failed.message == "ran longer than 1h, and was stopped"


def is_alive(process: psutil.Process) -> bool:
    """Also false of one that has ended, and that nobody waits for where it was orphaned."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def overdue_limit(process: int = 0) -> TimeLimit:
    """That of a run whose time has been up for an hour."""
    limit, began = TimeLimit.of("run", timedelta(hours=1)), _began(process) if process else 0
    past = replace(limit, monotonic=limit.monotonic - 7200, clock=limit.clock - 7200)
    return replace(past, process=process, began=began)


def overdue(days: Days) -> ProcessLock:
    """The lock of such a run, whose process nobody knows."""
    return ProcessLock(days.layout.scheduled, overdue_limit().to_json())


def test_a_process_that_has_got_the_id_of_an_overdue_run_goes_on(days: Days) -> None:
    held = overdue(days)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        limit = overdue_limit(other.pid)
        held.write(replace(limit, began=limit.began - 1).to_json())
        with pytest.raises(InternalError, match="no process of this machine"):
            end_overdue(days.layout.scheduled)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        held.close()


def test_overdue_run_that_cannot_be_ended_is_said_at_every_look(
    days: Days, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as one on another machine, of a folder that both have mounted: here none is seen."""
    held = overdue(days)
    assert [once(days), once(days)] == [1, 1]
    said = "has outlived its time limit of 1h and cannot be ended from here: no process of this"
    assert said in capsys.readouterr().out
    (stuck,) = days.events(EventKind.SKIPPED)
    assert said in stuck.message
    assert calls(days) == []
    held.close()
    assert once(days) == 0
    assert len(calls(days)) == 1


OUTLIVED = """
import sys, threading
from datetime import timedelta
from pathlib import Path
from pipeline.schedule.run_process import run_process
folder = Path(sys.argv[1])
deaf = "trap '' TERM; sleep 60 & echo $! begun; wait"
limit, stop = timedelta(seconds=0.1), threading.Event()
print = lambda line: (folder / "said").write_text(line)
import pipeline.schedule.run_process as module
module.SCHEDULED_RUN_GRACE_SECONDS = 60
run_process(["sh", "-c"], [deaf], folder / "lock", folder / "log", limit, stop, print)
"""


def test_nothing_is_left_of_a_command_whose_scheduler_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a real clock, with a process of the command's that holds the lock as well.

    A process that only reads the file goes on.
    """
    monkeypatch.setattr(run_process_module, "SCHEDULED_RUN_GRACE_SECONDS", 0.2)
    scheduler = subprocess.Popen([sys.executable, "-c", OUTLIVED, str(tmp_path)], cwd=ROOT)
    until(lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text())
    scheduler.kill()
    scheduler.wait()
    child = psutil.Process(int((tmp_path / "said").read_text().split()[0]))
    with (tmp_path / "lock").open() as lock:
        reader = subprocess.Popen(["sleep", "60"], stdin=lock, start_new_session=True)
    try:
        until(lambda: end_overdue(tmp_path / "lock"), seconds=10)
        until(lambda: not is_alive(child), seconds=10)
        assert end_overdue(tmp_path / "lock") is None
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


def test_a_look_at_a_lock_is_in_nobodys_way(tmp_path: Path) -> None:
    lock, has_ended = tmp_path / "lock", threading.Event()
    ProcessLock(lock).close()

    def look() -> None:
        while not has_ended.is_set():
            is_held(lock)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(2000):
            ProcessLock(lock).close()
    finally:
        has_ended.set()
        thread.join()
    held = ProcessLock(lock)
    assert is_held(lock)
    held.close()
    assert not is_held(lock)


def test_several_pipelines_run_side_by_side(days: Days, tmp_path: Path) -> None:
    behave(days, "hang")
    other = tmp_path / "other.yaml"
    other.write_text(days.file.read_text().replace("name: days", "name: other"))
    scheduler = Scheduler(days, other)
    until(lambda: len(calls(days)) == 2)
    scheduler.stop()
    assert {line.split()[0] for line in calls(days)} == {"days", "other"}


def test_pipelines_of_one_name_are_refused(days: Days, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the name 'days' is also used in "):
        load_pipelines([days.file, days.file], [], tmp_path)


def test_second_scheduler_is_refused(days: Days) -> None:
    scheduler = Scheduler(days)
    until(lambda: count(days, EventKind.FINISHED) == 1)
    refused = f"another scheduler, process {scheduler.process.pid}, uses this folder"
    with pytest.raises(ConfigError, match=refused):
        serve(load_pipelines([days.file], [], days.layout.output), lock_file(days), RUNNER)
    with pytest.raises(ConfigError, match=refused):
        once(days)
    scheduler.stop()


def test_folder_that_cannot_be_written_is_said(days: Days, tmp_path: Path) -> None:
    output = tmp_path / "file"
    output.write_text("")
    pipelines = load_pipelines([days.file], [], output)
    with pytest.raises(ConfigError, match=r"file: cannot be written \(.*\); give a folder that"):
        check_once(pipelines, output / "scheduler.lock", RUNNER, lambda: at(2))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_scheduler_that_can_look_no_more_says_so(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no time zones")

    monkeypatch.setattr(scheduler_module, "make_due_check", fail)
    pipelines = load_pipelines([days.file], [], days.layout.output)
    with pytest.raises(InternalError, match="restart the scheduler"):
        serve(pipelines, lock_file(days), RUNNER)
    assert not is_held(lock_file(days))


def test_config_that_becomes_bad_is_said_and_can_be_mended(days: Days) -> None:
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
        ("killed", 1, "was killed by signal 9"),
        ("silent", 1, "run of days: silent"),
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


def test_run_that_cannot_begin_yet_waits_and_has_not_failed(
    days: Days, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(days, "later")
    assert [once(days) for _ in range(3)] == [75, 75, 75]
    assert len(calls(days)) == 3
    assert "days: run of days: later" in capsys.readouterr().out
    assert days.events(EventKind.FAILED, EventKind.STARTED) == []
    (waits,) = days.events(EventKind.SKIPPED)
    assert waits.message == "run of days: later"
    # The decision, and that it is gone on with; not one more for every look.
    assert len(days.events(EventKind.DUE)) == 2
    behave(days, "not_blessed")
    assert once(days) == 0
    assert [event.details["attempt"] for event in days.events(EventKind.DUE)] == [1, 1]
    assert len(days.events(EventKind.FINISHED)) == 1


def test_what_runs_print_is_appended_until_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, earlier = tmp_path / "scheduled.log", tmp_path / "scheduled.log.1"
    lines: list[str] = []

    def run(text: str) -> str:
        stop, limit = threading.Event(), timedelta(hours=1)
        lock = tmp_path / "lock"
        return run_process(["echo"], [text], lock, log, limit, stop, lines.append).last_line

    assert [run("one"), run("two")] == ["one", "two"]
    assert (log.read_text(), earlier.exists()) == ("one\ntwo\n", False)
    monkeypatch.setattr(run_process_module, "LOG_BYTES", 8)
    run("three")
    run("four")
    # Eight bytes are long: "three" begins a log, in which there is room for "four".
    assert (log.read_text(), earlier.read_text()) == ("three\nfour\n", "one\ntwo\n")
    assert lines == ["one", "two", "three", "four"]


def test_what_passes_by_itself_hides_no_failure() -> None:
    assert [worse(75, 0), worse(1, 75), worse(75, 2), worse(75, 130)] == [75, 1, 2, 130]


def test_killed_run_is_tried_again_at_once(days: Days) -> None:
    behave(days, "killed")
    assert [once(days), once(days), once(days)] == [1, 1, 1]
    assert [event.details["attempt"] for event in days.events(EventKind.DUE)] == [1, 2, 3]
    assert once(days) == 1
    assert len(calls(days)) == 3


@pytest.mark.parametrize("behaviour", ["hang", "deaf"])
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


def once_stopped(days: Days, *others: Path) -> int:
    """A single check that is told to stop as soon as a run has begun."""

    def stop() -> None:
        until(lambda: count(days, EventKind.STARTED) == 1)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    pipelines = load_pipelines([days.file, *others], [], days.folder / "output")
    try:
        return check_once(pipelines, lock_file(days), RUNNER, lambda: at(2))
    finally:
        thread.join()


def test_exit_code_of_a_stop_says_what_happened(
    days: Days, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(days, "done")
    assert once_stopped(days) == 0, "all was done when the signal came"
    assert "days: finished: not blessed" in capsys.readouterr().out


def test_a_stop_leaves_other_pipelines_for_the_next_check(days: Days, tmp_path: Path) -> None:
    behave(days, "done")
    other = tmp_path / "other.yaml"
    other.write_text(days.file.read_text().replace("name: days", "name: other"))
    assert once_stopped(days, other) == 130
    assert len(calls(days)) == 1


def test_run_that_does_not_end_is_told_again(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_process_module, "SCHEDULED_RUN_GRACE_SECONDS", 2.0)
    behave(days, "hard of hearing")
    assert once_stopped(days) == 130
    (failed,) = days.events(EventKind.FAILED)
    assert failed.details["exit_code"] == 130, "it could say so itself"


def test_interrupted_and_new_are_both_done_by_one_check(days: Days) -> None:
    days.check(at(2))
    days.begin(at(2))
    days.deliver(2)
    assert once(days, 3) == 0
    assert [line.split()[1] for line in calls(days)] == ["2026-01-01", "2026-01-02"]
