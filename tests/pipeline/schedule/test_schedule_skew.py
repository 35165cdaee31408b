"""Skew of logged requests: when it is measured, notified, and followed by a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.files import count_rows
from pipeline.records.data_records import new_requests, record_skew
from pipeline.records.event_log import EventKind
from pipeline.records.notify import wait_for_deliveries
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once
from tests.support.scheduled_days import Days, at
from tests.support.scheduler_process import RUNNER
from tests.support.webhook_server import Hook, hook

NIGHTLY = {"cron": "0 3 * * *", "window": {"last": 3}, "missing_span": "skip"}


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as server:
        yield server


class Served:
    """A nightly pipeline that has pushed, and whose requests are written down."""

    def __init__(self, folder: Path, on_skew: str, url: str) -> None:
        self.requests = folder / "requests"
        skew: dict[str, Any] = {
            "requests": str(self.requests),
            "columns": {"a": {"jensen_shannon": 0.1}},
            "on_skew": on_skew,
        }
        self.days = Days(folder, NIGHTLY, skew=skew, notify={"webhook": {"url": url}})
        (self.days.layout.output / "behaviour").write_text("not_blessed")
        self.days.deliver(1, 2)
        self.days.check(at(3))
        self.days.run(at(3))
        self._files = 0
        self.skewed()

    def push(self) -> None:
        self.days.event_log.record(EventKind.PUSHED, "to 1", at=at(3), version="1", path="1")

    def skewed(self, *columns: str) -> None:
        (self.days.layout.output / "skewed").write_text(" ".join(columns))

    def ask(self, rows: int) -> str:
        """A file of the log appears; gives its name."""
        self._files += 1
        path = self.requests / "2026-01-03" / f"{self._files:02d}-0000-00000a.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": range(rows)}), path)
        os.utime(path, (self._files, self._files))
        return f"2026-01-03/{path.stem}"

    def look(self, hour: int = 4) -> int:
        pipelines = load_pipelines([self.days.file], [], self.days.layout.output)
        return check_once(pipelines, self.days.layout.scheduler_lock, RUNNER, lambda: at(3, hour))

    def compare(self, *columns: str) -> str:
        """What `skew --record` does of what is new, where these columns are skewed."""
        config, event_log = self.days.config, self.days.event_log
        files = new_requests(config, event_log)
        rows = sum(count_rows(files).values())
        skewed = {name: f"{name} moved" for name in columns}
        shown = record_skew(config, event_log, files, 7, rows, skewed)
        wait_for_deliveries()
        return shown

    def messages(self, kind: EventKind) -> list[str]:
        return [event.message for event in self.days.events(kind)]


@pytest.mark.slow
def test_requests_are_compared_once_there_are_enough_of_them(tmp_path: Path, server: Hook) -> None:
    served = Served(tmp_path, "warn", server.url)
    first = served.ask(800)
    served.push()
    assert served.look() == 0
    assert served.messages(EventKind.SKEW_CHECKED) == []
    second = served.ask(300)
    assert served.look() == 0
    shown = f"requests of {first} to {second}, 1,100 rows: like the training data"
    assert served.messages(EventKind.SKEW_CHECKED) == [shown]
    served.ask(900)
    assert served.look() == 0
    assert served.messages(EventKind.SKEW_CHECKED) == [shown]
    assert served.messages(EventKind.SKEW) == []


@pytest.mark.parametrize("on_skew", ["warn", "notify"])
def test_skew_is_notified_once_at_its_start_and_end(
    tmp_path: Path, server: Hook, on_skew: str
) -> None:
    served = Served(tmp_path, on_skew, server.url)
    served.push()
    names, found = [], []
    for columns in (["a"], ["a"], ["a", "b"], []):
        names.append(served.ask(1000))
        found.append(served.compare(*columns))
    assert served.messages(EventKind.SKEW_CHECKED) == found
    assert [shown.partition(": ")[2] for shown in found] == [
        "a: a moved",
        "a is still skewed",
        "b: b moved; a is still skewed",
        "a is no longer skewed; b is no longer skewed",
    ]
    alarms = [
        f"requests of {names[0]}, 1,000 rows: a: a moved",
        f"requests of {names[2]}, 1,000 rows: b: b moved",
    ]
    assert served.messages(EventKind.SKEW) == alarms
    assert server.messages("skew") == ([] if on_skew == "warn" else alarms)


@pytest.mark.slow
def test_skew_makes_a_run_due_once(tmp_path: Path, server: Hook) -> None:
    served = Served(tmp_path, "retrain", server.url)
    served.push()
    name = served.ask(1000)
    served.skewed("a")
    assert served.look() == 0
    (due,) = served.days.events(EventKind.DUE)[1:]
    assert due.message == f"requests are skewed: requests of {name}, 1,000 rows: a: a moved"
    assert len(server.messages("skew")) == 1
    served.ask(1000)
    assert served.look(hour=5) == 0
    assert len(served.days.events(EventKind.DUE)) == 2
