"""Measures of the similarity of two sets of pictures, by features learned from the train split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.generation.pictures import Pictures

NEIGHBOURS = 3
"""The k of `inside`, as in the paper."""
DRAWS = 200
"""The number of resamples of a confidence interval."""
COVERED = 0.2
"""A mode is covered if its share of generated pictures is at least this fraction of its share of
real pictures."""
NEAR = 0.5
"""A generated picture is a copy if its distance to a training picture is less than this fraction of
the distance that is unusually small for held-out pictures."""
_NEAREST_SHARE = 0.01
"""The share of held-out pictures whose distances to training pictures are unusually small."""
_EQUAL = 1e-4
"""The distance below which two pictures are equal up to rounding."""


def squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the squared distances between rows, [rows of first, rows of second] float64."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1) - 2.0 * first @ second.T
    distances: np.ndarray = np.maximum(squares, 0.0)
    return distances


def frechet_distance(real: np.ndarray, generated: np.ndarray) -> float:
    """Returns the squared Frechet distance of two normal distributions with the features' moments.

    The formula is `|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^1/2)` of Dowson and Landau (1982), as in
    Heusel et al. (2017, arXiv:1706.08500).

    Args:
      real: the features of at least two real pictures, [pictures, features].
      generated: the features of at least two generated pictures, [pictures, features].
    """
    means = real.mean(0) - generated.mean(0)
    first, second = covariance(real), covariance(generated)
    root = _root(first)
    inner = np.linalg.eigvalsh(root @ second @ root)
    overlap = np.sqrt(np.maximum(inner, 0.0)).sum()
    return float(max(means @ means + np.trace(first) + np.trace(second) - 2.0 * overlap, 0.0))


def covariance(features: np.ndarray) -> np.ndarray:
    """Returns the covariance of the columns, [features, features] float64, or 0 for one row."""
    centred = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    found: np.ndarray = centred.T @ centred / max(1, len(features) - 1)
    return found


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    found: np.ndarray = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return found


def inside(points: np.ndarray, manifold: np.ndarray, neighbours: int = NEIGHBOURS) -> np.ndarray:
    """Returns which points are inside the manifold of other points, [points] bool.

    Each point of the manifold has a radius, its distance to its k-th nearest neighbour in the
    manifold. A point is inside if its distance to any point of the manifold is at most the radius
    of that point (Kynkaanniemi et al., 2019, arXiv:1904.06991). Precision is the share of generated
    points inside the manifold of real points; recall is the share of real points inside the
    manifold of generated points.
    """
    own = squared_distances(manifold, manifold)
    k = min(neighbours, len(manifold) - 1)
    radii = np.partition(own, k, axis=1)[:, k]  # The nearest point is the point itself.
    found: np.ndarray = np.any(squared_distances(points, manifold) <= radii, axis=1)
    return found


def mode_coverage(real: np.ndarray, generated: np.ndarray, modes: int) -> float:
    """Returns the share of the modes of real pictures that generated pictures cover.

    Args:
      real: the mode of each real picture, [pictures] int.
      generated: the mode of each generated picture, [pictures] int.
      modes: the number of modes.
    """
    real_counts, counts = (np.bincount(mode, minlength=modes) for mode in (real, generated))
    exists = real_counts > 0
    shares = counts / max(1, counts.sum())
    is_covered = shares >= COVERED * real_counts / max(1, real_counts.sum())
    return float((is_covered & (counts > 0))[exists].mean()) if exists.any() else 0.0


def nearest(points: np.ndarray, parts: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the distance of each point to the nearest of other points, [points] float64.

    Args:
      points: the points, [points, features].
      parts: batches of the other points, [rows, features] each, which are read one by one.
    """
    least = np.full(len(points), np.inf)
    for part in parts:
        least = np.minimum(least, squared_distances(points, part).min(1))
    return np.sqrt(least)


