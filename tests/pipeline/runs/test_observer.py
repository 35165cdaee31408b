"""What is written down of a run while it goes on and when it has ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from components.pusher.versions import list_versions
from pipeline.records.event_log import EventKind
from pipeline.records.summary import State
from pipeline.runs.local import ComponentFailedError
from tests.support.evaluation_artifacts import Evaluations, config_of
from tests.support.recording import Recording
from tests.support.small_components import Break, checks, play


def test_summary_is_there_before_anything_ran(tmp_path: Path) -> None:
    recording = Recording(tmp_path, config_of({}), spans=2)
    summary = recording.summary
    assert (summary["run_id"], summary["pipeline"]) == ("run 1", "measured")
    assert (summary["status"], summary["components"], summary["error"]) == ("running", [], None)
    assert summary["window"] == {"spans": ["1", "2"], "newest": "2"}
    assert summary["notes"] == ["span 3 is empty; it is not read yet"]
    assert recording.kinds() == [], "nothing has begun"


def test_components_are_written_down_as_they_end(tmp_path: Path) -> None:
    recording = Recording(tmp_path, config_of({}))
    observer = recording.observer
    observer.started("SchemaGen")
    assert recording.states == {}
    assert recording.kinds() == [EventKind.STARTED]
    observer.finished("SchemaGen", State.RAN, 1.23456, None)
    (component,) = recording.summary["components"]
    began = datetime.fromisoformat(component.pop("started"))
    assert component == {"name": "SchemaGen", "state": "ran", "seconds": 1.235}
    assert timedelta(seconds=1) < datetime.now().astimezone() - began < timedelta(minutes=1)
    observer.started("Trainer")
    assert [line.split()[0] for line in recording.lines] == ["SchemaGen"]
    assert recording.summary["status"] == "running"
    assert recording.kinds() == [EventKind.STARTED]


def test_pushed(tmp_path: Path, evaluations: Evaluations) -> None:
    recording = Recording(tmp_path, evaluations.kept.config)
    recording.train(evaluations.kept)
    recording.observer.conclude(None)
    (version,) = list_versions(Path(recording.layout.serving))
    summary = recording.summary
    assert (summary["status"], summary["pushed"]) == ("pushed", str(version))
    assert recording.states == dict.fromkeys(["Trainer", "Evaluator", "Pusher"], "ran")
    assert summary["metrics"]["accuracy"]["value"] == pytest.approx(1.0)
    assert (summary["strategy"], summary["replicas"]) == ("mirrored", 2)
    assert recording.kinds() == [
        EventKind.STARTED,
        EventKind.BLESSED,
        EventKind.PUSHED,
        EventKind.FINISHED,
    ]
    details = recording.last(EventKind.PUSHED).details
    assert (details["version"], details["path"]) == (version.name, str(version))
    assert details["metrics"]["accuracy"] == pytest.approx(1.0)
    assert details["model"] is not None
    assert details["model"].startswith(recording.layout.artifacts)
    assert recording.last(EventKind.FINISHED).details["exit_code"] == 0


def test_not_blessed(tmp_path: Path, evaluations: Evaluations) -> None:
    recording = Recording(tmp_path, evaluations.missed.config)
    recording.train(evaluations.missed)
    recording.observer.conclude(None)
    summary = recording.summary
    assert (summary["status"], summary["pushed"], summary["error"]) == ("not_blessed", None, None)
    assert recording.states["Pusher"] == "skipped"
    assert summary["metrics"]["precision"]["value"] is None, "JSON has no NaN"
    assert summary["slices"]["plan=gold"]["example_count"] == 8
    assert recording.kinds() == [EventKind.STARTED, EventKind.NOT_BLESSED, EventKind.FINISHED]
    assert "precision is nan" in recording.last(EventKind.NOT_BLESSED).message
    assert recording.last(EventKind.FINISHED).details["exit_code"] == 3
    assert any(line.endswith("the model is not blessed") for line in recording.lines)


def test_failed(tmp_path: Path) -> None:
    recording = Recording(tmp_path, config_of({}))
    broken = Break(why="first\nit does not work").with_id("Trainer")
    nodes = [*checks(recording.config), broken]
    with pytest.raises(ComponentFailedError) as caught:
        play(recording.config, recording.layout, recording.observer, nodes)
    recording.observer.conclude(caught.value)
    summary = recording.summary
    message = "RuntimeError: it does not work"
    assert summary["status"] == "failed"
    assert summary["error"] == {
        "component": "Trainer",
        "message": message,
        "log": str(recording.files.log),
    }
    assert recording.states["Trainer"] == "failed"
    assert recording.kinds() == [EventKind.STARTED, EventKind.FAILED]
    failed = recording.last(EventKind.FAILED)
    assert failed.message == f"Trainer: {message}"
    assert failed.details == {"status": "failed", "exit_code": 1}
