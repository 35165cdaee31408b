"""Days of taxi data through the scheduler with a simulated clock: windows, warm starts, gates.

Four days: on the third nothing arrives, on the fourth the labels are shuffled. Another test kills
the scheduler and its run at random moments of two days.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
import psutil
import pytest
from ml_metadata.proto import metadata_store_pb2

from pipeline.records.event_log import EventKind, LoggedEvent
from tests.support import warm
from tools.replay import MINOR_COLUMNS, NAME, Replay

pytestmark = pytest.mark.slow

DAYS, QUIET, POISONED = 4, 3, 4
WINDOW = 3
SETTINGS = (
    f"schedule.window={{last: {WINDOW}}}",
    "schedule.cron=0 3 * * *",
    "certificate=false",
)
NIGHTS = [(1,), (1, 2), (2, 4)]
"""The days that each training takes."""
ALL_DAYS = 10
"""The trips are dealt to more days than are played, to keep them small."""
NEARLY = 0.98
"""Of the first day's best: the next day's eval split is another one."""
FORMAT = "/Format-Serving"
"""Where the SavedModel is in a Model artifact."""
TRANSFORM = "components.column_types.transform.Transform"
LONGEST = 30
"""Seconds that a night takes at most, more or less: a kill may come when all is done."""
KILLED_DAYS = 2
KILLED_SETTINGS = (
    f"schedule.window={{last: {WINDOW}}}",
    "train.epochs=5",
    "evaluate.thresholds={auc: {min: 0.6, tolerance: 0.4}}",
    "schedule.keep={versions: 2, runs: 1}",
)
"""Every model is good enough: a day that is lost, or comes twice, shows. What is old is deleted."""


class WarmReplay(Replay):
    """A folder of days, played in processes that are forked."""

    def __init__(
        self, folder: Path, days: int, quiet: set[int], poisoned: Collection[int], *settings: str
    ) -> None:
        ignored = [f"features.{name}={{type: ignore}}" for name in MINOR_COLUMNS]
        super().__init__(folder, days, quiet, poisoned, *ignored, *settings)

    def play(self, number: int) -> subprocess.CompletedProcess[str]:
        self.deliver(number)
        return warm.run(self.command(number), capture_output=True, text=True)


class Played:
    """A replay that is over, with what each of its nights added to the ledger."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.output: list[str] = []
        self.events: list[list[LoggedEvent]] = []
        self.served: list[list[str]] = []
        self.summaries: list[dict[str, Any]] = []

    def play(self, day: int) -> None:
        """A day and its night."""
        known = {event.id for event in self.replay.event_log.events()}
        done = self.replay.play(day)
        self.output.append(done.stdout + done.stderr)
        self.events.append([e for e in self.replay.event_log.events() if e.id not in known])
        self.served.append(self.replay.versions)
        self.summaries.append(self.replay.summary())

    def kinds(self, day: int) -> set[EventKind]:
        return {event.kind for event in self.events[day - 1]}

    def details(self, day: int, kind: EventKind) -> list[dict[str, Any]]:
        return [event.details for event in self.events[day - 1] if event.kind is kind]

    def spans(self, *days: int) -> list[int]:
        return [(self.replay.day(day) - self.replay.day(1)).days + self.first for day in days]

    @property
    def first(self) -> int:
        """The number of the first day's span."""
        return int(self.details(1, EventKind.STARTED)[0]["window"][0])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("replay")
    played = Played(WarmReplay(folder, ALL_DAYS, {QUIET}, {POISONED}, *SETTINGS))
    for day in range(1, DAYS + 1):
        played.play(day)
    return played


@pytest.fixture(scope="module")
def store(played: Played) -> mlmd.MetadataStore:
    connection = metadata_store_pb2.ConnectionConfig()
    connection.sqlite.filename_uri = str(played.replay.output / NAME / "metadata.db")
    return mlmd.MetadataStore(connection)


def executions(store: mlmd.MetadataStore, kind: str) -> list[int]:
    """Those that ran themselves, oldest first."""
    found = store.get_executions_by_type(kind)
    complete = metadata_store_pb2.Execution.COMPLETE
    return sorted(e.id for e in found if e.last_known_state == complete)


def artifacts(store: mlmd.MetadataStore, execution: int, key: str) -> list[Any]:
    """The artifacts that an execution took or gave under a key."""
    events = store.get_events_by_execution_ids([execution])
    return list(
        store.get_artifacts_by_id([e.artifact_id for e in events if e.path.steps[0].key == key])
    )


def test_each_night_trains_on_its_window(played: Played, store: mlmd.MetadataStore) -> None:
    windows = [
        sorted(a.custom_properties["span"].int_value for a in artifacts(store, e, "examples"))
        for e in executions(store, TRANSFORM)
    ]
    assert windows == [played.spans(*days) for days in NIGHTS]


