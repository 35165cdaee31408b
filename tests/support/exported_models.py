"""Exported models that no pipeline has trained: what a conversion reads of one, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.export.interface import INTERFACE_FILE, ModelInterface, read_interface
from trainer_module.export.saving import (
    FROM_TRANSFORMED_SIGNATURE,
    describe_features,
    numeric_signature,
)
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, TrainerSettings
from trainer_module.settings.model import load_builder

ROWS = 40


def make_problem(
    task: Any, features: tuple[TransformedFeature, ...], classes: tuple[str, ...] = ()
) -> Problem:
    """A problem whose numbers are spread as a sample's are."""
    quartiles = {
        feature.name: np.tile(np.float32([[-3], [-1], [0], [1], [3]]), (1, feature.shape[0]))
        for feature in features
        if feature.kind == "numeric"
    }
    task = TrainerSettings.model_validate({"label": "y", "task": task}).target
    return Problem(task, "y", classes, features, quartiles=quartiles)


def build(kind: str, problem: Problem, **model: Any) -> tf_keras.Model:
    """A model of the zoo with random weights."""
    tf_keras.utils.set_random_seed(5)
    settings = ModelSettings.model_validate({"kind": kind, "hidden_units": [8], **model})
    return load_builder(kind)(problem, settings)


def export(model: Any, problem: Problem, folder: Path) -> Path:
    """Writes the model with the signature that takes transformed features."""
    module = tf.Module()
    module.model = model
    signature = numeric_signature(
        lambda features: (model(features, training=False), {}), problem, ModelSettings()
    )
    tf.saved_model.save(module, str(folder), signatures={FROM_TRANSFORMED_SIGNATURE: signature})
    interface = ModelInterface(
        (), "y", "string", problem.target.kind, None, problem.classes, describe_features(problem)
    )
    path = folder / INTERFACE_FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(interface.to_json())
    return folder


def make_sample(problem: Problem, rows: int = ROWS) -> dict[str, np.ndarray]:
    """Transformed examples: indices within the vocabulary, other numbers as they fall."""
    random, sample = np.random.default_rng(3), {}
    for feature in problem.features:
        shape = (rows, *feature.shape)
        if feature.vocabulary_size:
            values = random.integers(0, feature.vocabulary_size, shape)
            values[:, 0] = np.maximum(values[:, 0], 1)
            if feature.is_bag:
                values = values.astype(np.float32)
                values[..., 1] = random.uniform(size=shape[:-1])
        else:
            values = random.normal(size=shape).astype(np.float32)
        sample[feature.name] = values
    return sample


def ask(folder: Path, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What TensorFlow gives for features by their names."""
    inputs = read_interface(folder).features
    loaded = tf.saved_model.load(str(folder))
    tensors = {feature.request: tf.constant(features[feature.name]) for feature in inputs}
    found = loaded.signatures[FROM_TRANSFORMED_SIGNATURE](**tensors)
    return {name: value.numpy() for name, value in found.items()}
