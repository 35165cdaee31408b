"""kill -9 of the scheduler and the run it started, at random moments of days that are replayed.

`SCOPELINE_KILLS=20 make test ARGS=tests/e2e/scheduling/test_replay_kills.py` kills so many, two a
day; always, one night of `test_replay.py` is killed once.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from e2e.faults.killing import KILLS, ON_REQUEST
from e2e.scheduling.warm_replay import LONGEST, WarmReplay, check_what_is_left, kill_night

from pipeline.records.event_log import EventKind
from tools.replay import Replay

KILLS_A_DAY = 2
DAYS = max(2, KILLS // KILLS_A_DAY)
WINDOW = 3
SETTINGS = (
    f"schedule.window={{last: {WINDOW}}}",
    "train.epochs=5",
    "evaluate.thresholds={auc: {min: 0.6, tolerance: 0.4}}",
    "schedule.keep={versions: 2, runs: 1}",
)
"""Every model is good enough: a day that is lost, or comes twice, shows. What is old is deleted."""


pytestmark = ON_REQUEST


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return WarmReplay(tmp_path_factory.mktemp("killed"), max(30, DAYS), set(), set(), *SETTINGS)


@pytest.mark.timeout(max(900, KILLS * 120))
def test_no_day_is_lost_or_done_twice(replay: Replay) -> None:
    generator = random.Random(KILLS)  # noqa: S311
    kills = 0
    for day in range(1, DAYS + 1):
        replay.deliver(day)
        for _ in range(min(KILLS_A_DAY, KILLS - kills)):
            kills += 1
            kill_night(replay, day, generator.uniform(0.5, LONGEST))
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
