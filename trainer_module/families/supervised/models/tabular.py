"""The default for tables: an ensemble in one network, over numbers as vectors.

RealMLP's scaling and embedding of numbers (Holzmueller et al., 2024, "Better by Default",
arXiv:2407.04491) before TabM-mini's members (Gorishniy et al., 2024, "TabM", arXiv:2410.24210).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.models import layers
from trainer_module.families.supervised.models.members import (
    MembersDense,
    MembersMean,
    NumberVectors,
)
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task
from trainer_module.settings.train import is_usual

USUAL_QUARTILES = np.array([[-3.0], [-0.6745], [0.0], [0.6745], [3.0]])
"""Of z-scores, where the train split has not been measured."""

TEXT_DROPOUT = 0.5
"""Of the vector of a text, which has many more weights behind it than other columns have."""


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model: `members` of `hidden_units` dense layers each, and their mean."""
    inputs = problem.make_inputs()
    hidden = layers.concatenate(_encode(problem, inputs, settings))
    for units in settings.hidden_units:
        hidden = MembersDense(settings.members, units)(hidden)
        if settings.dropout:
            # What is left out is left out for all members: drawing it for each takes as long as
            # the layer.
            hidden = tf_keras.layers.Dropout(settings.dropout, (None, 1, None))(hidden)
    scale, shift = _spread_scale(problem), problem.class_shift
    mean = MembersMean(problem.output_units, problem.task, scale, shift, name="output")(hidden)
    return tf_keras.Model(inputs, problem.make_activation()(mean), name="tabular")


def _spread_scale(problem: Problem) -> float | None:
    """What the output is scaled by, where the loss is one that the members can learn alone by."""
    is_plain = problem.target.kind == problem.task and is_usual(problem.loss, problem.target.kind)
    if problem.task is not Task.REGRESSION:
        return 1.0 if is_plain else None
    return problem.label_deviation if is_plain and problem.output_units == 1 else None


def _encode(
    problem: Problem, inputs: layers.KerasTensors, settings: ModelSettings
) -> list[tf.Tensor]:
    numbers = problem.of_kind("numeric")
    others = [feature for feature in problem.features if feature.kind != "numeric"]
    encoded = layers.encode(others, inputs, settings.embedding_size)
    if settings.dropout:
        encoded = [
            tf_keras.layers.Dropout(TEXT_DROPOUT)(vector) if feature.is_bag else vector
            for feature, vector in zip(others, encoded, strict=True)
        ]
    if not numbers:
        return encoded
    flat = layers.encode(numbers, inputs, settings.embedding_size)
    medians, scales = _robust(problem, numbers)
    vectors = NumberVectors(medians.tolist(), scales.tolist(), name="numbers")
    return [vectors(layers.concatenate(flat)), *encoded]


def _robust(
    problem: Problem, numbers: tuple[TransformedFeature, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Medians, and the reciprocals of the middle half's widths; half the range where that is 0."""
    measured = [
        problem.quartiles.get(feature.name, np.repeat(USUAL_QUARTILES, size, axis=1))
        for feature in numbers
        if (size := int(np.prod(feature.shape)))
    ]
    least, low, medians, high, largest = np.concatenate(measured, axis=1)
    widths = np.where(high > low, high - low, (largest - least) / 2)
    return medians, np.divide(1, widths, out=np.zeros_like(widths), where=widths > 0)
