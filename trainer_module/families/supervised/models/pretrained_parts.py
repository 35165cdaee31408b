"""The parts of a model with a pretrained network, by the names that they have in it."""

from __future__ import annotations

import tf_keras

from trainer_module.features.transformed import TransformedFeature

HEAD = "head"
"""The name of the model within the model that follows the network."""


def network_of(model: tf_keras.Model, kind: str) -> tf_keras.Model:
    """Returns the network within a model of `pretrained.model`."""
    return model.get_layer(base_name(kind))


def head_of(model: tf_keras.Model) -> tf_keras.Model:
    """Returns the head of such a model: from features by name, pictures pooled, to the output."""
    return model.get_layer(HEAD)


def pooled_of(model: tf_keras.Model, images: tuple[TransformedFeature, ...]) -> tf_keras.Model:
    """What such a model makes of pictures before its head: by name, [batch, n] each."""
    return tf_keras.Model(
        {image.name: model.get_layer(image.name).output for image in images},
        {i.name: model.get_layer(i.layer_name("features")).output for i in images},
    )


def base_name(kind: str) -> str:
    """Returns the name of the network within the model."""
    return f"{kind}_network"


def batch_norms(network: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Returns the layers of batch normalisation."""
    return [x for x in network.layers if isinstance(x, tf_keras.layers.BatchNormalization)]
