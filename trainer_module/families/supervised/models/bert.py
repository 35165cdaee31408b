"""BERT: a Transformer encoder over word pieces (Devlin et al., 2018, arXiv:1810.04805)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.base_model import weights_of
from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families.supervised.models import layers
from trainer_module.families.supervised.models.bert_files import (
    BertFiles,
    BertShape,
    read_files,
    read_weights,
)
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import POOLER, SIZES, unrestricted_models


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model; features that are no texts are joined to what the first token
    becomes.

    Raises:
      TrainingError: if there is no text, the texts are too long, or the weights cannot be used.
    """
    texts = problem.of_kind("text")
    if not texts:
        found = ", ".join(f"{f.name} ({f.kind})" for f in problem.features)
        raise TrainingError(
            f"model 'bert' needs a text feature, but the data has {found or 'no feature'}; give a "
            f"column {{type: text}}, or use {enumerate_names(unrestricted_models(), 'or')}."
        )
    files = read_files(settings.weights) if settings.weights else None
    shape = _shape(texts, settings, files)
    inputs = problem.make_inputs()
    _, pooled = encode([inputs[text.name] for text in texts], shape, settings.dropout)
    others = [feature for feature in problem.features if feature.kind != "text"]
    encoded = layers.encode(others, inputs, settings.embedding_size)
    hidden = layers.hidden_layers(layers.concatenate([pooled, *encoded]), settings)
    model = tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="bert")
    if files:
        load_weights(model, read_weights(files))
    return model


def _shape(
    texts: tuple[TransformedFeature, ...], settings: ModelSettings, files: BertFiles | None
) -> BertShape:
    vocabulary = max(text.vocabulary_size for text in texts)
    shape = files.shape if files else BertShape.of_sizes(settings.size or SIZES["tiny"], vocabulary)
    if vocabulary != shape.vocabulary:
        raise TrainingError(
            f"{settings.weights}: the weights are of {shape.vocabulary:,} pieces, but "
            f"column {texts[0].name!r} was cut into those of a vocabulary of {vocabulary:,}; leave "
            "out what features say of its vocabulary."
        )
    # Only the first text brings its first token.
    tokens = sum(text.shape[0] for text in texts) - len(texts) + 1
    if tokens > shape.positions:
        columns = enumerate_names((repr(text.name) for text in texts), "and")
        raise TrainingError(
            f"features: {columns} are up to {tokens} tokens long, but the model bert reads "
            f"{shape.positions} at most; make max_tokens smaller."
        )
    return shape


DEVIATION = 0.02
"""Of the normal distribution, cut off at twice of it, that new weights are drawn from."""


