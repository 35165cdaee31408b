"""What is written down of a run while it goes on and when it has ended."""

from __future__ import annotations

import errno
import io
import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from components.pusher.versions import list_versions, read_provenance
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import DataLocation, File
from pipeline.data.spans import Span, Window
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import State
from pipeline.run_context import RunContext
from pipeline.runs.artifact_results import ArtifactResults
from pipeline.runs.console import RunConsole
from pipeline.runs.local import ComponentFailedError
from pipeline.runs.observer import RunObserver
from tests.support.evaluation_artifacts import Evaluations, Measured, config_of
from tests.support.small_components import Break, Stop, checks, play, training

pytestmark = pytest.mark.slow

CHECKS = ["ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator"]


class Recording:
    """A run that is recorded, and where that can be read."""

    def __init__(self, folder: Path, config: PipelineConfig, spans: int = 0) -> None:
        self.config = config
        self.layout = Layout(folder / "output", config.name)
        self.files = self.layout.run("run 1")
        self.files.root.mkdir(parents=True)
        self.event_log = EventLog(self.layout.event_log)
        self.stream = io.StringIO()
        data = folder / "data.csv"
        data.write_text("rows")
        file = File(str(data), 4, data.stat().st_mtime)
        numbers = range(1, spans + 1) if spans else [-1]
        found = [Span(number, None, (file,)) for number in numbers]
        window = Window(tuple(found), ("span 3 is empty; it is not read yet",)) if spans else None
        location = DataLocation(str(folder), {"all": data.name})
        context = RunContext(config, self.layout, location, window, tuple(found))
        self.ingestion = context.ingestion.fingerprint
        self.observer = RunObserver(
            context,
            self.files,
            RunConsole(self.stream),
            RunEvents(self.event_log, config, "run 1", found, "test"),
            ArtifactResults(context.connection, config, self.event_log),
        )

    @property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads(self.files.summary.read_text()))

    @property
    def states(self) -> dict[str, str]:
        return {c["name"]: c["state"] for c in self.summary["components"]}

    @property
    def lines(self) -> list[str]:
        """What a person saw."""
        return self.stream.getvalue().splitlines()

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.event_log.events()]

    def last(self, kind: EventKind) -> LoggedEvent:
        event = self.event_log.last(kind)
        assert event is not None
        return event

    def train(self, measured: Measured, **trained: int) -> None:
        """Plays a training with the verdict of an evaluation."""
        nodes = training(self.layout, measured.uri, measured.blessed, **trained)
        play(self.config, self.layout, self.observer, nodes)


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


def test_served_version_that_was_deleted_is_put_back_at_the_end_of_a_run(
    tmp_path: Path, evaluations: Evaluations
) -> None:
    recording = Recording(tmp_path, evaluations.kept.config)
    recording.train(evaluations.kept)
    (version,) = list_versions(Path(recording.layout.serving))
    before = read_provenance(version)
    recording.observer.restore_served_version()
    assert recording.observer.summary.notes == [], "it is there"
    shutil.rmtree(version)
    recording.observer.restore_served_version()
    assert recording.observer.summary.notes == ["the served version was missing; pushed again"]
    assert (version / "saved_model.pb").read_bytes() == b"graph"
    assert read_provenance(version) == before is not None


def test_served_version_that_was_damaged_is_pushed_again_at_the_end_of_a_run(
    tmp_path: Path, evaluations: Evaluations
) -> None:
    recording = Recording(tmp_path, evaluations.kept.config)
    recording.train(evaluations.kept)
    (version,) = list_versions(Path(recording.layout.serving))
    (version / "saved_model.pb").unlink()
    (version / "another").touch()
    recording.observer.restore_served_version()
    (note,) = recording.observer.summary.notes
    assert note == "the served version was damaged (saved_model.pb is missing); pushed again"
    assert list_versions(version.parent) == [version]
    assert (version / "saved_model.pb").read_bytes() == b"graph"
    assert not (version / "another").exists()
    assert list(version.parent.iterdir()) == [version]


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


def test_validated(tmp_path: Path) -> None:
    config = config_of({}, on_anomaly="warn")
    recording = Recording(tmp_path, config, spans=2)
    play(config, recording.layout, recording.observer, checks(config, east=5))
    recording.observer.conclude(None)
    assert recording.summary["status"] == "validated"
    assert recording.states == dict.fromkeys(CHECKS, "ran")
    assert recording.kinds() == [
        EventKind.STARTED,
        EventKind.INGESTED,
        EventKind.ANOMALY,
        EventKind.FINISHED,
    ]
    ingested = recording.last(EventKind.INGESTED).details
    assert (ingested["span"], ingested["settings"]) == (2, recording.ingestion)
    assert ingested["examples"] == {"train": 100, "eval": 20}
    assert Path(ingested["uri"]).is_dir()
    assert "east" in recording.last(EventKind.ANOMALY).message
    finished = recording.last(EventKind.FINISHED).details
    assert (finished["status"], finished["window"]) == ("validated", [1, 2])
    assert set(finished["spans"]) == {"1", "2"}


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


def test_interrupted(tmp_path: Path) -> None:
    recording = Recording(tmp_path, config_of({}))
    nodes = [Stop().with_id("Trainer")]
    with pytest.raises(KeyboardInterrupt) as caught:
        play(recording.config, recording.layout, recording.observer, nodes)
    recording.observer.conclude(caught.value)
    summary = recording.summary
    assert (summary["status"], recording.states) == ("interrupted", {"Trainer": "interrupted"})
    assert "  Trainer           interrupted " in "\n".join(recording.lines)
    assert summary["error"]["component"] == "Trainer"
    assert recording.kinds() == [EventKind.STARTED, EventKind.FAILED]
    assert recording.last(EventKind.FAILED).details["exit_code"] == 130


def test_a_summary_that_cannot_be_written_does_not_keep_the_ledger_from_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording(tmp_path, config_of({}))
    recording.observer.started("Trainer")
    shutil.rmtree(recording.files.root)
    recording.observer.finished("Trainer", State.FAILED, 1.0, None)
    (note,) = recording.observer.summary.notes
    assert note.endswith(
        "summary.json cannot be written (No such file or directory) and is out of date"
    )
    recording.observer.conclude(OSError(errno.ENOSPC, "No space left on device", "/out/x"))
    assert not recording.files.summary.exists()
    assert "The summary could not be written" in caplog.text
    failed = recording.last(EventKind.FAILED)
    assert failed.message.startswith("Trainer: the disk is full (/out/x: ")
    assert failed.details["exit_code"] == 1
