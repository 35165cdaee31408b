"""The exit code of `--once`: what is wrong keeps it at every look until it is mended."""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.lock import ProcessLock
from pipeline.records.event_log import EventKind
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once
from pipeline.versions.hold import release_hold, set_hold
from tests.support.scheduled_days import OTHER_ROWS, Days, at
from tests.support.scheduler_process import RUNNER

EAGER = {"on_new_data": True, "settle": "0s", "retry": {"attempts": 1}}


class Looks:
    """Looks at a pipeline, each by a clock of its own; runs are those of `fake_runner.py`."""

    def __init__(self, days: Days, capsys: pytest.CaptureFixture[str]) -> None:
        self.days = days
        self._capsys = capsys
        self._pipelines = load_pipelines([days.file], [], days.layout.output)

    def look(self, now: datetime) -> tuple[int, str]:
        """The exit code and the last line of output."""
        lock_file = self.days.layout.scheduler_lock
        code = check_once(self._pipelines, lock_file, RUNNER, lambda: now)
        return code, self._capsys.readouterr().out.splitlines()[-1]

    def behave(self, behaviour: str) -> None:
        (self.days.layout.output / "behaviour").write_text(behaviour)


@pytest.fixture
def looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Looks:
    days = Days(tmp_path, EAGER)
    days.deliver(1)
    return Looks(days, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("behaviour", "code"), [("unusable", 2), ("failed", 1)])
def test_failed_run_keeps_its_code_until_a_run_ends_well(
    looks: Looks, behaviour: str, code: int
) -> None:
    looks.behave(behaviour)
    assert looks.look(at(2))[0] == code
    (failed,) = looks.days.events(EventKind.FAILED)
    began = failed.at.astimezone(UTC) + timedelta(minutes=1)
    since = failed.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    for _ in range(2):
        found, line = looks.look(began)
        assert found == code
        assert f"exit {code} since {since}" in line
        assert failed.message in line
    looks.days.deliver(1, rows=OTHER_ROWS, arrives=at(3))
    looks.behave("not_blessed")
    # A model that is not blessed is nothing that has to be mended.
    assert [looks.look(began)[0] for _ in range(2)] == [0, 0]


def test_unchecked_pipeline_keeps_its_code(looks: Looks) -> None:
    days = looks.days
    days.change({"schedule": EAGER | {"settle": "1m"}})
    pattern = days.raw["data"]["path"]
    days.change({"data": days.raw["data"] | {"path": pattern.replace("*.csv", "*.tsv")}})
    wrong = "data.path: there is no span to train on"
    assert looks.look(at(2, 4))[0] == 2
    with closing(ProcessLock(days.layout.lock)):
        code, line = looks.look(at(2, 5))
        assert (code, line.partition(": ")[2]) == (0, "nothing to do: a run is under way")
    set_hold(days.layout, days.event_log, "migration", stops_runs=True)
    for hour in (6, 7):
        code, line = looks.look(at(2, hour))
        assert code == 2
        assert line.endswith(f": migration (exit 2 since 2026-01-02 04:00: {wrong})")
    release_hold(days.layout, days.event_log)
    days.deliver(2, arrives=at(3, 1))
    days.change({"data": days.raw["data"] | {"path": pattern}})
    shutil.rmtree(days.folder / "days" / "2026-01-01")
    code, line = looks.look(at(3, 1))
    assert (code, "still being written" in line) == (0, True)
    shutil.rmtree(days.folder / "days" / "2026-01-02")
    assert looks.look(at(3, 2))[1].endswith(f": {wrong} (exit 2 since 2026-01-02 04:00)")
    assert days.events(EventKind.RECOVERED) == []
    assert [e.message for e in days.events(EventKind.SKIPPED) if e.message == wrong] == [wrong]
