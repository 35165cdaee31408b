"""The encoder, of Keras's own layers alone: what is saved of it loads without any code of ours."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.models.bert.shape import BertShape
from trainer_module.settings.model import POOLER

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
    """The tokens of all texts, of which only the first has its first token, and each one's text."""
    parts = [tokens[0], *(text[:, 1:] for text in tokens[1:])]
    types = [
        tf.fill(tf.shape(part), min(place, token_types - 1)) for place, part in enumerate(parts)
    ]
    if len(parts) == 1:
        return parts[0], types[0]
    return tf_keras.layers.Concatenate()(parts), tf_keras.layers.Concatenate()(types)


def _embed(ids: tf.Tensor, types: tf.Tensor, is_token: tf.Tensor, shape: BertShape) -> tf.Tensor:
    """The sum of the vectors of the piece, of its place and of the text it is in."""
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
    """A new one for each layer: one that is used twice gives the same numbers."""
    return tf_keras.initializers.TruncatedNormal(stddev=DEVIATION)
