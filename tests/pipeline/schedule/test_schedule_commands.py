"""`schedule` and `history` from the command line, as far as nothing is run."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import local_runner
from pipeline.lock import run_lock
from pipeline.records.event_log import EventKind
from tests.support.scheduled_days import Days, at

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Days:
    days = Days(
        tmp_path_factory.mktemp("days"),
        {"cron": "30 4 * * 1", "timezone": "Europe/Paris", "on_new_data": True, "poll": "7m"},
    )
    days.deliver(1)
    days.check(at(2))
    days.run(at(2))
    return days


Command = Callable[..., tuple[int, str, str]]
"""Runs a command on days.yaml; gives its exit code, and what it wrote to stdout and stderr."""


@pytest.fixture
def scopeline(
    days: Days, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command line in this process: most commands are over sooner than one starts."""

    def run(command: str, *arguments: str) -> tuple[int, str, str]:
        options = ["--config", "days.yaml", "--output", "output", *arguments]
        monkeypatch.setattr(sys, "argv", ["local_runner.py", command, *options])
        with pytest.raises(SystemExit) as end:
            local_runner.main()
        code = end.value.code
        return (code if isinstance(code, int) else 0, *capsys.readouterr())

    monkeypatch.chdir(days.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return run


def test_list_shows_firings_and_the_last_run(scopeline: Command) -> None:
    code, shown, said = scopeline("schedule", "--list")
    assert code == 0, said
    assert shown.count(" 04:30 CE") == 3
    for words in ("At 04:30 on Monday", "checked every 7m", "CET: test", "not blessed"):
        assert words in shown


def test_list_and_spans_say_of_what_is_stuck_what_is_looked_for(
    scopeline: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(tmp_path, {"on_new_data": True})
    days.deliver(1)
    days.check(at(2))
    days.run(at(2))
    monkeypatch.chdir(days.folder)
    assert "stuck" not in scopeline("schedule", "--list")[1]
    shutil.rmtree(tmp_path / "days" / "2026-01-01")
    days.check(at(3))
    listed = scopeline("schedule", "--list")[1]
    assert "stuck: data.path: there is no span to train on" in listed
    code, shown, _ = scopeline("spans")
    assert (code, shown.partition("no file matches ")[2].startswith(str(tmp_path))) == (0, True)


def test_list_says_of_a_run_without_an_end_what_became_of_it(
    scopeline: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(tmp_path, {"on_new_data": True})
    days.deliver(1)
    days.check(at(2))
    days.begin(at(2))
    monkeypatch.chdir(days.folder)
    killed = "killed: the run has lost its lock; the next check resumes the run"
    assert killed in scopeline("schedule", "--list")[1]
    with run_lock(days.layout):
        assert f"running: process {os.getpid()}" in scopeline("schedule", "--list")[1]
        child = subprocess.Popen(["true"])
        child.wait()
        gone = {"window": [1], "newest": "1", "warm_start": False, "process": child.pid}
        days.event_log.record(EventKind.STARTED, "test", run="run 2", **gone)
        words = f"killed: process {child.pid} is gone; another run has begun"
        assert words in scopeline("schedule", "--list")[1]


def test_probe_without_a_scheduler_fails(scopeline: Command, days: Days) -> None:
    code, shown, _ = scopeline("schedule", "--check")
    assert (code, shown) == (
        1,
        f"{days.layout.output}: no scheduler is running in this output folder\n",
    )


def test_once_with_nothing_new_imports_no_tensorflow(days: Days) -> None:
    script = (
        "import sys, local_runner\n"
        "try:\n    local_runner.main()\n"
        "except SystemExit as end:\n"
        "    names = {'tensorflow', 'tfx', 'apache_beam', 'ml_metadata', 'sqlalchemy'}\n"
        "    heavy = names & set(sys.modules)\n"
        "    print(end.code, heavy)\n"
    )
    options = ["schedule", "--once", "--config", "days.yaml", "--now", "2026-01-02T05:00+00:00"]
    done = subprocess.run(
        [sys.executable, "-c", script, *options],
        cwd=days.folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TZ": "UTC"},
    )
    assert done.stdout.splitlines() == [
        "2026-01-02 05:00:00  days: nothing to do: nothing new",
        "0 set()",
    ], done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--now", "2026-01-02"], "--now 2026-01-02: add --once, which --now needs"),
        (["--once", "--now", "noon"], "--now noon: not a time; give one like 2026-01-05T03:00:00"),
        (["--once", "--list"], "--once, --list and --check: give one of them"),
        (
            ["--once", "--set", "schedule=null"],
            "schedule: the schedule has no trigger; add schedule.cron",
        ),
        (
            ["--once", "--set", "schedule.cron=1 2"],
            "schedule.cron: found '1 2'; the expression has 2 fields",
        ),
    ],
)
def test_bad_use_is_explained(scopeline: Command, arguments: list[str], words: str) -> None:
    code, _, said = scopeline("schedule", *arguments)
    assert code == 2
    assert words in said
    assert "Traceback" not in said


def test_history_is_a_table_or_json(scopeline: Command) -> None:
    _, table, _ = scopeline("history")
    assert [line.split()[2] for line in table.splitlines()[1:]] == [
        "due",
        "started",
        "ingested",
        "finished",
    ]
    events = json.loads(scopeline("history", "--json")[1])
    assert [event["kind"] for event in events] == ["due", "started", "ingested", "finished"]
    assert events[0]["at"] == "2026-01-02T03:00:00+00:00"
    assert events[0]["details"]["because"] == "new or changed: 2026-01-01"
    some = scopeline("history", "--json", "--last", "1", "--kind", "due", "--kind", "started")
    assert [event["kind"] for event in json.loads(some[1])] == ["started"]


def test_history_is_paged_on_a_terminal_from_its_end(days: Days) -> None:
    command = [sys.executable, str(ROOT / "local_runner.py"), "history", "--config", str(days.file)]
    ours, theirs = pty.openpty()
    environment = os.environ | {
        "PAGER": "sh -c 'echo $LESS; cat'",
        "TERM": "xterm",
        "COLUMNS": "60",
    }
    environment.pop("LESS", None)
    process = subprocess.Popen(
        [*command, "--output", str(days.folder / "output")],
        **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        env=environment,
    )
    os.close(theirs)
    shown = ""
    with suppress(OSError):  # As a terminal ends.
        while read := os.read(ours, 9999):
            shown += read.decode()
    os.close(ours)
    assert process.wait(60) == 0, shown
    options, header, *lines = shown.splitlines()
    assert options == "FRX +G"
    assert header.split()[:3] == ["time", "event", "run"]
    assert max(map(len, lines)) <= 60
    assert any(line.startswith(" " * 30) for line in lines), "what does not fit stands below"


def test_history_of_nothing_says_so(scopeline: Command) -> None:
    _, shown, _ = scopeline("history", "--set", "name=other")
    assert shown == "other: no run and no decision has been recorded yet\n"
    assert json.loads(scopeline("history", "--set", "name=other", "--json")[1]) == []
