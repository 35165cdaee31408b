"""Alarms of a pipeline without pushes, and the probe of a scheduler."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from pipeline.records.event_log import EventKind
from pipeline.records.notify import wait_for_deliveries
from pipeline.schedule.health import (
    SILENT_SECONDS,
    find_scheduler_problem,
)
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once
from tests.support.scheduled_days import Days, at
from tests.support.scheduler_process import RUNNER, command, until
from tests.support.webhook_server import Hook, hook

NIGHTLY = {"cron": "0 3 * * *", "window": {"last": 3}, "missing_span": "skip"}


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as server:
        yield server


def watched(folder: Path, url: str, **notify: object) -> Days:
    """A nightly pipeline with a webhook, that has pushed once, on the third of January at 3."""
    days = Days(folder, NIGHTLY, notify={"webhook": {"url": url}, **notify})
    (days.layout.output / "behaviour").write_text("not_blessed")
    days.deliver(1, 2)
    days.check(at(3))
    days.run(at(3))
    wait_for_deliveries()
    days.event_log.record(EventKind.PUSHED, "to 1", at=at(3), version="1", path="1")
    return days


def look(days: Days, now: datetime) -> int:
    """A look of `--once`."""
    pipelines = load_pipelines([days.file], [], days.layout.output)
    return check_once(pipelines, days.layout.scheduler_lock, RUNNER, lambda: now)


def metrics(days: Days) -> dict[str, float]:
    lines = [line for line in days.layout.metrics.read_text().splitlines() if line[0] != "#"]
    return {name.partition("{")[0]: float(value) for name, value in map(str.split, lines)}


@contextmanager
def serving(days: Days) -> Iterator[subprocess.Popen[bytes]]:
    """A scheduler that keeps running, stopped at the end."""
    process = subprocess.Popen(
        command("serve", days.file, output=days.layout.output), stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_stale_alarm_repeats_until_a_push(tmp_path: Path, server: Hook) -> None:
    days = watched(tmp_path, server.url, stale_after="36h")
    alarms = []
    for day, hour in ((4, 4), (4, 14), (4, 16), (5, 4), (5, 16), (6, 3), (6, 4)):
        assert look(days, at(day, hour)) == 0
        alarms.append(len(server.messages("stale")))
    assert alarms == [0, 0, 1, 1, 1, 1, 2]
    assert metrics(days)["scopeline_stale"] == 1
    assert metrics(days)["scopeline_push_timestamp_seconds"] == at(3).timestamp()
    first, _ = server.messages("stale")
    assert first == (
        "nothing has been pushed since 2026-01-03 03:00 UTC, for 37 h (notify.stale_after: 36h); "
        "the last event: skipped: cron fired at 2026-01-04 03:00 UTC: nothing is new"
    )
    days.event_log.record(EventKind.PUSHED, "to 2", at=at(6, 5), version="2", path="2")
    for hour in (6, 7):
        look(days, at(6, hour))
    assert server.messages("stale")[2:] == ["over: a model was pushed again, to 2"]
    assert metrics(days)["scopeline_stale"] == 0
    assert look(days, at(7, 18)) == 0
    assert len(server.messages("stale")) == 4


def test_stale_alarm_without_any_push(tmp_path: Path, server: Hook) -> None:
    notify = {"webhook": {"url": server.url}, "stale_after": "1d", "occasions": ["stale"]}
    days = Days(tmp_path, NIGHTLY, notify=notify)
    assert [look(days, at(day)) for day in (1, 2, 3)] == [2, 2, 2]
    messages = server.messages("stale")
    assert len(messages) == 2
    assert messages[0].startswith(
        "nothing has ever been pushed since 2026-01-01 03:00 UTC, for 24 h "
    )
    assert "data.path: there is no span to train on" in messages[0]
    assert metrics(days)["scopeline_look_exit_code"] == 2
    assert "scopeline_push_timestamp_seconds" not in metrics(days)


@pytest.mark.slow
def test_probe_and_metrics_show_whether_a_scheduler_lives(tmp_path: Path) -> None:
    days = Days(tmp_path, NIGHTLY | {"on_new_data": True, "poll": "1s"})
    days.deliver(1)
    (days.layout.output / "behaviour").write_text("hang")
    layout = days.layout

    def ailment(*names: str) -> str | None:
        return find_scheduler_problem(layout.scheduler_lock, layout.heartbeat, names or ["days"])

    assert ailment() == f"{layout.output}: no scheduler is running in this output folder"
    with serving(days) as process:
        until(lambda: days.events(EventKind.STARTED) and layout.heartbeat.exists())
        assert ailment() is None, "a run that takes its time is no ailment"
        assert metrics(days)["scopeline_heartbeat_timestamp_seconds"] > time.time() - 60
        assert ailment("other") == f"other: process {process.pid} does not schedule this pipeline"
        process.send_signal(signal.SIGSTOP)
        beat = json.loads(layout.heartbeat.read_text())
        late = beat | {"silent_until": {"days": time.monotonic() - 60}}
        layout.heartbeat.write_text(json.dumps(late))
        assert str(ailment()).startswith(f"days: the check of process {process.pid} is 60 s")
        silent = beat | {"beat": time.monotonic() - SILENT_SECONDS - 1}
        layout.heartbeat.write_text(json.dumps(silent))
        assert str(ailment()).endswith("has written no heartbeat for 121 s")
        process.send_signal(signal.SIGCONT)
    assert ailment() == f"{layout.output}: no scheduler is running in this output folder"