def are_copies(
    generated: np.ndarray, trained: Iterable[np.ndarray], held_out: np.ndarray
) -> np.ndarray:
    """Returns which generated pictures are copies of training pictures, [pictures] bool.

    99 percent of the held-out pictures have a larger distance to the nearest training picture than
    a threshold. A generated picture is a copy if its distance is less than half of the threshold.
    Held-out pictures that also occur in the train split are ignored.

    Args:
      generated: the generated pictures, [pictures, pixels] in 0..1.
      trained: batches of the training pictures, [pictures, pixels] in 0..1.
      held_out: the held-out pictures, [pictures, pixels] in 0..1.
    """
    distances = nearest(np.concatenate([held_out, generated]), trained)
    held_out_distances = distances[: len(held_out)]
    held_out_distances = held_out_distances[held_out_distances > _EQUAL]
    threshold = np.quantile(held_out_distances, _NEAREST_SHARE) if held_out_distances.size else 0.0
    copies: np.ndarray = distances[len(held_out) :] < max(NEAR * threshold, _EQUAL)
    return copies


def resample(
    measure: Callable[[np.ndarray, np.ndarray], float],
    real: int,
    generated: int,
    seed: int = 0,
    draws: int = DRAWS,
) -> np.ndarray:
    """Returns the values of a measure on resamples of both sets, [draws] float64.

    Models that are measured with equal numbers of pictures and the same seed use the same
    resamples.

    Args:
      measure: a function from the rows of real pictures and the rows of generated pictures to a
        value.
      real: the number of real pictures.
      generated: the number of generated pictures.
      seed: the seed of the resamples.
      draws: the number of resamples.
    """
    random = np.random.default_rng(seed)
    rows = [
        (random.integers(0, real, real), random.integers(0, generated, generated))
        for _ in range(draws)
    ]
    return np.array([measure(*pair) for pair in rows])


def find_modes(features: np.ndarray, modes: int, seed: int = 0, rounds: int = 20) -> np.ndarray:
    """Returns the centres of clusters by Lloyd's algorithm (1982), [modes, features].

    Args:
      features: the features of the pictures, [pictures, features].
      modes: the number of clusters; at most the number of pictures.
      seed: the seed of the initial centres.
      rounds: the number of iterations.
    """
    random = np.random.default_rng(seed)
    centres = features[random.choice(len(features), min(modes, len(features)), replace=False)]
    for _ in range(rounds):
        owner = squared_distances(features, centres).argmin(1)
        centres = np.stack(
            [
                features[owner == index].mean(0) if (owner == index).any() else centre
                for index, centre in enumerate(centres)
            ]
        )
    return centres


WIDTH = 64
"""The number of features of a picture."""
MODES = 10
"""The number of clusters that are the modes if the data has no classes."""
_BATCH, _STEPS = 64, 300
"""The batch size and the minimum number of steps of the classifier's training."""
_MAX_SIDE = 32
"""The maximum side in pixels for principal components and for the detection of copies."""
_MAX_TRAIN_PICTURES = 20_000
"""The maximum number of training pictures from which features are learned."""
_AT_ONCE = 256
"""The number of pictures that are converted to floats at a time."""

layers = tf_keras.layers


@dataclass(frozen=True)
class Features:
    """Functions that compute the features of pictures, and their modes: classes or clusters."""

    extract: Callable[[np.ndarray], np.ndarray]
    """A function from pictures, [n, height, width, channels] uint8, to features, [n, features]
    float32.
    """
    find_mode: Callable[[np.ndarray], np.ndarray]
    """A function from pictures to the index of each picture's mode, [n] int."""
    modes: int
    """The number of modes."""
    classes: tuple[str, ...]
    """The names of the modes if the modes are classes, otherwise ()."""


def learn_features(pictures: Pictures, seed: int) -> Features:
    """Returns features that are learned from pictures.

    The features come from a small classifier, or are principal components if there are no classes.

    Args:
      pictures: the pictures of the train split.
      seed: the seed of the classifier's weights and of the clusters.
    """
    if pictures.classes:
        return _by_classes(pictures, seed)
    return _by_components(pictures, seed)


