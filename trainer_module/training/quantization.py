"""Quantisation-aware training: layers that compute as if their numbers had 8 bits.

By tensorflow-model-optimization, which wraps the layers that it knows in a clone of the model. The
layers keep their names, by which layer-wise rates go. Its import takes seconds: import this module
where a model is quantised, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow_model_optimization as tfmot
import tf_keras

from trainer_module.compat.keras import is_graph_network
from trainer_module.errors import TrainingError, enumerate_names

keras = tfmot.quantization.keras
"""What wraps layers."""

BEFORE_NORM = (tf_keras.layers.Conv2D, tf_keras.layers.DepthwiseConv2D, tf_keras.layers.Dense)
"""Layers that batch normalisation becomes a part of, which TFMOT does not know by itself."""


def quantize(model: tf_keras.Model) -> tf_keras.Model:
    """The same model, with the layers that can be trained for 8 bits wrapped; others stay.

    Args:
      model: functional or Sequential, built and not compiled. Call it in the scope of the strategy.

    Raises:
      TrainingError: the model is of another kind, or has no such layer with weights.
    """
    if model.optimizer is not None:
        raise TrainingError(
            f"optimize.quantize: the builder of model {model.name!r} has compiled it, and it has "
            "to be changed before that; leave the builder's compile out, or optimize.quantize."
        )
    if not is_graph_network(model):
        raise TrainingError(
            f"optimize.quantize: model {model.name!r} is a {type(model).__qualname__}, whose "
            "layers cannot be told; build it as tf_keras.Model(inputs, outputs), or leave it out."
        )
    known = keras.default_8bit.Default8BitQuantizeRegistry()
    able = [layer for layer in model.layers if known.supports(layer) or _is_folded(layer)]
    if not any(layer.trainable_weights for layer in able):
        names = enumerate_names(_kinds(_weighed(model)), "and")
        raise TrainingError(
            f"optimize.quantize: none of the model's layers can be trained for 8 bits: {names}; "
            "leave it out: the variant int8 needs no such training, and asks the train split."
        )
    wrapped = {id(layer) for layer in able}

    def annotate(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        return keras.quantize_annotate_layer(layer) if id(layer) in wrapped else layer

    annotated = tf_keras.models.clone_model(model, clone_function=annotate)
    with keras.quantize_scope():
        return keras.quantize_apply(annotated, quantized_layer_name_prefix="")


def describe_quantized(model: tf_keras.Model) -> list[str]:
    """What people should know of a model that `quantize` gave: which layers stay as they were."""
    left = _kinds(_weighed(model))
    if not left:
        return []
    return [
        f"optimize.quantize: the layers {enumerate_names(left, 'and')} are trained in floats, as "
        "tensorflow-model-optimization does not know them with 8 bits"
    ]


def _is_folded(layer: tf_keras.layers.Layer) -> bool:
    if not isinstance(layer, tf_keras.layers.BatchNormalization):
        return False
    before = layer.inbound_nodes[0].inbound_layers
    return isinstance(before, BEFORE_NORM)


def _weighed(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """The layers that learn, but for those that are wrapped."""
    for layer in model.layers:
        if layer.trainable_weights and not isinstance(layer, keras.QuantizeWrapper):
            yield layer


def _kinds(layers: Iterator[tf_keras.layers.Layer]) -> list[str]:
    """For people: `c_embedding (Embedding)`."""
    return [f"{layer.name} ({type(layer).__name__})" for layer in layers]
