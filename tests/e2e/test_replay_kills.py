"""kill -9 of the scheduler and the run it started, at random moments of days that are replayed.

`SCOPELINE_KILLS=20 make test ARGS=tests/e2e/test_replay_kills.py` kills so many, two a day.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import ml_metadata as mlmd
import psutil
import pytest
from e2e.warm_replay import WarmReplay
from ml_metadata.proto import metadata_store_pb2

from pipeline.records.event_log import EventKind
from tools.replay import NAME, Replay

KILLS = int(os.environ.get("SCOPELINE_KILLS", "1"))
KILLS_A_DAY = 2
DAYS = max(2, KILLS // KILLS_A_DAY)
WINDOW = 3
LONGEST = 25
"""Seconds that a night takes at most, more or less: a kill may come when all is done."""
SETTINGS = (
    f"schedule.window={{last: {WINDOW}}}",
    "train.epochs=5",
    "evaluate.thresholds={auc: {min: 0.6, tolerance: 0.4}}",
    "schedule.keep={versions: 2, runs: 1}",
)
"""Every model is good enough: a day that is lost, or comes twice, shows. What is old is deleted."""


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return WarmReplay(tmp_path_factory.mktemp("killed"), max(30, DAYS), set(), None, *SETTINGS)


def kill_in(process: subprocess.Popen[str], seconds: float) -> None:
    """Kills a process and all below it, if they are still there by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        family = [
            *psutil.Process(process.pid).children(recursive=True),
            psutil.Process(process.pid),
        ]
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()


def check_what_is_left(replay: Replay) -> None:
    """What serves is whole, and the stores open."""
    for version in replay.versions:
        folder = replay.output / NAME / "serving" / NAME / version
        assert (folder / "saved_model.pb").stat().st_size > 0
        index = folder / "variables" / "variables.index"
        assert index.stat().st_size > 0
    replay.event_log.events()
    path = replay.output / NAME / "metadata.db"
    if path.exists():
        connection = metadata_store_pb2.ConnectionConfig()
        connection.sqlite.filename_uri = str(path)
        mlmd.MetadataStore(connection).get_executions()


@pytest.mark.timeout(max(900, KILLS * 120))
def test_no_day_is_lost_or_done_twice(replay: Replay) -> None:
    generator = random.Random(KILLS)  # noqa: S311
    kills = 0
    for day in range(1, DAYS + 1):
        replay.deliver(day)
        for _ in range(min(KILLS_A_DAY, KILLS - kills)):
            kills += 1
            process = subprocess.Popen(
                replay.command(day), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            kill_in(process, generator.uniform(0.5, LONGEST))
            time.sleep(1)  # The children of a killed run notice.
            check_what_is_left(replay)
        done = replay.play(day)
        assert done.returncode == 0, done.stdout + done.stderr
    first = replay.event_log.events(EventKind.STARTED)[0].details["window"][0]
    finished = [event.details["window"] for event in replay.event_log.events(EventKind.FINISHED)]
    expected = [
        [first + other for other in range(max(0, day - WINDOW + 1), day + 1)] for day in range(DAYS)
    ]
    assert finished == expected, "each day's run finished once, with its window"
    pushed = Counter(event.details["path"] for event in replay.event_log.events(EventKind.PUSHED))
    assert len(pushed) == DAYS
    assert set(pushed.values()) == {1}
    assert [Path(path).name for path in pushed][-2:] == replay.versions
    assert kills == KILLS
