"""Small pictures, and the training of a network on them, without Transform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.data.augmentation import make_augmentation
from trainer_module.data.examples import Content, Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.runtime import WorkerContext
from trainer_module.settings import TrainerSettings
from trainer_module.trainer import open_strategy
from trainer_module.training.plan import TrainingInputs

SIDE, ROWS, BATCH = 32, 16, 8
CLASSES = ("dark", "light")
PHOTO = TransformedFeature("photo", "image", (SIDE, SIDE, 1))
AMOUNT = TransformedFeature("amount", "numeric", (2,))


def make_split(problem: Problem, seed: int, replicas: int, **options: Any) -> Split:
    """Grey noise, dark or light, beside a random number."""
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, (ROWS, 1))
    noise = random.random((ROWS, SIDE, SIDE, 1))
    tensors = {
        "photo": tf.constant(0.4 * label[:, :, None, None] + 0.6 * noise, tf.float32),
        "amount": tf.constant(random.normal(size=(ROWS, 2)), tf.float32),
        "y": tf.constant(label),
    }
    content = Content(np.ones(ROWS, bool), tensors)
    content.add_classes(label.ravel(), np.ones(ROWS))
    return Split(Reader([], {}, problem), content, BATCH // replicas, replicas, **options)


def prepare(
    directory: Path,
    model: dict[str, Any],
    replicas: int = 1,
    backup_steps: int | None = None,
    **train: Any,
) -> TrainingInputs:
    """What a training is given; `directory` keeps the backup."""
    settings = TrainerSettings.model_validate(
        {
            "label": "y",
            "task": "binary",
            "features": {"photo": {"type": "image", "height": SIDE, "width": SIDE}},
            "model": model,
            "train": {"learning_rate": 0.01, "epochs": 3, **train},
        }
    )
    problem = Problem(settings.target, "y", CLASSES, (AMOUNT, PHOTO))
    augmentation = make_augmentation(settings.train.augment, problem, 1)
    learnt = make_split(problem, 1, replicas, shuffle_seed=1, augmentation=augmentation)
    data = TrainingData(problem, learnt, make_split(problem, 2, replicas))
    return open_on(directory, settings, data, replicas, backup_steps)


def open_on(
    directory: Path,
    settings: TrainerSettings,
    data: TrainingData,
    replicas: int = 1,
    backup_steps: int | None = None,
) -> TrainingInputs:
    """What a training on some data is given."""
    strategy = open_strategy(settings)
    assert strategy.num_replicas_in_sync == replicas
    runtime = WorkerContext(backup_directory=str(directory / "backup"), backup_steps=backup_steps)
    return TrainingInputs(settings, runtime, strategy, str(directory / "run"), None, data)
