"""Features by which pictures are compared, learnt from the data itself: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.generation.measures import (
    covariance,
    find_modes,
    squared_distances,
)
from trainer_module.families.generation.pictures import Pictures

WIDTH = 64
"""Features of a picture."""
MODES = 10
"""Clusters that stand for classes where there are none."""
_BATCH, _STEPS = 64, 300
"""Of the classifier; more where the pictures do not all come up."""
_MOST_SIDE = 32
"""Pixels of a side that a network without labels, and a copy, is looked for in."""
_MOST_LEARNT = 20_000
_AT_ONCE = 256
"""Pictures that are as numbers in memory at a time."""

layers = tf_keras.layers


@dataclass(frozen=True)
class Features:
    """What makes features of pictures, and finds their modes."""

    extract: Callable[[np.ndarray], np.ndarray]
    """From pictures [n, height, width, channels] uint8 to [n, features] float32."""
    find_mode: Callable[[np.ndarray], np.ndarray]
    """From pictures to the place of the mode of each, [n] int."""
    modes: int
    classes: tuple[str, ...]
    """The modes by name, where they are classes."""


def learn_features(pictures: Pictures, seed: int) -> Features:
    """Learns features: those of a small classifier, or without classes of principal components.

    Args:
      pictures: of the train split.
      seed: of the weights.
    """
    if pictures.classes:
        return _by_classes(pictures, seed)
    return _by_components(pictures, seed)


def _by_classes(pictures: Pictures, seed: int) -> Features:
    """The layer before the last one of a classifier."""
    classes, pictures = pictures.classes, pictures.draw(_MOST_LEARNT, seed)
    values, labels = pictures.values, pictures.indices(classes)
    network = _build_classifier(values.shape[1:], len(classes), seed)
    network.compile(
        tf_keras.optimizers.Adam(0.002),
        tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    network.fit(_shuffled(values, labels, seed), verbose=0)
    body = tf_keras.Model(network.input, network.layers[-2].output)
    return Features(
        lambda found: _in_parts(body.predict_on_batch, found),
        lambda found: _in_parts(network.predict_on_batch, found).argmax(1),
        len(classes),
        classes,
    )


def _shuffled(values: np.ndarray, labels: np.ndarray, seed: int) -> tf.data.Dataset:
    """Batches of pictures and labels, in which every picture comes up at least twice."""
    random, count = np.random.default_rng(seed), len(values)
    rounds = max(2, -(-_STEPS * _BATCH // count))
    order = np.concatenate([random.permutation(count) for _ in range(rounds)])
    pictures, known = tf.constant(values), tf.constant(labels)

    def take(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(tf.gather(pictures, rows), tf.float32) / 255.0, tf.gather(known, rows)

    return tf.data.Dataset.from_tensor_slices(order).batch(_BATCH).map(take)


def _build_classifier(shape: tuple[int, ...], classes: int, seed: int) -> tf_keras.Model:
    """Two convolutions, a dense layer whose outputs are the features, and logits."""

    def start(place: int) -> tf_keras.initializers.Initializer:
        return tf_keras.initializers.GlorotUniform(seed=seed + place)

    inputs = hidden = layers.Input(shape)
    for place, filters in enumerate((16, 32)):
        hidden = layers.Conv2D(
            filters, 3, padding="same", activation="relu", kernel_initializer=start(place)
        )(hidden)
        hidden = layers.MaxPooling2D(padding="same")(hidden)
    while max(hidden.shape[1:3]) > 8:
        hidden = layers.MaxPooling2D(padding="same")(hidden)
    hidden = layers.Flatten()(hidden)
    hidden = layers.Dense(WIDTH, "relu", kernel_initializer=start(2))(hidden)
    return tf_keras.Model(inputs, layers.Dense(classes, kernel_initializer=start(3))(hidden))


def _by_components(pictures: Pictures, seed: int) -> Features:
    """The principal components of the pixels (Pearson, 1901), and clusters in them."""
    learnt = pictures.draw(_MOST_LEARNT, seed)
    pixels = flatten(learnt.values)
    centre = pixels.mean(0)
    _, vectors = np.linalg.eigh(covariance(pixels))
    components = vectors[:, ::-1][:, :WIDTH]

    def extract(found: np.ndarray) -> np.ndarray:
        parts = [(flat - centre) @ components for flat in flatten_in_parts(found)]
        return np.concatenate(parts).astype(np.float32)

    centres = find_modes(extract(learnt.values), MODES, seed)
    return Features(
        extract,
        lambda found: squared_distances(extract(found), centres).argmin(1),
        len(centres),
        (),
    )


def flatten(pictures: np.ndarray) -> np.ndarray:
    """Pixels of pictures in 0..1, of 32 a side at most, [n, pixels] float32."""
    return np.concatenate(list(flatten_in_parts(pictures)))


def flatten_in_parts(pictures: np.ndarray) -> Iterator[np.ndarray]:
    """The same of some pictures after others, as all of them may be more than memory holds."""
    step = -(-max(pictures.shape[1:3]) // _MOST_SIDE)
    for part in _parts(pictures):
        scaled = _scaled(part)
        if step > 1:
            scaled = tf.nn.avg_pool2d(scaled, step, step, "SAME").numpy()
        yield scaled.reshape(len(part), -1)


def _in_parts(ask: Callable[[np.ndarray], np.ndarray], pictures: np.ndarray) -> np.ndarray:
    return np.concatenate([ask(_scaled(part)) for part in _parts(pictures)])


def _parts(pictures: np.ndarray) -> Iterator[np.ndarray]:
    return (pictures[start : start + _AT_ONCE] for start in range(0, len(pictures), _AT_ONCE))


def _scaled(pictures: np.ndarray) -> np.ndarray:
    return pictures.astype(np.float32) / 255.0
