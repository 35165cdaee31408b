"""Results of components are read from their artifacts, in one line each."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tfx.dsl.components.base.base_node import BaseNode

from components.pusher.versions import list_versions
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.summary import State
from tests.support.artifact_reading import Reading, config_of
from tests.support.evaluation_artifacts import Evaluations
from tests.support.small_components import TRAINED, Train, checks, play, training

DRIFT = {"columns": {"side": {"infinity_norm": 0.2}}}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path / "output", "read")
    found.root.mkdir(parents=True)
    return found


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


def test_anomalies_and_drift_are_separate(layout: Layout) -> None:
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


def test_model_that_is_not_blessed_is_not_pushed(layout: Layout, evaluations: Evaluations) -> None:
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


def test_component_that_did_not_run_has_no_results(layout: Layout) -> None:
    reading = read(layout, [Train().with_id("Trainer")])
    results = reading.results
    assert results.outputs("Evaluator", "evaluation") == []
    assert results.outputs("Trainer", "no such key") == []
    assert (results.evaluation(), results.pushed_version()) == (None, None)
    assert (results.examples_per_split(), results.anomalies()) == ({}, [])