def test_only_the_new_span_is_read_counted_and_analysed(
    played: Played, store: mlmd.MetadataStore
) -> None:
    names = [kind.name for kind in store.get_execution_types()]
    for kind in ("ArrowExampleGen", "StatisticsGen"):
        (name,) = (name for name in names if name.endswith(kind))
        assert len(executions(store, name)) == len(NIGHTS), kind
    for execution in executions(store, TRANSFORM)[1:]:
        (before,) = artifacts(store, execution, "analyzer_cache")
        (after,) = artifacts(store, execution, "updated_analyzer_cache")
        new = set(os.listdir(after.uri)) - set(os.listdir(before.uri))  # noqa: PTH208
        assert len(new) == 1, "one span is analysed, what is known of the others is cached"


def test_a_day_with_nothing_new_runs_nothing(played: Played) -> None:
    assert played.kinds(QUIET) == {EventKind.SKIPPED}
    assert "nothing" in played.events[QUIET - 1][0].message
    assert played.served[QUIET - 1] == played.served[QUIET - 2]


def test_a_poisoned_day_does_not_reach_service(played: Played, store: mlmd.MetadataStore) -> None:
    assert EventKind.NOT_BLESSED in played.kinds(POISONED)
    assert EventKind.PUSHED not in played.kinds(POISONED)
    assert played.served[POISONED - 1] == played.served[POISONED - 2]
    reason = played.summaries[POISONED - 1]["reason"]
    assert re.search(
        r"below the threshold of 0.8; the model in service has 0\.\d+ in auc, but had 0\.[89]\d* "
        r"when it was pushed: the data is the likely cause; no single column has changed since "
        r"span 2024-01-02: check the labels",
        reason,
    ), reason
    of_day_2 = played.details(2, EventKind.PUSHED)[0]["model"]
    evaluator = executions(store, "components.evaluator.component.Evaluator")[-1]
    assert [a.uri for a in artifacts(store, evaluator, "baseline_model")] == [of_day_2]
    trainer = executions(store, "tfx.components.trainer.component.Trainer")[-1]
    assert [a.uri for a in artifacts(store, trainer, "base_model")] == [of_day_2]


def test_a_warm_start_saves_at_least_half_of_the_steps(played: Played) -> None:
    cold, warm = played.summaries[:2]
    goal = NEARLY * max(cold["training"]["history"]["val_auc"])
    assert steps_to_reach(warm, goal) <= steps_to_reach(cold, goal) / 2
    assert cold["training"]["warm_start"] is None
    assert (
        warm["training"]["warm_start"] == played.details(1, EventKind.PUSHED)[0]["model"] + FORMAT
    )
    assert any("warm start: from" in note for note in warm["training"]["notes"])


def test_each_good_day_is_pushed(played: Played) -> None:
    for day in (1, 2):
        assert played.details(day, EventKind.FINISHED)[0]["status"] == "pushed", played.output[
            day - 1
        ]
    assert len(played.served[-1]) == 2


def steps_to_reach(summary: dict[str, Any], auc: float) -> int:
    """Optimizer steps until the AUC of the eval split was that high."""
    training = summary["training"]
    epoch = next(n for n, found in enumerate(training["history"]["val_auc"], 1) if found >= auc)
    return int(epoch * training["steps"] // training["epochs"])


def kill_night(replay: Replay, day: int, seconds: float) -> None:
    """Begins the night after a day, and kills its scheduler and run after so long.

    A Python of its own starts them: a run that is forked is no child of its scheduler.
    """
    process = subprocess.Popen(
        replay.command(day), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        scheduler = psutil.Process(process.pid)
        for member in (*scheduler.children(recursive=True), scheduler):
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
    time.sleep(1)  # The children of a killed run notice.


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


def test_no_day_is_lost_or_done_twice(tmp_path: Path) -> None:
    """Whatever it was doing when it was killed."""
    replay = WarmReplay(tmp_path, 30, set(), set(), *KILLED_SETTINGS)
    generator = random.Random(8)  # noqa: S311
    for day in range(1, KILLED_DAYS + 1):
        replay.deliver(day)
        kill_night(replay, day, generator.uniform(0.5, LONGEST))
        check_what_is_left(replay)
        done = replay.play(day)
        assert done.returncode == 0, done.stdout + done.stderr
    first = replay.event_log.events(EventKind.STARTED)[0].details["window"][0]
    finished = [event.details["window"] for event in replay.event_log.events(EventKind.FINISHED)]
    expected = [
        [first + other for other in range(max(0, day - WINDOW + 1), day + 1)]
        for day in range(KILLED_DAYS)
    ]
    assert finished == expected, "each day's run finished once, with its window"
    pushed = Counter(event.details["path"] for event in replay.event_log.events(EventKind.PUSHED))
    assert len(pushed) == KILLED_DAYS
    assert set(pushed.values()) == {1}
    assert [Path(path).name for path in pushed][-2:] == replay.versions
