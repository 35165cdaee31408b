"""Runs that read and check a dozen rows: results, screen and event log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.records.event_log import EventKind
from tests.support.tiny_data import ROWS, Checked, TinyPipeline

CHECKS = ["ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator"]


def kinds(run: Checked) -> list[EventKind]:
    return [event.kind for event in run.events]


def test_validation_is_recorded(tiny: TinyPipeline, checked: Checked) -> None:
    assert checked.code == 0
    assert checked.states == dict.fromkeys(CHECKS, "ran")
    summary = checked.summary
    assert (summary["status"], summary["error"]) == ("validated", None)
    assert summary["examples"] == {"train": 11, "eval": 1}
    assert (summary["anomalies"], summary["training"], summary["pushed"]) == ([], {}, None)
    assert tiny.layout.schema.exists()
    assert not Path(tiny.layout.serving).exists()


def test_screen_has_a_line_for_each_component(checked: Checked) -> None:
    lines = checked.screen.splitlines()
    assert [line.split()[0] for line in lines[:4]] == CHECKS
    assert lines[1].endswith("train 11, eval 1")
    assert lines[-3] == "validated: the data was read and checked"
    assert lines[-2] == f"summary: {checked.files.summary}"
    assert lines[-1] == f"report: {checked.files.report}"
    assert "learning curves" not in checked.screen, "nothing was trained"


def test_event_log_has_start_and_end(checked: Checked) -> None:
    assert kinds(checked) == [EventKind.STARTED, EventKind.FINISHED]
    started, finished = checked.events
    assert started.message == "by hand"
    assert finished.details["status"] == "validated"
    assert finished.details["exit_code"] == 0
    ((span, state),) = finished.details["spans"].items()
    assert span == "-1"
    assert all(state.values())


@pytest.mark.proof
def test_missing_column_is_unusable_and_finished_components_are_kept(
    tiny: TinyPipeline, checked: Checked
) -> None:
    del checked
    run = tiny.check(
        features={"sizes": {"type": "cross", "of": ["size", "sides"], "hash_buckets": 5}}
    )
    message = "features.sizes (sides): the schema has no column `sides`; did you mean `side`?"
    assert run.code == 2
    assert run.summary["status"] == "unusable"
    assert run.summary["error"] == {
        "component": "ExampleValidator",
        "message": message,
        "log": str(run.files.log),
    }
    assert run.states == dict.fromkeys(CHECKS[:3], "cached") | {"ExampleValidator": "failed"}
    assert run.screen.splitlines()[-4:] == [
        f"ExampleValidator failed: {message}",
        f"full output: {run.files.log}",
        "the next run continues after the finished components",
        f"report: {run.files.report}",
    ]
    assert kinds(run) == [EventKind.STARTED, EventKind.CACHED, EventKind.FAILED]
    assert run.events[-1].message == f"ExampleValidator: {message}"
    assert run.events[-1].details["exit_code"] == 2


def test_broken_file_fails_example_gen(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path)
    pipeline.write(ROWS + "1.5,north\n")
    run = pipeline.check()
    assert run.code == 2
    assert run.states == {"ExampleGen": "failed"}
    assert "tiny.csv" in run.summary["error"]["message"]
    assert "goes on" not in run.screen
    assert kinds(run) == [EventKind.STARTED, EventKind.FAILED]


@pytest.mark.slow
def test_only_the_newest_span_is_checked(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path, "{SPAN}/*.csv")
    pipeline.write("this is no table\n1,2,3,4\n", "1/rows.csv")
    pipeline.write(file="2/rows.csv")
    run = pipeline.check(schedule={"window": {"last": 2}, "cron": "0 3 * * *"})
    assert run.code == 0
    assert run.summary["window"] == {"spans": ["1", "2"], "newest": "2"}
    assert not any("span" in note for note in run.summary["notes"])
    assert kinds(run) == [EventKind.STARTED, EventKind.INGESTED, EventKind.FINISHED]
    ingested = run.events[1].details
    assert (ingested["span"], ingested["examples"]) == (2, {"train": 11, "eval": 1})
    assert Path(ingested["uri"]).is_dir()
