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
    """Returns the uncompiled model.

    The last layers read the vector of the first token, and the features that are not text.

    Raises:
      TrainingError: there is no text, the texts are too long, or the weights cannot be used.
    """
    texts = problem.of_kind("text")
    if not texts:
        content = ", ".join(f"{f.name} ({f.kind})" for f in problem.features)
        raise TrainingError(
            f"model 'bert' needs a text feature, but the data has {content or 'no feature'}; set "
            "{type: text} for a column, or use the model "
            f"{enumerate_names(unrestricted_models(), 'or')}."
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
    shape = (
        files.shape if files else BertShape.from_sizes(settings.size or SIZES["tiny"], vocabulary)
    )
    if vocabulary != shape.vocabulary:
        raise TrainingError(
            f"{settings.weights}: the weights have a vocabulary of {shape.vocabulary:,} pieces, "
            f"but the vocabulary of column {texts[0].name!r} has {vocabulary:,} pieces; remove "
            f"features.{texts[0].name}.vocabulary."
        )
    # Only the first text has a first token.
    tokens = sum(text.shape[0] for text in texts) - len(texts) + 1
    if tokens > shape.positions:
        columns = enumerate_names((repr(text.name) for text in texts), "and")
        raise TrainingError(
            f"features: {columns} have up to {tokens} tokens together, but the model bert reads at "
            f"most {shape.positions}; set a smaller max_tokens."
        )
    return shape


DEVIATION = 0.02
"""The standard deviation of the truncated normal distribution of initial weights."""


def encode(
    tokens: Sequence[tf.Tensor], shape: BertShape, dropout: float
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Encodes texts, which are concatenated as the pairs of sentences in the paper.

    Args:
      tokens: the Keras inputs of the texts, [batch, n] int64 each, padded with 0.
      shape: the sizes of the network.
      dropout: the dropout rate of activations and of attention weights.

    Returns:
      The vectors of the tokens, [batch, n, hidden], before the first block and after each block;
      and the pooled vector of the first token, [batch, hidden].
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
    """Returns the concatenated tokens, and the index of the text of each token.

    The first token is included only for the first text.
    """
    parts = [tokens[0], *(text[:, 1:] for text in tokens[1:])]
    types = [
        tf.fill(tf.shape(part), min(index, token_types - 1)) for index, part in enumerate(parts)
    ]
    if len(parts) == 1:
        return parts[0], types[0]
    return tf_keras.layers.Concatenate()(parts), tf_keras.layers.Concatenate()(types)


def _embed(ids: tf.Tensor, types: tf.Tensor, is_token: tf.Tensor, shape: BertShape) -> tf.Tensor:
    """Returns the sum of the embeddings of each piece, its position and its text."""
    # Padding between two texts does not count as a position.
    positions = tf.maximum(tf.cumsum(tf.cast(is_token, tf.int32), axis=1) - 1, 0)
    embedded = [
        tf_keras.layers.Embedding(size, shape.hidden, _initializer(), name=f"bert_{name}")(indices)
        for name, size, indices in (
            ("words", shape.vocabulary, ids),
            ("positions", shape.positions, positions),
            ("types", shape.token_types, types),
        )
    ]
    return tf_keras.layers.Add()(embedded)


def _block(
    vectors: tf.Tensor, is_token: tf.Tensor, layer: int, shape: BertShape, dropout: float
) -> tf.Tensor:
    """Returns the output of a Transformer block: attention and two dense layers with residual
    connections.
    """
    name = f"layer_{layer}"
    attention = tf_keras.layers.MultiHeadAttention(
        shape.heads,
        shape.hidden // shape.heads,
        dropout=dropout,
        kernel_initializer=_initializer(),
        name=f"bert_{name}_attention",
    )
    attended = attention(vectors, vectors, attention_mask=is_token)
    attended = tf_keras.layers.Dropout(dropout)(attended)
    vectors = _normalize(tf_keras.layers.Add()([vectors, attended]), f"{name}_attention", shape)
    hidden = _dense(shape.feed_forward, f"{name}_between", "gelu")(vectors)
    output = tf_keras.layers.Dropout(dropout)(_dense(shape.hidden, f"{name}_out")(hidden))
    return _normalize(tf_keras.layers.Add()([vectors, output]), name, shape)


def _dense(units: int, name: str, activation: str | None = None) -> tf_keras.layers.Layer:
    return tf_keras.layers.Dense(
        units, activation, kernel_initializer=_initializer(), name=f"bert_{name}"
    )


def _normalize(vectors: tf.Tensor, name: str, shape: BertShape) -> tf.Tensor:
    layer = tf_keras.layers.LayerNormalization(epsilon=shape.epsilon, name=f"bert_{name}_norm")
    return layer(vectors)


def _initializer() -> tf_keras.initializers.Initializer:
    """Returns a new initializer; an initializer that is used twice would return equal weights."""
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
"""The suffixes of a block's layers in our models, by Hugging Face's names."""


def load_weights(model: tf_keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Assigns the weights of `bert_files.read_weights` to a model.

    Weights that `values` lacks, such as those of the pooler, remain unchanged. Call the function in
    the strategy's scope.
    """
    weights = {weight.name: weight for weight in weights_of(model)}
    for theirs, ours in _names(values):
        # Hugging Face's matrices are transposed, and have no separate axis for attention heads.
        value = values[theirs].T if ours.endswith("/kernel") else values[theirs]
        weights[ours].assign(value.reshape(weights[ours].shape))


def _names(values: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str]]:
    """Yields the name of each weight by Hugging Face, and the name in our models."""
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
