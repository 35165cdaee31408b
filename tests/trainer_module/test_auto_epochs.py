"""How long a training is where the data decides, and that it gets there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from pydantic import ValidationError

from tests.support.trainer_data import Transformed, read_record
from trainer_module.errors import TrainingError
from trainer_module.settings import EarlyStoppingSettings, TrainSettings
from trainer_module.settings.train import (
    choose_batch_size,
    choose_epochs,
    choose_rounds,
    choose_stopping,
)
from trainer_module.trainer import run_fn


def settings_of(**train: Any) -> TrainSettings:
    return TrainSettings.model_validate(train)


@pytest.mark.parametrize(
    ("examples", "replicas", "batch_size", "rounds", "epochs", "patience"),
    [
        (8, 1, 8, 100, 80, 5),
        (120, 1, 8, 7, 77, 5),
        (400, 4, 8, 8, 80, 5),
        (24_000, 1, 64, 1, 22, 5),
        (240_000, 8, 64, 1, 18, 5),
    ],
)
def test_batch_size_and_epochs_follow_the_number_of_examples(
    examples: int, replicas: int, batch_size: int, rounds: int, epochs: int, patience: int
) -> None:
    train = settings_of()
    assert choose_batch_size(train, examples, replicas) == batch_size
    steps = math.ceil(examples / (batch_size * replicas))
    assert choose_rounds(train, steps) == rounds
    steps = math.ceil(examples * rounds / (batch_size * replicas))
    assert choose_epochs(train, steps) == epochs
    assert choose_stopping(train, steps) == EarlyStoppingSettings(patience=patience)


def test_configured_values_are_kept() -> None:
    given = settings_of(epochs=10, batch_size=100)
    assert choose_batch_size(given, 20, 1) == 100
    shared = settings_of(batch_size={"global": 200}, steps_per_epoch=50)
    assert choose_batch_size(shared, 20, 8) == 25
    assert choose_rounds(shared, 1) == 1
    assert choose_epochs(shared, 50) == 160
    with pytest.raises(TrainingError, match=r"global is 200.* 198 or 201"):
        choose_batch_size(shared, 20, 3)
    with pytest.raises(ValidationError, match="at_most and global"):
        settings_of(batch_size={"global": 200, "at_most": 8})
    assert choose_rounds(given, 1) == 1
    assert choose_epochs(given, 1) == 10
    assert choose_stopping(given, 1) is None
    patient = {"patience": 2}
    for epochs in (10, "auto"):
        train = settings_of(epochs=epochs, early_stopping=patient)
        assert choose_stopping(train, 1) == EarlyStoppingSettings(patience=2)


@pytest.mark.parametrize("off", [False, None])
def test_early_stopping_is_switched_off(off: bool | None) -> None:
    train = settings_of(early_stopping=off)
    assert choose_stopping(train, 1) is None
    again = TrainSettings.model_validate(json.loads(train.model_dump_json()))
    assert choose_stopping(again, 1) is None, "as it travels to Trainer"
    assert choose_stopping(settings_of(early_stopping=True), 1) == EarlyStoppingSettings()
    with pytest.raises(ValidationError):
        settings_of(early_stopping="never")


@pytest.mark.parametrize(
    ("rate", "epochs"),
    [
        ({"schedule": "cosine", "initial": 0.1}, 10),
        ({"schedule": "cosine", "initial": 0.1, "warmup_epochs": 30}, 60),
        ({"schedule": "steps", "values": [0.1, 0.01], "boundaries": [12]}, 13),
    ],
)
def test_scheduled_learning_rate_reaches_its_end(rate: dict[str, Any], epochs: int) -> None:
    train = settings_of(learning_rate=rate)
    assert choose_epochs(train, 10_000) == epochs
    assert choose_stopping(train, 10_000) is None


@pytest.mark.slow
def test_eval_split_does_not_choose_the_epoch(houses: Transformed, tmp_path: Path) -> None:
    free = {"epochs": 3, "batch_size": 16, "early_stopping": {"patience": 1}}
    # A model that is better for these examples is worse for all others.
    label = houses.settings.label
    others = tmp_path / "others.gz"
    with tf.io.TFRecordWriter(str(others), "GZIP") as writer:
        for record in tf.data.TFRecordDataset(tf.io.gfile.glob(houses.files("eval")), "GZIP"):
            example = tf.train.Example.FromString(record.numpy())
            values = example.features.feature[label].float_list.value
            values[:] = [-10 * value for value in values]
            writer.write(example.SerializeToString())
    found = []
    for files in (houses.files("eval"), [str(others)]):
        fn_args = houses.fn_args(tmp_path / str(len(found)), train=free)
        fn_args.eval_files = files
        run_fn(fn_args)
        found.append(read_record(fn_args.serving_model_dir))
    assert found[0]["history"]["val_loss"] != found[1]["history"]["val_loss"]
    assert found[0]["history"]["loss"] == found[1]["history"]["loss"]
    assert found[0]["best_epoch"] == found[1]["best_epoch"] == found[0]["epochs"]