def _by_classes(pictures: Pictures, seed: int) -> Features:
    """Returns the features in the layer before the last layer of a classifier."""
    classes, pictures = pictures.classes, pictures.draw(_MAX_TRAIN_PICTURES, seed)
    values, labels = pictures.values, pictures.indices(classes)
    network = _build_classifier(values.shape[1:], len(classes), seed)
    network.compile(
        tf_keras.optimizers.Adam(0.002),
        tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    network.fit(_shuffled(values, labels, seed), verbose=0)
    body = tf_keras.Model(network.input, network.layers[-2].output)
    return Features(
        lambda pictures: _predict_in_parts(body.predict_on_batch, pictures),
        lambda pictures: _predict_in_parts(network.predict_on_batch, pictures).argmax(1),
        len(classes),
        classes,
    )


def _shuffled(values: np.ndarray, labels: np.ndarray, seed: int) -> tf.data.Dataset:
    """Returns batches of pictures and labels that contain each picture at least twice."""
    random, count = np.random.default_rng(seed), len(values)
    rounds = max(2, -(-_STEPS * _BATCH // count))
    order = np.concatenate([random.permutation(count) for _ in range(rounds)])
    pictures, classes = tf.constant(values), tf.constant(labels)

    def take(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(tf.gather(pictures, rows), tf.float32) / 255.0, tf.gather(classes, rows)

    return tf.data.Dataset.from_tensor_slices(order).batch(_BATCH).map(take)


def _build_classifier(shape: tuple[int, ...], classes: int, seed: int) -> tf_keras.Model:
    """Returns a classifier: two convolutions, a dense layer for the features, and logits."""

    def initializer(layer: int) -> tf_keras.initializers.Initializer:
        return tf_keras.initializers.GlorotUniform(seed=seed + layer)

    inputs = hidden = layers.Input(shape)
    for layer, filters in enumerate((16, 32)):
        hidden = layers.Conv2D(
            filters, 3, padding="same", activation="relu", kernel_initializer=initializer(layer)
        )(hidden)
        hidden = layers.MaxPooling2D(padding="same")(hidden)
    while max(hidden.shape[1:3]) > 8:
        hidden = layers.MaxPooling2D(padding="same")(hidden)
    hidden = layers.Flatten()(hidden)
    hidden = layers.Dense(WIDTH, "relu", kernel_initializer=initializer(2))(hidden)
    return tf_keras.Model(inputs, layers.Dense(classes, kernel_initializer=initializer(3))(hidden))


def _by_components(pictures: Pictures, seed: int) -> Features:
    """Returns the principal components of the pixels (Pearson, 1901), and clusters as modes."""
    train_pictures = pictures.draw(_MAX_TRAIN_PICTURES, seed)
    pixels = flatten(train_pictures.values)
    centre = pixels.mean(0)
    _, vectors = np.linalg.eigh(covariance(pixels))
    components = vectors[:, ::-1][:, :WIDTH]

    def extract(pictures: np.ndarray) -> np.ndarray:
        parts = [(flat - centre) @ components for flat in flatten_in_parts(pictures)]
        return np.concatenate(parts).astype(np.float32)

    centres = find_modes(extract(train_pictures.values), MODES, seed)
    return Features(
        extract,
        lambda pictures: squared_distances(extract(pictures), centres).argmin(1),
        len(centres),
        (),
    )


def flatten(pictures: np.ndarray) -> np.ndarray:
    """Returns the pixels in 0..1 of pictures, [n, pixels] float32.

    Pictures with a side of more than 32 pixels are reduced to at most 32 pixels.
    """
    return np.concatenate(list(flatten_in_parts(pictures)))


def flatten_in_parts(pictures: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the result of `flatten` in batches, which need less memory."""
    step = -(-max(pictures.shape[1:3]) // _MAX_SIDE)
    for part in _parts(pictures):
        scaled = _scaled(part)
        if step > 1:
            scaled = tf.nn.avg_pool2d(scaled, step, step, "SAME").numpy()
        yield scaled.reshape(len(part), -1)


def _predict_in_parts(
    predict: Callable[[np.ndarray], np.ndarray], pictures: np.ndarray
) -> np.ndarray:
    return np.concatenate([predict(_scaled(part)) for part in _parts(pictures)])


def _parts(pictures: np.ndarray) -> Iterator[np.ndarray]:
    return (pictures[start : start + _AT_ONCE] for start in range(0, len(pictures), _AT_ONCE))


def _scaled(pictures: np.ndarray) -> np.ndarray:
    return pictures.astype(np.float32) / 255.0
