"""The names and parts of models that `pretrained.build_model` returns."""

from __future__ import annotations

import tf_keras

from trainer_module.features.transformed import TransformedFeature

HEAD = "head"
"""The name of the nested model that follows the network."""


def network_of(model: tf_keras.Model, kind: str) -> tf_keras.Model:
    """Returns the network in a model."""
    return model.get_layer(base_name(kind))


def head_of(model: tf_keras.Model) -> tf_keras.Model:
    """Returns the head of a model; its inputs are pooled pictures and other features, by name."""
    return model.get_layer(HEAD)


def pooling_model_of(
    model: tf_keras.Model, images: tuple[TransformedFeature, ...]
) -> tf_keras.Model:
    """Returns a model that maps pictures to pooled features, the head's inputs, [batch, n] each."""
    return tf_keras.Model(
        {image.name: model.get_layer(image.name).output for image in images},
        {i.name: model.get_layer(i.layer_name("features")).output for i in images},
    )


def base_name(kind: str) -> str:
    """Returns the name of the network within the model."""
    return f"{kind}_network"


def batch_norms(network: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Returns the batch normalisation layers of a network."""
    return [x for x in network.layers if isinstance(x, tf_keras.layers.BatchNormalization)]
