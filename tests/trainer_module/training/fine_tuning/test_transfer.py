"""What fine-tuning is for: with few pictures it beats the same network from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from tests.support.pictures import SIDE, open_on
from tests.support.trainings import train_whole
from trainer_module.data.examples import Content, Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.families.supervised.models.pretrained_parts import network_of
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings
from trainer_module.training.plan import TrainingResult

KIND, HELD_OUT, FEW, EPOCHS = "mobilenet_v3_small", 400, 10, 10
IMAGE = TransformedFeature("image", "image", (SIDE, SIDE, 1))
DIGITS = load_digits()
ORDER = np.random.default_rng(0).permutation(len(DIGITS.target))


def train(
    directory: Path, rows: np.ndarray, classes: int, model: dict[str, Any], epochs: int, batch: int
) -> TrainingResult:
    """The finished training on some of scikit-learn's digits; those held out are looked at."""
    settings = TrainerSettings.model_validate(
        {
            "label": "y",
            "task": "multiclass",
            "features": {"image": {"type": "image", "height": SIDE, "width": SIDE, "channels": 1}},
            "model": {"kind": KIND, **model},
            "train": {"learning_rate": 0.003, "epochs": epochs},
        }
    )
    names = tuple(map(str, range(classes)))
    problem = Problem(settings.target, "y", names, (IMAGE,))

    def split(rows: np.ndarray, batch: int, seed: int | None = None) -> Split:
        label = DIGITS.target[rows]
        rows, label = rows[label < classes], label[label < classes]
        pixels = tf.image.resize(DIGITS.images[rows, :, :, None] / 16, [SIDE, SIDE])
        tensors = {"image": pixels, "y": tf.constant(label[:, None], tf.int64)}
        content = Content(np.ones(len(rows), bool), tensors)
        content.add_classes(label, np.ones(len(rows)))
        return Split(Reader([], {}, problem), content, batch, shuffle_seed=seed)

    learnt, held_out = split(rows, batch, 1), split(ORDER[:HELD_OUT], HELD_OUT)
    return train_whole(open_on(directory, settings, TrainingData(problem, learnt, held_out)))


@pytest.mark.slow
def test_a_network_that_knows_eight_digits_learns_ten_from_few(tmp_path: Path) -> None:
    """Of 10 pictures each, in as many epochs as the network from scratch has."""
    rows = ORDER[HELD_OUT:]
    teacher = train(tmp_path / "eight", rows, 8, {}, epochs=4, batch=64)
    weights = str(tmp_path / "eight.weights.h5")
    network_of(teacher.model, KIND).save_weights(weights)
    few = np.concatenate([rows[DIGITS.target[rows] == digit][:FEW] for digit in range(10)])
    transfer = {"unfreeze_after": 4, "unfreeze_layers": 60, "learning_rate": 0.001}
    begun = {"weights": weights, "transfer": transfer}
    tuned = train(tmp_path / "tuned", few, 10, begun, EPOCHS, 32).measured
    scratch = train(tmp_path / "scratch", few, 10, {}, EPOCHS, 32).measured
    assert tuned["accuracy"] > scratch["accuracy"] + 0.1
    assert tuned["accuracy"] > 0.75
    assert tuned["loss"] < 0.7 * scratch["loss"]
