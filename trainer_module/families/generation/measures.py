"""Measures of the similarity of two sets of pictures, with features learnt from the data itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.generation.pictures import Pictures

NEIGHBOURS = 3
"""The k of precision and recall, as in the paper."""
DRAWS = 200
"""The number of resamples of a confidence interval."""
COVERED = 0.2
"""The fraction of a mode's real share that its generated share needs for the mode to be covered."""
NEAR = 0.5
"""The fraction of the usual distance of new pictures below which a generated picture is a copy."""
_NEAREST_SHARE = 0.01
_ALIKE = 1e-4
"""The distance below which two pictures are equal up to rounding."""


def squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns the squared distances between rows, [rows of one, rows of the other] float64."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2.0 * one @ other.T
    found: np.ndarray = np.maximum(squares, 0.0)
    return found


def frechet_distance(real: np.ndarray, generated: np.ndarray) -> float:
    """Returns the squared Frechet distance of two normal distributions with the features' moments.

    The formula is `|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^1/2)` of Dowson and Landau (1982), as in
    Heusel et al. (2017, arXiv:1706.08500).

    Args:
      real: [pictures, features], at least two pictures.
      generated: [pictures, features], at least two pictures.
    """
    means = real.mean(0) - generated.mean(0)
    first, second = covariance(real), covariance(generated)
    root = _root(first)
    inner = np.linalg.eigvalsh(root @ second @ root)
    overlap = np.sqrt(np.maximum(inner, 0.0)).sum()
    return float(max(means @ means + np.trace(first) + np.trace(second) - 2.0 * overlap, 0.0))


def covariance(features: np.ndarray) -> np.ndarray:
    """Returns the covariance of the columns, [features, features] float64; 0 for a single row."""
    centred = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    found: np.ndarray = centred.T @ centred / max(1, len(features) - 1)
    return found


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    found: np.ndarray = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return found


def inside(points: np.ndarray, manifold: np.ndarray, neighbours: int = NEIGHBOURS) -> np.ndarray:
    """Returns which points lie within the manifold of others, [points] bool.

    A point is inside if its distance to one of the others is at most the distance from that one to
    its k-th nearest neighbour (Kynkaanniemi et al., 2019, arXiv:1904.06991). The mean over
    generated points with real ones as the manifold is precision; the reverse is recall.
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
    wanted, got = (np.bincount(found, minlength=modes) for found in (real, generated))
    there = wanted > 0
    covered = got / max(1, got.sum()) >= COVERED * wanted / max(1, wanted.sum())
    return float((covered & (got > 0))[there].mean()) if there.any() else 0.0


def nearest(points: np.ndarray, parts: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the distance of each point to the nearest of other points, [points] float64.

    Args:
      points: [points, features].
      parts: batches of the other points, [rows, features], of which memory holds one at a time.
    """
    least = np.full(len(points), np.inf)
    for part in parts:
        least = np.minimum(least, squared_distances(points, part).min(1))
    return np.sqrt(least)


def are_copies(
    generated: np.ndarray, trained: Iterable[np.ndarray], held_out: np.ndarray
) -> np.ndarray:
    """Returns which generated pictures are copies of training pictures, [pictures] bool.

    A copy is nearer to a training picture than half the distance that 99 of 100 held-out pictures
    exceed. Held-out pictures that also occur in the train split are ignored.

    Args:
      generated: [pictures, pixels] in 0..1.
      trained: batches of the training pictures, [pictures, pixels] in 0..1.
      held_out: held-out pictures, [pictures, pixels] in 0..1.
    """
    distances = nearest(np.concatenate([held_out, generated]), trained)
    new = distances[: len(held_out)]
    new = new[new > _ALIKE]
    usual = np.quantile(new, _NEAREST_SHARE) if new.size else 0.0
    found: np.ndarray = distances[len(held_out) :] < max(NEAR * usual, _ALIKE)
    return found


