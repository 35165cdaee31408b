"""The ledger: what is written is found, also by several processes, and bad files are left alone."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline import ledger as ledger_module
from pipeline.ledger import Kind, Ledger
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def test_nothing_recorded_is_nothing_and_makes_no_file(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.events() == []
    assert ledger.last(Kind.DUE) is None
    assert list(tmp_path.iterdir()) == []


def test_events_come_back_as_they_were(ledger: Ledger) -> None:
    moment = datetime(2026, 1, 5, 3, tzinfo=UTC)
    details = {"window": [1, 2], "metrics": {"auc": 0.9}, "model": None}
    ledger.record(Kind.PUSHED, "to ä/1", run="run 1", at=moment, **details)
    (event,) = ledger.events()
    assert (event.kind, event.run, event.message) == (Kind.PUSHED, "run 1", "to ä/1")
    assert event.at == moment
    assert event.details == details


def test_events_are_chosen_by_kind_run_and_number(ledger: Ledger) -> None:
    for number in range(1, 4):
        ledger.record(Kind.STARTED, f"start {number}", run=f"run {number}")
        ledger.record(Kind.FINISHED, f"end {number}", run=f"run {number}")
    assert [event.id for event in ledger.events()] == [1, 2, 3, 4, 5, 6]
    assert [event.message for event in ledger.events(Kind.STARTED, newest=2)] == [
        "start 2",
        "start 3",
    ]
    assert [event.message for event in ledger.events(run="run 2")] == ["start 2", "end 2"]
    both = ledger.events(Kind.STARTED, Kind.FAILED)
    assert [event.message for event in both] == ["start 1", "start 2", "start 3"]
    last = ledger.last(Kind.STARTED)
    assert last is not None
    assert last.message == "start 3"


def test_order_is_that_of_recording_whatever_the_clock(ledger: Ledger) -> None:
    ledger.record(Kind.DUE, "first", at=datetime(2030, 1, 1, tzinfo=UTC))
    ledger.record(Kind.DUE, "second", at=datetime(2020, 1, 1, tzinfo=UTC))
    assert [event.message for event in ledger.events()] == ["first", "second"]


def test_several_processes_write_at_once(ledger: Ledger, tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from pipeline.ledger import Kind, Ledger\n"
        "for i in range(20): Ledger(Path(sys.argv[1])).record(Kind.DUE, sys.argv[2], number=i)\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "ledger.db"), name])
        for name in "abc"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    events = ledger.events()
    for name in "abc":
        numbers = [event.details["number"] for event in events if event.message == name]
        assert numbers == list(range(20))


@pytest.mark.parametrize("kind", ["corrupt", "newer", "locked"])
def test_bad_file_is_said_and_left_alone(
    ledger: Ledger, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "BUSY_SECONDS", 0.2)
    path = tmp_path / "ledger.db"
    ledger.record(Kind.DUE, "one")
    other = sqlite3.connect(path)
    words = "this is no ledger, or it is corrupt (file is not a database); move it aside"
    if kind == "newer":
        other.execute("PRAGMA user_version = 9")
        words = "written by a newer Scopeline (format 9, this one knows 1); use that one"
    elif kind == "locked":
        other.execute("BEGIN EXCLUSIVE")
        words = "the ledger cannot be used (database is locked)"
    else:
        path.write_text("this is a letter, not a database " * 50)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=re.escape(words)):
        ledger.record(Kind.DUE, "two")
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        ledger.events()
    assert path.read_bytes() == before
    other.close()
