"""Values of `--set`: what a mapping replaces, and what it leaves as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig

CONFIG = """
name: trips
data: {format: csv, path: trips.csv, label: label}
task: binary
features:
  tips: {type: ignore}
  photo: {type: image, height: 28, width: 28, channels: 1}
  fare: {type: numeric, scaling: quantiles}
  type: {type: categorical}
model: {kind: mlp, hidden_units: [8]}
train: {epochs: 3, batch_size: 16}
evaluate: {thresholds: {auc: {min: 0.9}}}
"""

STEPS = "train.learning_rate={schedule: steps, values: [0.1, 0.01], boundaries: [2]}"


@pytest.fixture
def load(tmp_path: Path):
    def load_with(*overrides: str) -> PipelineConfig:
        (tmp_path / "trips.yaml").write_text(CONFIG)
        return load_config(tmp_path / "trips.yaml", overrides, check=lambda config: ())

    return load_with


def test_a_mapping_keeps_the_keys_that_it_does_not_set(load) -> None:
    config = load("features={size: {type: cross, of: [fare, tips]}, photo: {height: 64}}")
    assert config.features["tips"].type == "ignore"
    photo = config.features["photo"]
    assert (photo.type, photo.height, photo.width, photo.channels) == ("image", 64, 28, 1)
    assert set(config.features) == {"tips", "photo", "fare", "type", "size"}
    train = load("train={learning_rate: 0.5}").train
    assert (train.epochs, train.batch_size, train.learning_rate) == (3, 16, 0.5)


def test_a_mapping_of_another_kind_or_type_replaces(load) -> None:
    assert load("model={kind: linear}").model.kind == "linear"
    schedule = load(
        "train.learning_rate={schedule: cosine, initial: 0.1}", STEPS
    ).train.learning_rate
    assert schedule.values == [0.1, 0.01]
    assert load("features={fare: {type: categorical}}").features["fare"].type == "categorical"
    changed = load("features={type: {vocabulary_size: 5}}").features
    assert changed["type"].type == "categorical"
    assert changed["tips"].type == "ignore"


def test_mappings_that_mean_something_only_together_are_replaced(load) -> None:
    split = load("data={split_by: fare, splits: {train: 3, eval: 1}}", "data={format: jsonl}").data
    assert (split.format, split.split_by, split.path) == ("jsonl", "fare", "trips.csv")
    assert load("data.splits={a: 1, b: 1}", "data.splits={c: 1, d: 1}").data.splits.keys() == {
        "c",
        "d",
    }
    space = "tune.space={train.batch_size: {choice: [16, 32]}}"
    other = "tune.space={train.batch_size: {int: [8, 64]}}"
    assert set(load(space, other).tune.space["train.batch_size"].model_fields_set) == {"integers"}


def test_an_empty_mapping_clears(load) -> None:
    assert load("evaluate.thresholds={}").evaluate.thresholds == {}
