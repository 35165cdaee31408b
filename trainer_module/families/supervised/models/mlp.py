"""Dense layers over numbers, embedded categories and flattened images."""

from __future__ import annotations

import tf_keras

from trainer_module.families.supervised.models import layers
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model: `hidden_units` dense layers, then the output of the task."""
    inputs = problem.make_inputs()
    hidden = layers.concatenate(layers.encode(problem.features, inputs, settings.embedding_size))
    hidden = layers.hidden_layers(hidden, settings)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="mlp")
