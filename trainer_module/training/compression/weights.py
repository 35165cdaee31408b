"""Which weights of a network can be pruned, and where they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras
from tensorflow_model_optimization.python.core.quantization.keras.quantize_wrapper import (
    QuantizeWrapper,
)
from tensorflow_model_optimization.python.core.sparsity.keras.prune_registry import PruneRegistry

from trainer_module.errors import TrainingError

OWN_METHOD = "get_prunable_weights"
"""What TFMOT asks layers for that are not Keras's: a list of variables, which may be empty."""

PARTS = (tf_keras.layers.MultiHeadAttention, tf_keras.layers.RNN)
"""Layers whose weights belong to the layers in them."""

BEYOND_TFMOT: Mapping[type, Sequence[str]] = {tf_keras.layers.EinsumDense: ["kernel"]}
"""Layers that TFMOT knows as parts of others alone."""


FEW = 1000
"""Fewer numbers than that, if they are hardly a part of the network, stay whole: it misses those of
its first and last layer most, and they save nothing."""

HARDLY_A_PART = 0.01
"""Of all weights that can be pruned."""


@dataclass(frozen=True, eq=False)
class PrunableWeight:
    """A weight, and where it is."""

    layer: str
    """Its name, after that of the layer it is a part of: `attention/query`."""
    variable: tf.Variable

    @property
    def name(self) -> str:
        """For people: `dense/kernel`."""
        return f"{self.layer}/{_path(self.variable)[1]}"

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.variable.shape)


def find_weights(model: tf_keras.Model) -> list[PrunableWeight]:
    """The kernels of a network's layers, wherever they sit; biases, and what is tiny, stay whole.

    Args:
      model: that is built.

    Raises:
      TrainingError: for a layer with weights of its own, it is not known which can be pruned.
    """
    found: dict[int, PrunableWeight] = {}
    layers = list(model._flatten_layers(include_self=False, recursive=True))
    inner = {id(layer.layer) for layer in layers if isinstance(layer, QuantizeWrapper)}
    for layer in layers:
        if id(layer) in inner:
            continue  # It computes with what the wrapper makes of the weight.
        for variable in _weights_of(layer):
            name = _path(variable)[0] or layer.name
            found.setdefault(id(variable), PrunableWeight(name, variable))
    able = [weight for weight in found.values() if weight.variable.trainable]
    total = sum(weight.size for weight in able)
    return [weight for weight in able if weight.size >= min(FEW, HARDLY_A_PART * total)]


def _path(variable: tf.Variable) -> tuple[str, str]:
    """What a variable's name begins with, and its last part."""
    begin, _, last = variable.name.partition(":")[0].rpartition("/")
    return begin, last


def _weights_of(layer: tf_keras.layers.Layer) -> Iterator[Any]:
    if isinstance(layer, QuantizeWrapper):
        yield from (weight for weight, *_ in layer._weight_vars)
        return
    if hasattr(layer, OWN_METHOD):
        yield from layer.get_prunable_weights()
        return
    if isinstance(layer, (*PARTS, tf_keras.Model)):
        return
    names = _names_of(type(layer))
    if names is not None:
        yield from (getattr(layer, name) for name in names)
        return
    # What is a number, or a vector, such as a bias or a scale, is never pruned.
    unknown = [
        variable
        for variable in layer._trainable_weights
        if variable.shape.rank is None or variable.shape.rank > 1
    ]
    if unknown:
        kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
        raise TrainingError(
            f"optimize.prune: layer {layer.name!r} is a {kind}, of which it is not known which "
            f"weights can be pruned; give it a method {OWN_METHOD}(self) that returns them, "
            "[] for none, or leave optimize.prune out."
        )


def _names_of(kind: type) -> Sequence[str] | None:
    """The attributes of a class of Keras's, or of one derived from it, that are kernels."""
    known = {
        **PruneRegistry._RNN_CELLS_WEIGHTS_MAP,
        **PruneRegistry._LAYERS_WEIGHTS_MAP,
        **BEYOND_TFMOT,
    }
    return next((known[base] for base in kind.__mro__ if base in known), None)
