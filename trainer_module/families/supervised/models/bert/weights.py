"""Hugging Face's weights, put into the layers of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import tf_keras

from trainer_module.base_model import weights_of

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
