"""What a model answers: what the task predicts, an embedding beside it, or that alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import EMBEDDING, POOLER, PREDICTION

Tensors = dict[str, tf.Tensor]
Apply = Callable[[Mapping[str, tf.Tensor]], tuple[tf.Tensor, Tensors]]
"""From transformed features to the model's output, and what is answered beside what it predicts."""


def apply_with_outputs(model: Any, problem: Problem, settings: ModelSettings) -> Apply:
    """Calls a model as `model.outputs` asks for.

    Args:
      model: from transformed features to the output of the task; has an argument `training`. It is
        a Keras model of the zoo where the outputs have an embedding.
      problem: for the names of the columns.
      settings: of the model.

    Returns:
      A function of features by name; `embedding` [batch, n] float32 is what it gives beside.
    """
    if EMBEDDING not in settings.outputs:
        return lambda features: (model(features, training=False), {})
    both = tf_keras.Model(model.input, [model.output, _embedding_of(model, problem, settings.kind)])

    def apply(features: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, Tensors]:
        output, embedding = both({name: features[name] for name in model.input}, training=False)
        return output, {EMBEDDING: tf.cast(embedding, tf.float32)}

    return apply


def served(
    output: tf.Tensor, beside: Mapping[str, tf.Tensor], problem: Problem, settings: ModelSettings
) -> Tensors:
    """What clients read, by name, [batch, ...] each.

    Args:
      output: of the model.
      beside: what else it gives.
      problem: for what is made of the output.
      settings: of the model, whose `outputs` say what is answered.
    """
    predicted = problem.target.served(output, problem) if PREDICTION in settings.outputs else {}
    return {**predicted, **beside}


def _embedding_of(model: tf_keras.Model, problem: Problem, kind: str) -> tf.Tensor:
    """What the network makes of the texts, or of each picture, one after the other: [batch, n]."""
    if kind == "bert":
        return model.get_layer(POOLER).output
    names = [image.layer_name("features") for image in problem.of_kind("image")]
    parts = [model.get_layer(name).output for name in names]
    return tf_keras.layers.Concatenate()(parts) if len(parts) > 1 else parts[0]
