"""`schedule` and `history` from the command line, as far as nothing is run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import local_runner
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
    code, shown, output = scopeline("schedule", "--list")
    assert code == 0, output
    assert shown.count(" 04:30 CE") == 3
    for words in ("At 04:30 on Monday", "checked every 7m", "CET: test", "not blessed"):
        assert words in shown


@pytest.mark.slow
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
        (
            ["--once", "--set", "schedule=null"],
            "schedule: the schedule has no trigger; add schedule.cron",
        ),
    ],
)
def test_invalid_options_are_refused(scopeline: Command, arguments: list[str], words: str) -> None:
    code, _, shown = scopeline("schedule", *arguments)
    assert code == 2
    assert words in shown
    assert "Traceback" not in shown


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
