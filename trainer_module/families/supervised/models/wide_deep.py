"""Wide & Deep: a linear model that memorises and dense layers that generalise, trained as one.

Cheng et al., 2016, "Wide & Deep Learning for Recommender Systems", arXiv:1606.07792.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.models import layers
from trainer_module.features.text.layers import sum_of_terms
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model: the logits of both parts added, then the activation of the task."""
    inputs = problem.make_inputs()
    encoded = layers.encode(problem.features, inputs, settings.embedding_size)
    deep = layers.hidden_layers(layers.concatenate(encoded), settings)
    units = problem.output_units
    logits = [tf_keras.layers.Dense(units, name="deep")(deep), *_wide(problem, inputs)]
    total = tf_keras.layers.Add()(logits) if len(logits) > 1 else logits[0]
    return tf_keras.Model(inputs, problem.make_activation()(total), name="wide_deep")


def _wide(problem: Problem, inputs: layers.KerasTensors) -> list[tf.Tensor]:
    """Logits that are linear in the numbers and in the one-hot categories."""
    logits = []
    for feature in problem.of_kind("categorical"):
        # One weight per value and unit: a product with the one-hot vector, without making it.
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
        logits.append(tf_keras.layers.Dense(problem.output_units, name="wide")(joined))
    return logits
