"""A run that reads and checks a dozen rows, and runs that fail at it: what people are told."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from pipeline.records.event_log import EventKind, EventLog
from pipeline.run_context import RunRequest, resolve_run
from pipeline.runs.console import RunConsole
from pipeline.runs.run import stop
from tests.support.tiny_data import ROWS, Checked, TinyPipeline

CHECKS = ["ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator"]


def kinds(run: Checked) -> list[EventKind]:
    return [event.kind for event in run.events]


def test_validation_is_said_and_written_down(tiny: TinyPipeline, checked: Checked) -> None:
    assert checked.code == 0
    assert checked.states == dict.fromkeys(CHECKS, "ran")
    summary = checked.summary
    assert (summary["status"], summary["error"]) == ("validated", None)
    assert summary["examples"] == {"train": 11, "eval": 1}
    assert (summary["anomalies"], summary["training"], summary["pushed"]) == ([], {}, None)
    assert tiny.layout.schema.exists()
    assert not Path(tiny.layout.serving).exists()


def test_the_screen_has_a_line_for_each_component_and_the_way_on(checked: Checked) -> None:
    lines = checked.screen.splitlines()
    assert [line.split()[0] for line in lines[:4]] == CHECKS
    assert lines[1].endswith("train 11, eval 1")
    assert lines[-3] == "validated: the data was read and checked"
    assert lines[-2] == f"summary: {checked.files.summary}"
    assert lines[-1] == f"report: {checked.files.report}"
    assert "learning curves" not in checked.screen, "nothing was trained"


def test_the_ledger_has_the_beginning_and_the_end(checked: Checked) -> None:
    assert kinds(checked) == [EventKind.STARTED, EventKind.FINISHED]
    started, finished = checked.events
    assert started.message == "by hand"
    assert finished.details["status"] == "validated"
    assert finished.details["exit_code"] == 0
    ((span, state),) = finished.details["spans"].items()
    assert span == "-1"
    assert all(state.values())


def test_checking_again_finds_nothing_new(tiny: TinyPipeline, checked: Checked) -> None:
    again = tiny.check()
    assert again.states == dict.fromkeys(CHECKS, "cached")
    assert again.summary["examples"] == checked.summary["examples"]
    assert kinds(again) == [EventKind.STARTED, EventKind.CACHED, EventKind.FINISHED]
    assert again.events[1].details["components"] == CHECKS


def test_data_that_lacks_a_column_is_unusable_and_what_is_done_is_kept(
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


def test_a_broken_file_is_named_and_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path)
    pipeline.write(ROWS + "1.5,north\n")
    run = pipeline.check()
    assert run.code == 2
    assert run.states == {"ExampleGen": "failed"}
    assert "tiny.csv" in run.summary["error"]["message"]
    assert "goes on" not in run.screen
    assert kinds(run) == [EventKind.STARTED, EventKind.FAILED]


def test_a_failure_that_is_not_the_datas_has_another_code(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path)
    pipeline.write()
    pipeline.layout.pipeline_root.mkdir()
    (pipeline.layout.pipeline_root / "ExampleGen").write_text("a file where a folder has to be")
    run = pipeline.check()
    assert run.code == 1
    assert run.summary["status"] == "failed"
    assert run.summary["error"]["component"] == "ExampleGen"
    assert "ExampleGen failed: " in run.screen
    assert run.events[-1].details["exit_code"] == 1


def test_a_stop_before_the_first_component_is_written_down(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path)
    pipeline.write()
    files, screen = pipeline.layout.run("run 1"), io.StringIO()
    files.root.mkdir(parents=True)
    request = RunRequest(reason="cron fired")
    context = resolve_run(pipeline.config(), pipeline.layout, request)
    assert stop(context, request, files, RunConsole(screen)) == 130
    assert screen.getvalue().startswith("\ninterrupted in start-up\n")
    assert json.loads(files.summary.read_text())["status"] == "interrupted"
    (ended,) = EventLog(pipeline.layout.event_log).events()
    assert (ended.kind, ended.details["exit_code"]) == (EventKind.FAILED, 130)


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


def test_what_is_known_of_a_span_is_told_once(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path, "{SPAN}/*.csv")
    schedule: dict[str, Any] = {"window": {"last": 1}, "cron": "0 3 * * *"}
    pipeline.write(file="1/rows.csv")
    pipeline.check(schedule=schedule)
    header, *rows = ROWS.splitlines()
    odd = [f"{header},more", *(f"{row.replace('north', 'east')},{n}" for n, row in enumerate(rows))]
    pipeline.write("\n".join(odd), "2/rows.csv")

    run = pipeline.check(schedule=schedule)
    started, *told, finished = kinds(run)
    assert (started, finished) == (EventKind.STARTED, EventKind.FINISHED)
    assert told == [EventKind.INGESTED, EventKind.ANOMALY]
    anomaly = run.events[-2]
    assert anomaly.message == f"2 columns: {'; '.join(anomaly.details['anomalies'])}"
    assert {"side", "more"} == {
        a.split(", ")[1].split(":")[0] for a in anomaly.details["anomalies"]
    }
    assert (anomaly.details["span"], anomaly.details["columns"]) == (2, 2)

    again = pipeline.check(schedule=schedule)
    assert again.states["ExampleGen"] == "cached"
    assert kinds(again) == [EventKind.STARTED, EventKind.CACHED, EventKind.FINISHED]
    assert again.summary["anomalies"] == run.summary["anomalies"], "of the run itself, all is told"


def test_splits_may_have_files_of_their_own(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path, ".")
    pipeline.data["splits"] = {"train": "train.csv", "eval": "eval.csv"}
    pipeline.write(file="train.csv")
    pipeline.write(file="eval.csv")
    assert pipeline.check().summary["examples"] == {"train": 12, "eval": 12}
