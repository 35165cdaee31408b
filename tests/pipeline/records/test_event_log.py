"""The ledger: what is written is found, also by several processes, and bad files are left alone."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.records import event_log as event_log_module
from pipeline.records.event_log import EventKind, EventLog
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[3]


def test_nothing_recorded_is_nothing_and_makes_no_file(event_log: EventLog, tmp_path: Path) -> None:
    assert event_log.events() == []
    assert event_log.last(EventKind.DUE) is None
    assert list(tmp_path.iterdir()) == []


def test_events_come_back_as_they_were(event_log: EventLog) -> None:
    moment = datetime(2026, 1, 5, 3, tzinfo=UTC)
    details = {"window": [1, 2], "metrics": {"auc": 0.9}, "model": None}
    event_log.record(EventKind.PUSHED, "to ä/1", run="run 1", at=moment, **details)
    (event,) = event_log.events()
    assert (event.kind, event.run, event.message) == (EventKind.PUSHED, "run 1", "to ä/1")
    assert event.at == moment
    assert event.details == details


def test_events_are_chosen_by_kind_run_and_number(event_log: EventLog) -> None:
    for number in range(1, 4):
        event_log.record(EventKind.STARTED, f"start {number}", run=f"run {number}")
        event_log.record(EventKind.FINISHED, f"end {number}", run=f"run {number}")
    assert [event.id for event in event_log.events()] == [1, 2, 3, 4, 5, 6]
    assert [event.message for event in event_log.events(EventKind.STARTED, newest=2)] == [
        "start 2",
        "start 3",
    ]
    assert [event.message for event in event_log.events(run="run 2")] == ["start 2", "end 2"]
    both = event_log.events(EventKind.STARTED, EventKind.FAILED)
    assert [event.message for event in both] == ["start 1", "start 2", "start 3"]
    last = event_log.last(EventKind.STARTED)
    assert last is not None
    assert last.message == "start 3"


def test_several_processes_write_at_once(event_log: EventLog, tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from pipeline.records.event_log import EventKind, EventLog\n"
        "for i in range(20):\n"
        "    EventLog(Path(sys.argv[1])).record(EventKind.DUE, sys.argv[2], number=i)\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "ledger.db"), name])
        for name in "abc"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    events = event_log.events()
    for name in "abc":
        numbers = [event.details["number"] for event in events if event.message == name]
        assert numbers == list(range(20))


def states(days: range, version: int = 1) -> dict[str, dict[str, str]]:
    """What a run records of its spans."""
    return {str(n): {"signature": f"s{n}.{version}", "digest": f"d{n}"} for n in days}


def signatures(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """What a decision records of them, before they are read."""
    return {number: state["signature"] for number, state in found.items()}


def test_spans_come_back_as_they_were(event_log: EventLog) -> None:
    first = states(range(-2, 400))
    # A day is corrected, one is gone, one is new; of one the files were deleted while it ran.
    second = first | states(range(7, 8), version=2) | states(range(400, 401))
    del second["9"]
    second["11"] = {"signature": "s11.3", "digest": ""}
    for found in (first, second):
        event_log.record(EventKind.DUE, "due", spans=signatures(found))
        window = [int(number) for number in found]
        event_log.record(EventKind.FINISHED, "end", spans=found, window=window)
    one, end, two, other = event_log.events()
    assert (one.details["spans"], two.details["spans"]) == (signatures(first), signatures(second))
    assert (end.details["spans"], other.details["spans"]) == (first, second)
    assert other.details["window"] == [int(number) for number in second]
    known = event_log.known_digests()
    assert (known["s7.1"], known["s7.2"], known["s400.1"]) == ("d7", "d7", "d400")
    assert "s11.3" not in known


@pytest.mark.parametrize("kind", ["corrupt", "newer", "earlier", "first", "locked"])
def test_damaged_event_log_is_refused_unchanged(
    event_log: EventLog, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log_module, "BUSY_SECONDS", 0.2)
    path = tmp_path / "ledger.db"
    event_log.record(EventKind.DUE, "one")
    other = sqlite3.connect(path)
    words = "this file is not a ledger, or is corrupt (file is not a database); move the file"
    if kind == "newer":
        other.execute("PRAGMA user_version = 9")
        words = (
            "written by a newer version of Scopeline (format 9, but this version reads format 4)"
        )
    elif kind in ("earlier", "first"):
        number = 3 if kind == "earlier" else 0
        other.execute(f"PRAGMA user_version = {number}")
        words = (
            f"written by an earlier version of Scopeline (format {number}, but this version reads "
            "format 4); use that version"
        )
    elif kind == "locked":
        other.execute("BEGIN EXCLUSIVE")
        words = "the ledger cannot be used (database is locked)"
    else:
        path.write_text("this is a letter, not a database " * 50)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=re.escape(words)):
        event_log.record(EventKind.DUE, "two")
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        event_log.events()
    assert path.read_bytes() == before
    other.close()
