"""What a run left behind, read back from its artifacts and said in one line a component."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tfx.dsl.components.base.base_node import BaseNode

from components.pusher.versions import list_versions
from pipeline.config.settings import PipelineConfig
from pipeline.ingestion import make_example_gen
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import connection_config
from pipeline.records.summary import RunSummary, State
from pipeline.run_context import resolve_run
from pipeline.runs.artifact_results import ArtifactResults
from tests.support.evaluation_artifacts import Evaluations
from tests.support.small_components import TRAINED, Train, checks, play, training

pytestmark = pytest.mark.slow

DRIFT = {"columns": {"side": {"infinity_norm": 0.2}}}


class Reading:
    """Reads what each component left as soon as it has ended."""

    def __init__(self, config: PipelineConfig, layout: Layout) -> None:
        connection = connection_config(config.metadata, layout)
        self.results = ArtifactResults(connection, config, EventLog(layout.event_log))
        self.summary = RunSummary(
            run_id="run 1", pipeline=config.name, started="now", strategy="default"
        )
        self.lines: dict[str, tuple[State, str]] = {}

    def started(self, component: str) -> None:
        del component

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        del seconds
        self.lines[component] = self.results.read(component, state, execution, self.summary)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path / "output", "read")
    found.root.mkdir(parents=True)
    return found


def config_of(**sections: Any) -> PipelineConfig:
    data = {"format": "csv", "path": "nowhere.csv"}
    raw = {"name": "read", "data": data, "task": "binary", "on_anomaly": "warn", **sections}
    return PipelineConfig.model_validate(raw)


def read(
    layout: Layout,
    nodes: Sequence[BaseNode],
    config: PipelineConfig | None = None,
    run_id: str = "run 1",
) -> Reading:
    """Plays a run and reads it."""
    config = config or config_of()
    reading = Reading(config, layout)
    play(config, layout, reading, nodes, run_id)
    return reading


def test_examples_are_counted_by_split(layout: Layout) -> None:
    reading = read(layout, checks(config_of(), train=1234, evaluation=20))
    assert reading.summary.examples == {"train": 1234, "eval": 20}
    assert reading.lines["StatisticsGen"] == (State.RAN, "train 1,234, eval 20")
    assert reading.lines["SchemaGen"] == (State.RAN, "")
    assert reading.results.examples_uri().startswith(layout.artifacts)
    assert Path(reading.results.examples_uri()).is_dir()


def test_what_was_done_to_pictures_is_told_by_a_cached_rerun_too(
    layout: Layout, tmp_path: Path
) -> None:
    for number in range(40):
        path = tmp_path / "photos" / f"class{number % 2}" / f"{number}.gif"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2), number).save(path)
    (tmp_path / "photos" / "class1" / "notes.txt").touch()
    data = {"format": "images", "path": str(tmp_path / "photos")}
    config = config_of(data=data)
    context = resolve_run(config, layout)
    location, ingestion = context.location, context.ingestion
    for run_id, state in (("run 1", State.RAN), ("run 2", State.CACHED)):
        nodes = [make_example_gen(config.data, location, ingestion)]
        reading = read(layout, nodes, config, run_id)
        stray, converted = reading.summary.notes
        assert stray.startswith("1 file left out, without a picture's extension: ")
        assert converted.startswith("40 pictures were converted to PNG")
        assert reading.lines["ExampleGen"] == (state, f"warning: {stray} (and 1 more)")


def test_data_as_usual_is_not_worth_a_word(layout: Layout) -> None:
    config = config_of(drift=DRIFT)
    reading = read(layout, checks(config, before=100), config)
    assert reading.lines["ExampleValidator"] == (State.RAN, "")
    assert (reading.summary.anomalies, reading.summary.drift) == ([], [])


def test_anomalies_and_drift_are_told_apart(layout: Layout) -> None:
    config = config_of(drift=DRIFT)
    reading = read(layout, checks(config, before=100, south=0.9, east=5), config)
    (anomaly,), (drift,) = reading.summary.anomalies, reading.summary.drift
    assert anomaly.startswith("train split, side: ")
    assert "east" in anomaly
    assert drift.startswith("train split, side: ")
    assert "by at most 0.2" in drift
    state, line = reading.lines["ExampleValidator"]
    assert state is State.RAN
    assert line == f"warning: {drift} (and 1 more)"


def test_one_anomaly_is_the_whole_line(layout: Layout) -> None:
    reading = read(layout, checks(config_of(), east=5))
    (anomaly,) = reading.summary.anomalies
    assert reading.lines["ExampleValidator"][1] == f"warning: {anomaly}"
    assert reading.summary.drift == []


@pytest.mark.parametrize(
    ("trained", "line"),
    [
        ({}, "12 epochs, best 9; mirrored, 2 replicas; 12,346 examples/s"),
        ({"replicas": 1}, "12 epochs, best 9; mirrored, 1 replica; 12,346 examples/s"),
        ({"workers": 2}, "12 epochs, best 9; mirrored, 2 workers, 2 replicas; 12,346 examples/s"),
    ],
)
def test_training_in_one_line(layout: Layout, trained: dict[str, int], line: str) -> None:
    reading = read(layout, [Train(**trained).with_id("Trainer")])
    assert reading.lines["Trainer"] == (State.RAN, line)
    assert reading.summary.training == TRAINED | trained
    assert reading.summary.strategy == "mirrored"
    assert reading.summary.replicas == trained.get("replicas", 2)


@pytest.mark.parametrize(
    ("members", "line"),
    [
        ("extra linear", "2 members; mirrored, 2 replicas"),
        ("tabular linear", "12 epochs, best 9; mirrored, 2 replicas; 12,346 examples/s"),
    ],
)
def test_an_ensemble_without_network_has_members_instead_of_epochs(
    layout: Layout, members: str, line: str
) -> None:
    reading = read(layout, [Train(members=members).with_id("Trainer")])
    assert reading.lines["Trainer"] == (State.RAN, line)


def test_a_training_without_record_leaves_the_summary_alone(layout: Layout) -> None:
    reading = read(layout, [Train(recorded=0).with_id("Trainer")])
    assert reading.lines["Trainer"] == (State.RAN, "")
    assert (reading.summary.strategy, reading.summary.replicas) == ("default", None)


def test_a_pushed_model_is_found_where_it_serves(layout: Layout, evaluations: Evaluations) -> None:
    kept = evaluations.kept
    reading = read(layout, training(layout, kept.uri, True), kept.config)
    (version,) = list_versions(Path(layout.serving))
    assert reading.lines["Evaluator"] == (State.RAN, "blessed")
    assert reading.lines["Pusher"] == (State.RAN, "")
    assert reading.summary.pushed == str(version)
    pushed = reading.results.pushed_version()
    assert pushed is not None
    assert pushed.destination == str(version)
    assert (pushed.archive / "saved_model.pb").read_bytes() == b"graph"


def test_reading_a_cached_push_writes_nothing(layout: Layout, evaluations: Evaluations) -> None:
    kept = evaluations.kept
    read(layout, training(layout, kept.uri, True), kept.config)
    (version,) = list_versions(Path(layout.serving))
    shutil.rmtree(version)
    reading = read(layout, training(layout, kept.uri, True), kept.config, "run 2")
    assert reading.lines["Pusher"] == (State.CACHED, "")
    assert reading.summary.pushed == str(version)
    assert not version.exists()


def test_what_is_not_blessed_is_not_pushed(layout: Layout, evaluations: Evaluations) -> None:
    missed = evaluations.missed
    reading = read(layout, training(layout, missed.uri, False), missed.config)
    summary = reading.summary
    assert reading.lines["Evaluator"] == (State.RAN, "not blessed")
    assert reading.lines["Pusher"] == (State.SKIPPED, "the model is not blessed")
    assert (summary.blessed, summary.pushed) == (False, None)
    assert "auc is 0.5, below the threshold of 0.8" in (summary.reason or "")
    assert summary.metrics["accuracy"].ok
    assert not summary.metrics["recall"].ok
    assert summary.slices["plan=gold"]["example_count"] == 8
    assert reading.results.pushed_version() is None


def test_a_withdrawn_model_stays_out_however_blessed(
    layout: Layout, evaluations: Evaluations
) -> None:
    kept = evaluations.kept
    reading = read(layout, training(layout, kept.uri, True, withdrawn=1), kept.config)
    assert reading.lines["Pusher"] == (State.SKIPPED, "the model was withdrawn")
    assert reading.summary.blessed
    assert (reading.summary.pushed, reading.summary.reason) == (None, "the model was withdrawn")
    assert list_versions(Path(layout.serving)) == []


def test_what_did_not_run_has_left_nothing(layout: Layout) -> None:
    reading = read(layout, [Train().with_id("Trainer")])
    results = reading.results
    assert results.outputs("Evaluator", "evaluation") == []
    assert results.outputs("Trainer", "no such key") == []
    assert (results.evaluation(), results.pushed_version()) == (None, None)
    assert (results.examples_per_split(), results.anomalies()) == ({}, [])
