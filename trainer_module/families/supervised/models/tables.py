"""The networks of tables: dense layers, Wide & Deep, and the default, an ensemble in one network.

`wide_deep`: Cheng et al., 2016, "Wide & Deep Learning for Recommender Systems", arXiv:1606.07792.

`tabular`: RealMLP's scaling and embedding of numbers (Holzmueller et al., 2024, "Better by
Default", arXiv:2407.04491) before TabM-mini's members (Gorishniy et al., 2024, "TabM",
arXiv:2410.24210).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.families.supervised.models import layers
from trainer_module.families.supervised.models.members import (
    MembersDense,
    MembersMean,
    NumberVectors,
)
from trainer_module.features.text.layers import sum_of_terms
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task
from trainer_module.settings.train import is_usual


def build_mlp(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model: `hidden_units` dense layers, then the output of the task."""
    inputs = problem.make_inputs()
    hidden = layers.concatenate(layers.encode(problem.features, inputs, settings.embedding_size))
    hidden = layers.hidden_layers(hidden, settings)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="mlp")


def build_wide_deep(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model: the sum of both parts' logits, then the activation."""
    inputs = problem.make_inputs()
    encoded = layers.encode(problem.features, inputs, settings.embedding_size)
    deep = layers.hidden_layers(layers.concatenate(encoded), settings)
    units = problem.output_units
    logits = [
        tf_keras.layers.Dense(units, name=problem.layer_name("deep"))(deep),
        *_wide(problem, inputs),
    ]
    total = tf_keras.layers.Add()(logits) if len(logits) > 1 else logits[0]
    return tf_keras.Model(inputs, problem.make_activation()(total), name="wide_deep")


def _wide(problem: Problem, inputs: layers.KerasTensors) -> list[tf.Tensor]:
    """Returns logits that are linear in the numbers and in the one-hot categories."""
    logits = []
    for feature in problem.of_kind("categorical"):
        # One weight per value and unit is the product with the one-hot vector, without creating it.
        weights = tf_keras.layers.Embedding(
            feature.vocabulary_size,
            problem.output_units,
            embeddings_initializer="zeros",
            mask_zero=feature.many,
            name=feature.layer_name("wide"),
        )(inputs[feature.name])
        logits.append(tf_keras.layers.GlobalAveragePooling1D()(weights))
    logits += [
        sum_of_terms(text, inputs[text.name], problem.output_units, "wide", "zeros")
        for text in problem.of_kind("text")
        if text.is_bag
    ]
    if numbers := problem.of_kind("numeric"):
        joined = layers.concatenate([inputs[feature.name] for feature in numbers])
        logits.append(
            tf_keras.layers.Dense(problem.output_units, name=problem.layer_name("wide"))(joined)
        )
    return logits


USUAL_QUARTILES = np.array([[-3.0], [-0.6745], [0.0], [0.6745], [3.0]])
"""The quartiles of z-scores, for a train split that has not been measured."""

TEXT_DROPOUT = 0.5
"""The dropout of a text's vector, which has many more weights than other columns."""


def build_tabular(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model: the mean of `members` networks of `hidden_units` layers.

    Raises:
      TrainingError: there are no hidden units.
    """
    if not settings.hidden_units:
        raise TrainingError(
            "model 'tabular' needs dense layers, but model.hidden_units is empty; give it at least "
            "one number, such as [128]"
        )
    inputs = problem.make_inputs()
    hidden = layers.concatenate(_encode(problem, inputs, settings))
    for units in settings.hidden_units:
        hidden = MembersDense(settings.networks, units)(hidden)
        if settings.dropout:
            # All members drop the same units: drawing them for each takes as long as the layer.
            hidden = tf_keras.layers.Dropout(settings.dropout, (None, 1, None))(hidden)
    scale, shift = _spread_scale(problem), problem.class_shift
    mean = MembersMean(
        problem.output_units, problem.task, scale, shift, name=problem.layer_name("output")
    )(hidden)
    return tf_keras.Model(
        inputs, problem.make_activation()(mean), name=problem.layer_name("tabular")
    )


def _spread_scale(problem: Problem) -> float | None:
    """Returns the scale of the output if the members can learn independently by the loss, else
    None.
    """
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
    vectors = NumberVectors(medians.tolist(), scales.tolist(), name=problem.layer_name("numbers"))
    return [vectors(layers.concatenate(flat)), *encoded]


def _robust(
    problem: Problem, numbers: tuple[TransformedFeature, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns medians and reciprocal interquartile ranges.

    If an interquartile range is 0, half of the range replaces it.
    """
    measured = [
        problem.quartiles.get(feature.name, np.repeat(USUAL_QUARTILES, size, axis=1))
        for feature in numbers
        if (size := int(np.prod(feature.shape)))
    ]
    least, low, medians, high, largest = np.concatenate(measured, axis=1)
    widths = np.where(high > low, high - low, (largest - least) / 2)
    return medians, np.divide(1, widths, out=np.zeros_like(widths), where=widths > 0)
