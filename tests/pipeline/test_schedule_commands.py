"""`schedule` and `history` from the command line, as far as nothing is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from scheduled_days import Days, at

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Days:
    days = Days(
        tmp_path_factory.mktemp("days"),
        {"cron": "30 4 * * 1", "timezone": "Europe/Paris", "on_new_data": True, "poll": "7m"},
    )
    days.deliver(1)
    days.look(at(2))
    days.run(at(2))
    return days


def scopeline(days: Days, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, str(ROOT / "local_runner.py"), *arguments, "--output", "output"],
        cwd=days.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_list_shows_firings_and_the_last_run(days: Days) -> None:
    done = scopeline(days, "schedule", "--config", "days.yaml", "--list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" 04:30 CE") == 3
    for words in ("At 04:30 on Monday", "looked for every 7m", "CET: test", "not blessed"):
        assert words in done.stdout


def test_once_with_nothing_new_imports_no_tensorflow(days: Days) -> None:
    script = (
        "import sys, local_runner\n"
        "try:\n    local_runner.main()\n"
        "except SystemExit as end:\n"
        "    heavy = {'tensorflow', 'tfx', 'apache_beam', 'ml_metadata'} & set(sys.modules)\n"
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
        (["--now", "2026-01-02"], "--now 2026-01-02: only --once has a clock that can be set"),
        (["--once", "--now", "noon"], "--now noon: this is no time; one is 2026-01-05T03:00:00"),
        (["--once", "--list"], "--once and --list: give one of them"),
        (["--once", "--set", "schedule=null"], "schedule: nothing ever sets it off; give it cron"),
        (["--once", "--set", "schedule.cron=1 2"], "schedule.cron: found '1 2'; it has 2 fields"),
    ],
)
def test_bad_use_is_explained(days: Days, arguments: list[str], words: str) -> None:
    done = scopeline(days, "schedule", "--config", "days.yaml", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_history_is_a_table_or_json(days: Days) -> None:
    table = scopeline(days, "history", "--config", "days.yaml").stdout
    assert [line.split()[2] for line in table.splitlines()[1:]] == [
        "due",
        "started",
        "ingested",
        "finished",
    ]
    events = json.loads(scopeline(days, "history", "--config", "days.yaml", "--json").stdout)
    assert [event["kind"] for event in events] == ["due", "started", "ingested", "finished"]
    assert events[0]["at"] == "2026-01-02T03:00:00+00:00"
    assert events[0]["details"]["because"] == "new or changed: 2026-01-01"
    some = scopeline(
        *(days, "history", "--config", "days.yaml", "--json", "--last", "1"),
        *("--kind", "due", "--kind", "started"),
    )
    assert [event["kind"] for event in json.loads(some.stdout)] == ["started"]


def test_history_of_nothing_says_so(days: Days) -> None:
    done = scopeline(days, "history", "--config", "days.yaml", "--set", "name=other")
    assert done.stdout == "other: nothing has been decided or run yet\n"
    as_json = scopeline(days, "history", "--config", "days.yaml", "--set", "name=other", "--json")
    assert json.loads(as_json.stdout) == []