def encode(
    tokens: Sequence[tf.Tensor], shape: BertShape, dropout: float
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Reads one text, or several one after the other as the paper does a pair of sentences.

    Args:
      tokens: Keras inputs, [batch, n] int64 each, beginning with the first token; 0 is padding.
      shape: the sizes.
      dropout: share of the activations, and of what attention looks at, that training drops.

    Returns:
      The vectors of the tokens, [batch, n, hidden], before the first block and after each; and
      what the first token has become in the end, [batch, hidden].
    """
    ids, types = _join(tokens, shape.token_types)
    is_token = tf.not_equal(ids, 0)
    vectors = _embed(ids, types, is_token, shape)
    vectors = tf_keras.layers.Dropout(dropout)(_normalize(vectors, "embeddings", shape))
    states = [vectors]
    for layer in range(shape.layers):
        states.append(_block(states[-1], is_token[:, tf.newaxis], layer, shape, dropout))
    pooled = _dense(shape.hidden, POOLER.removeprefix("bert_"), "tanh")(states[-1][:, 0])
    return states, pooled


def _join(tokens: Sequence[tf.Tensor], token_types: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tokens of all texts, of which only the first has its first token, and each
    one's text.
    """
    parts = [tokens[0], *(text[:, 1:] for text in tokens[1:])]
    types = [
        tf.fill(tf.shape(part), min(place, token_types - 1)) for place, part in enumerate(parts)
    ]
    if len(parts) == 1:
        return parts[0], types[0]
    return tf_keras.layers.Concatenate()(parts), tf_keras.layers.Concatenate()(types)


def _embed(ids: tf.Tensor, types: tf.Tensor, is_token: tf.Tensor, shape: BertShape) -> tf.Tensor:
    """Returns the sum of the vectors of the piece, of its place and of the text it is in."""
    # Padding between two texts has no place of its own.
    places = tf.maximum(tf.cumsum(tf.cast(is_token, tf.int32), axis=1) - 1, 0)
    embedded = [
        tf_keras.layers.Embedding(size, shape.hidden, _initializer(), name=f"bert_{name}")(indices)
        for name, size, indices in (
            ("words", shape.vocabulary, ids),
            ("positions", shape.positions, places),
            ("types", shape.token_types, types),
        )
    ]
    return tf_keras.layers.Add()(embedded)


def _block(
    vectors: tf.Tensor, is_token: tf.Tensor, layer: int, shape: BertShape, dropout: float
) -> tf.Tensor:
    """Attention, then two dense layers for each token; what goes in is added to what comes out."""
    name = f"layer_{layer}"
    attention = tf_keras.layers.MultiHeadAttention(
        shape.heads,
        shape.hidden // shape.heads,
        dropout=dropout,
        kernel_initializer=_initializer(),
        name=f"bert_{name}_attention",
    )
    found = tf_keras.layers.Dropout(dropout)(attention(vectors, vectors, attention_mask=is_token))
    vectors = _normalize(tf_keras.layers.Add()([vectors, found]), f"{name}_attention", shape)
    between = _dense(shape.feed_forward, f"{name}_between", "gelu")(vectors)
    found = tf_keras.layers.Dropout(dropout)(_dense(shape.hidden, f"{name}_out")(between))
    return _normalize(tf_keras.layers.Add()([vectors, found]), name, shape)


def _dense(units: int, name: str, activation: str | None = None) -> tf_keras.layers.Layer:
    return tf_keras.layers.Dense(
        units, activation, kernel_initializer=_initializer(), name=f"bert_{name}"
    )


def _normalize(vectors: tf.Tensor, name: str, shape: BertShape) -> tf.Tensor:
    layer = tf_keras.layers.LayerNormalization(epsilon=shape.epsilon, name=f"bert_{name}_norm")
    return layer(vectors)


def _initializer() -> tf_keras.initializers.Initializer:
    """Returns a new one for each layer: one that is used twice gives the same numbers."""
    return tf_keras.initializers.TruncatedNormal(stddev=DEVIATION)


_BLOCK = {
    "attention.self.query": "attention/query",
    "attention.self.key": "attention/key",
    "attention.self.value": "attention/value",
    "attention.output.dense": "attention/attention_output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "between",
    "output.dense": "out",
    "output.LayerNorm": "norm",
}
"""The layers of a block: what Hugging Face calls each, and what it is called here."""


def load_weights(model: tf_keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Gives a model the weights that `files.read_weights` found; call it in the strategy's scope.

    What is not among them, as the pooler may not be, stays as it is.
    """
    weights = {weight.name: weight for weight in weights_of(model)}
    for theirs, ours in _names(values):
        # Attention has an axis for its heads, which lie side by side in a matrix.
        value = values[theirs].T if ours.endswith("/kernel") else values[theirs]
        weights[ours].assign(value.reshape(weights[ours].shape))


def _names(values: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str]]:
    """For each name of Hugging Face's, that of our weight."""
    for name in values:
        layer, _, kind = name.rpartition(".")
        is_norm = layer.endswith("LayerNorm")
        kernel = "gamma" if is_norm else "kernel"
        last = {"weight": kernel, "bias": "beta" if is_norm else "bias"}[kind]
        match layer.split("."):
            case ["embeddings", "LayerNorm"]:
                yield name, f"bert_embeddings_norm/{last}"
            case ["embeddings", table]:
                ours = {"word": "words", "position": "positions", "token_type": "types"}
                yield name, f"bert_{ours[table.removesuffix('_embeddings')]}/embeddings"
            case ["encoder", "layer", number, *rest]:
                yield name, f"bert_layer_{number}_{_BLOCK['.'.join(rest)]}/{last}"
            case _:
                yield name, f"bert_pooler/{last}"
