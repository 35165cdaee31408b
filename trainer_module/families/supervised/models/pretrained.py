"""Models that consist of a network of tf_keras.applications and a head.

The network and the head are nested models, so that each can be trained separately, as in
https://www.tensorflow.org/guide/keras/transfer_learning.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import synchronize
from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families.supervised.models import layers
from trainer_module.families.supervised.models.pretrained_parts import (
    HEAD,
    base_name,
    batch_norms,
)
from trainer_module.families.supervised.models.pretrained_weights import load_weights
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.published import IMAGENET_CLASSES, local_weights
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import IMAGENET_MEANS, NETWORKS, Network


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Returns the uncompiled model.

    All pictures share the network; other features are inputs of the head.

    Raises:
      TrainingError: there is no image, an image is too small, or the weights belong to another
        network.
    """
    network = NETWORKS[settings.kind]
    images = layers.images_of(problem, settings.kind)
    _check_images(images, settings.kind, network)
    if settings.has_published_head:
        return _build_published(problem, images, settings, network)
    base = _build_base(images, settings, network)
    if settings.weights:
        load_weights(base, settings.kind, local_weights(settings.kind, settings.weights))
    inputs = problem.make_inputs()
    parts = dict(inputs)
    pool = _choose_pool(settings, base)
    for image in images:
        pixels = _prepare(inputs[image.name], network)
        # In a frozen network, batch normalisation keeps the statistics of the published weights.
        features = base(pixels, training=False) if settings.begins_frozen else base(pixels)
        parts[image.name] = pool(dtype="float32", name=image.layer_name("features"))(features)
    width = parts[images[0].name].shape[-1]
    head = _build_head(problem, settings, width)
    return tf_keras.Model(inputs, head(parts), name=settings.kind)


def _build_published(
    problem: Problem,
    images: tuple[TransformedFeature, ...],
    settings: ModelSettings,
    network: Network,
) -> tf_keras.Model:
    """Returns the network with its published top, which predicts ImageNet's classes."""
    others = [feature.name for feature in problem.features if feature not in images[:1]]
    if others:
        raise TrainingError(
            "model.transfer.head is published, and a published head has the picture "
            f"{images[0].name!r} as its only input; set `type: ignore` for "
            f"{enumerate_names(others, 'and')}."
        )
    if len(problem.classes) != IMAGENET_CLASSES:
        raise TrainingError(
            f"model.transfer.head is published, and a published head has {IMAGENET_CLASSES:,} "
            f"classes, but the label has {len(problem.classes):,}; set task: {{kind: multiclass, "
            "classes: imagenet}, or remove model.transfer.head."
        )
    constructed = getattr(tf_keras.applications, network.constructor)(
        include_top=True, weights=None, input_shape=(*images[0].shape[:2], 3)
    )
    published = tf_keras.Model(constructed.input, constructed.output, name=base_name(settings.kind))
    path = local_weights(settings.kind, settings.weights or "", with_top=True)
    load_weights(published, settings.kind, path)
    inputs = problem.make_inputs()
    scores = published(_prepare(inputs[images[0].name], network), training=False)
    output = tf_keras.layers.Activation(
        "linear", dtype="float32", name=problem.layer_name("output")
    )(scores)
    return tf_keras.Model(inputs, output, name=settings.kind)


def _build_base(
    images: tuple[TransformedFeature, ...], settings: ModelSettings, network: Network
) -> tf_keras.Model:
    sizes = {image.shape[:2] for image in images}
    shape = sizes.pop() if len(sizes) == 1 else (None, None)
    constructed = getattr(tf_keras.applications, network.constructor)(
        include_top=False, weights=None, input_shape=(*shape, 3)
    )
    base = tf_keras.Model(constructed.input, constructed.output, name=base_name(settings.kind))
    if not settings.weights:
        for layer in batch_norms(base):
            layer.momentum = min(layer.momentum, layers.FRESH_MOMENTUM)
    if settings.sync_batch_norm:
        for layer in batch_norms(base):
            synchronize(layer)
    return base


def _choose_pool(settings: ModelSettings, base: tf_keras.Model) -> type[tf_keras.layers.Layer]:
    """Returns the class of the layer that converts the network's feature map to a vector."""
    if settings.transfer is None or settings.transfer.head != "flatten":
        return tf_keras.layers.GlobalAveragePooling2D
    if None in base.output_shape[1:]:
        raise TrainingError(
            "model.transfer.head is flatten, but columns of pictures have different sizes; set "
            "the same height and width for all columns of pictures, or `head: average`."
        )
    return tf_keras.layers.Flatten


def _build_head(problem: Problem, settings: ModelSettings, width: int) -> tf_keras.Model:
    inputs = {
        f.name: tf_keras.Input((width,), name=f.name)
        if f.kind == "image"
        else tf_keras.Input(f.shape, name=f.name, dtype=f.dtype)
        for f in problem.features
    }
    encoded = [inputs[image.name] for image in problem.of_kind("image")]
    others = [feature for feature in problem.features if feature.kind != "image"]
    encoded += layers.encode(others, inputs, settings.embedding_size)
    transfer = settings.transfer
    if transfer and isinstance(transfer.head, list):
        settings = settings.model_copy(update={"hidden_units": transfer.head})
    hidden = layers.hidden_layers(layers.concatenate(encoded), settings)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name=HEAD)


def _prepare(pixels: tf.Tensor, network: Network) -> tf.Tensor:
    """Returns the network's inputs, [batch, height, width, 3], for grey or RGB pixels in 0..1."""
    if pixels.shape[-1] == 1:
        pixels = tf_keras.layers.Concatenate(dtype="float32")([pixels, pixels, pixels])
    if not network.is_bgr:
        return tf_keras.layers.Rescaling(255.0, dtype="float32")(pixels)
    offset = [-mean for mean in IMAGENET_MEANS]
    return tf_keras.layers.Rescaling(255.0, offset, dtype="float32")(pixels[..., ::-1])


def _check_images(images: tuple[TransformedFeature, ...], kind: str, network: Network) -> None:
    for image in images:
        height, width, channels = image.shape
        if min(height, width) < network.least:
            raise TrainingError(
                f"image {image.name!r} of {height}x{width} pixels is too small for {kind}; set its "
                f"height and width to {network.least} or more; pictures are resized to them."
            )
        if channels not in (1, 3):
            raise TrainingError(
                f"image {image.name!r} has {channels} channels; {kind} supports 1 (grey) and 3 "
                "(RGB)."
            )
