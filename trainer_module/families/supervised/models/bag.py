"""A linear model on TF-IDF, or dense layers on sums of vectors of its terms.

The linear one is the baseline that is hard to beat on short texts (Wang and Manning, 2012,
"Baselines and Bigrams", ACL), the other one fastText's (Joulin et al., 2016, arXiv:1607.01759).
"""

from __future__ import annotations

import tf_keras

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families.supervised.models import layers
from trainer_module.features.text.layers import sum_of_terms
from trainer_module.features.text.text import WIDER
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import undemanding_models


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model: logits of the terms, and of what all columns are together.

    Raises:
      TrainingError: no column is text.
    """
    if not problem.of_kind("text"):
        raise TrainingError(
            "model 'bag' needs text, but no column is or was found to be; give one {type: text}, "
            f"or use {enumerate_names(undemanding_models(), 'or')}."
        )
    inputs = problem.make_inputs()
    bags = [feature for feature in problem.features if feature.is_bag]
    others = [feature for feature in problem.features if not feature.is_bag]
    logits = [
        sum_of_terms(bag, inputs[bag.name], problem.output_units, "wide", "zeros") for bag in bags
    ]
    if others or settings.hidden_units:
        encoded = layers.encode(others, inputs, settings.embedding_size)
        if settings.hidden_units:
            size = WIDER * settings.embedding_size
            encoded += [sum_of_terms(bag, inputs[bag.name], size, "embedding") for bag in bags]
        hidden = layers.hidden_layers(layers.concatenate(encoded), settings)
        logits.append(tf_keras.layers.Dense(problem.output_units, name="deep")(hidden))
    total = tf_keras.layers.Add()(logits) if len(logits) > 1 else logits[0]
    return tf_keras.Model(inputs, problem.make_activation()(total), name="bag")
