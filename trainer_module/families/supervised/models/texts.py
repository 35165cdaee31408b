"""The models `bag` and `text_cnn` of text.

`bag` is a linear model on TF-IDF, which few models surpass on short texts (Wang and Manning, 2012,
"Baselines and Bigrams", ACL). With dense layers, the model is similar to fastText (Joulin et al.,
2016, arXiv:1607.01759).

`text_cnn` applies convolutions to word vectors (Kim, 2014, "Convolutional Neural Networks for
Sentence Classification", arXiv:1408.5882): 100 filters each of 3, 4 and 5 words, and dropout of
0.5. Its word vectors are random at first ("CNN-rand").
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families.supervised.models import layers
from trainer_module.features.text.layers import LargestInText, sum_of_terms
from trainer_module.features.text.text import VECTOR_FACTOR
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import unrestricted_models


def build_bag(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model.

    Its logits are the linear logits of the bags, plus the logits of dense layers if the model has
    hidden units or other features.

    Raises:
      TrainingError: no column is text.
    """
    if not problem.of_kind("text"):
        raise TrainingError(
            "model 'bag' needs a column of text, but no column has type text; set {type: text} for "
            f"a column, or use the model {enumerate_names(unrestricted_models(), 'or')}."
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
            size = VECTOR_FACTOR * settings.embedding_size
            encoded += [sum_of_terms(bag, inputs[bag.name], size, "embedding") for bag in bags]
        hidden = layers.hidden_layers(layers.concatenate(encoded), settings)
        logits.append(
            tf_keras.layers.Dense(problem.output_units, name=problem.layer_name("deep"))(hidden)
        )
    total = tf_keras.layers.Add()(logits) if len(logits) > 1 else logits[0]
    return tf_keras.Model(inputs, problem.make_activation()(total), name="bag")


def build_text_cnn(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model; other columns are added after the convolutions.

    Raises:
      TrainingError: no column is text that is encoded as a sequence of tokens.
    """
    texts = [feature for feature in problem.of_kind("text") if not feature.is_bag]
    if not texts:
        raise TrainingError(
            "model 'text_cnn' needs text as a sequence of tokens; set {type: text} for a column, "
            "without encoding: bag, or use the model bag."
        )
    inputs = problem.make_inputs()
    encoded = [part for text in texts for part in _convolve(text, inputs[text.name], settings)]
    others = [feature for feature in problem.features if feature not in texts]
    encoded += layers.encode(others, inputs, settings.embedding_size)
    hidden = layers.hidden_layers(layers.concatenate(encoded), settings)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="text_cnn")


def _convolve(
    text: TransformedFeature, tokens: tf.Tensor, settings: ModelSettings
) -> list[tf.Tensor]:
    """Returns the maxima of the activations over the text, [batch, filters] for each width."""
    vectors = tf_keras.layers.Embedding(
        text.vocabulary_size, settings.embedding_size, name=text.layer_name("embedding")
    )(tokens)
    filters = settings.filters * (len(settings.widths) if len(settings.filters) == 1 else 1)
    if len(filters) != len(settings.widths):
        raise TrainingError(
            f"model 'text_cnn' has {len(settings.widths)} widths and {len(filters)} numbers of "
            "filters; give one number for all widths, or a number for each width."
        )
    activations = [
        tf_keras.layers.Conv1D(count, width, padding="same", activation="relu")(vectors)
        for count, width in zip(filters, settings.widths, strict=True)
    ]
    return [LargestInText()([values, tokens]) for values in activations]