def resample(
    measure: Callable[[np.ndarray, np.ndarray], float],
    real: int,
    generated: int,
    seed: int = 0,
    draws: int = DRAWS,
) -> np.ndarray:
    """Returns the values of a measure on resamples of both sets, [draws] float64.

    Two models that are measured with as many pictures and the same seed use the same resamples.

    Args:
      measure: the measure, a function of the rows of real and of generated pictures.
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
      features: [pictures, features].
      modes: the number of clusters, limited by the number of pictures.
      seed: the seed of the initial centres.
      rounds: the number of iterations.
    """
    random = np.random.default_rng(seed)
    centres = features[random.choice(len(features), min(modes, len(features)), replace=False)]
    for _ in range(rounds):
        owner = squared_distances(features, centres).argmin(1)
        centres = np.stack(
            [
                features[owner == place].mean(0) if (owner == place).any() else centre
                for place, centre in enumerate(centres)
            ]
        )
    return centres


WIDTH = 64
"""The number of features of a picture."""
MODES = 10
"""The number of clusters that replace classes if there are none."""
_BATCH, _STEPS = 64, 300
"""The batch size and the least steps of the classifier's training."""
_MAX_SIDE = 32
"""The largest side in pixels for principal components and for the detection of copies."""
_MAX_TRAIN_PICTURES = 20_000
_AT_ONCE = 256
"""The number of pictures that are converted to floats at a time."""

layers = tf_keras.layers


@dataclass(frozen=True)
class Features:
    """Functions that compute features of pictures and find their modes."""

    extract: Callable[[np.ndarray], np.ndarray]
    """A function from pictures [n, height, width, channels] uint8 to features [n, features]
    float32.
    """
    find_mode: Callable[[np.ndarray], np.ndarray]
    """A function from pictures to the index of each picture's mode, [n] int."""
    modes: int
    classes: tuple[str, ...]
    """The names of the modes if they are classes; otherwise empty."""


def learn_features(pictures: Pictures, seed: int) -> Features:
    """Learns features: those of a small classifier, or without classes principal components.

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
        lambda found: _in_parts(body.predict_on_batch, found),
        lambda found: _in_parts(network.predict_on_batch, found).argmax(1),
        len(classes),
        classes,
    )


def _shuffled(values: np.ndarray, labels: np.ndarray, seed: int) -> tf.data.Dataset:
    """Returns batches of pictures and labels that contain each picture at least twice."""
    random, count = np.random.default_rng(seed), len(values)
    rounds = max(2, -(-_STEPS * _BATCH // count))
    order = np.concatenate([random.permutation(count) for _ in range(rounds)])
    pictures, known = tf.constant(values), tf.constant(labels)

    def take(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(tf.gather(pictures, rows), tf.float32) / 255.0, tf.gather(known, rows)

    return tf.data.Dataset.from_tensor_slices(order).batch(_BATCH).map(take)


def _build_classifier(shape: tuple[int, ...], classes: int, seed: int) -> tf_keras.Model:
    """Returns a classifier: two convolutions, a dense layer for the features, and logits."""

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
    """Returns the principal components of the pixels (Pearson, 1901), and clusters of them."""
    train_pictures = pictures.draw(_MAX_TRAIN_PICTURES, seed)
    pixels = flatten(train_pictures.values)
    centre = pixels.mean(0)
    _, vectors = np.linalg.eigh(covariance(pixels))
    components = vectors[:, ::-1][:, :WIDTH]

    def extract(found: np.ndarray) -> np.ndarray:
        parts = [(flat - centre) @ components for flat in flatten_in_parts(found)]
        return np.concatenate(parts).astype(np.float32)

    centres = find_modes(extract(train_pictures.values), MODES, seed)
    return Features(
        extract,
        lambda found: squared_distances(extract(found), centres).argmin(1),
        len(centres),
        (),
    )


def flatten(pictures: np.ndarray) -> np.ndarray:
    """Returns the pixels of pictures in 0..1, reduced to at most 32 a side, [n, pixels] float32."""
    return np.concatenate(list(flatten_in_parts(pictures)))


def flatten_in_parts(pictures: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the pixels as `flatten` returns them in batches, to save memory."""
    step = -(-max(pictures.shape[1:3]) // _MAX_SIDE)
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
