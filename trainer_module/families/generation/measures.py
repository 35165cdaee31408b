"""How like two sets of pictures are, by features that are learnt from the data itself."""

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
"""Resamples of an interval."""
COVERED = 0.2
"""A mode is covered if it has so much of the share that it has among real pictures."""
NEAR = 0.5
"""A copy is nearer to a picture of training than so much of what hardly any new picture is."""
_HARDLY_ANY = 0.01
_ALIKE = 1e-4
"""Two pictures are the same if their distance is not above what rounding leaves of it."""


def squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Between the rows of both, [rows of one, rows of the other] float64."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2.0 * one @ other.T
    found: np.ndarray = np.maximum(squares, 0.0)
    return found


def frechet_distance(real: np.ndarray, generated: np.ndarray) -> float:
    """Returns the squared Frechet distance of two normal distributions with the features' moments.

    `|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^1/2)` of Dowson and Landau (1982), as Heusel et al. (2017,
    arXiv:1706.08500) use it.

    Args:
      real: [pictures, features], at least two.
      generated: likewise.
    """
    means = real.mean(0) - generated.mean(0)
    first, second = covariance(real), covariance(generated)
    root = _root(first)
    inner = np.linalg.eigvalsh(root @ second @ root)
    overlap = np.sqrt(np.maximum(inner, 0.0)).sum()
    return float(max(means @ means + np.trace(first) + np.trace(second) - 2.0 * overlap, 0.0))


def covariance(features: np.ndarray) -> np.ndarray:
    """Of the columns, [features, features] float64; 0 of a single row."""
    centred = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    found: np.ndarray = centred.T @ centred / max(1, len(features) - 1)
    return found


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    found: np.ndarray = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return found


def inside(points: np.ndarray, manifold: np.ndarray, neighbours: int = NEIGHBOURS) -> np.ndarray:
    """Which points lie within the manifold of others, [points] bool.

    That is: no further from one of those than its k-th nearest neighbour among them is
    (Kynkaanniemi et al., 2019, arXiv:1904.06991). Of generated points and real ones as the
    manifold the mean is precision; the other way round it is recall.
    """
    own = squared_distances(manifold, manifold)
    k = min(neighbours, len(manifold) - 1)
    radii = np.partition(own, k, axis=1)[:, k]  # The nearest one is the point itself.
    found: np.ndarray = np.any(squared_distances(points, manifold) <= radii, axis=1)
    return found


def mode_coverage(real: np.ndarray, generated: np.ndarray, modes: int) -> float:
    """Returns the share of the modes of real pictures that generated ones have, too.

    Args:
      real: the mode of each picture, [pictures] int.
      generated: likewise.
      modes: how many there are.
    """
    wanted, got = (np.bincount(found, minlength=modes) for found in (real, generated))
    there = wanted > 0
    covered = got / max(1, got.sum()) >= COVERED * wanted / max(1, wanted.sum())
    return float((covered & (got > 0))[there].mean()) if there.any() else 0.0


def nearest(points: np.ndarray, parts: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the distance of each point to the nearest of others, [points] float64.

    Args:
      points: [points, features].
      parts: of the others, [rows, features] each, of which memory holds one at a time.
    """
    least = np.full(len(points), np.inf)
    for part in parts:
        least = np.minimum(least, squared_distances(points, part).min(1))
    return np.sqrt(least)


def are_copies(
    generated: np.ndarray, trained: Iterable[np.ndarray], held_out: np.ndarray
) -> np.ndarray:
    """Which generated pictures are copies of such that were trained on, [pictures] bool.

    A copy is nearer to one than half of what 99 of 100 pictures are that were held out. Those of
    them that are in the train split as well do not count: they say nothing of what is new.

    Args:
      generated: [pictures, pixels] in 0..1.
      trained: parts of them, likewise.
      held_out: likewise, of the same data.
    """
    distances = nearest(np.concatenate([held_out, generated]), trained)
    new = distances[: len(held_out)]
    new = new[new > _ALIKE]
    usual = np.quantile(new, _HARDLY_ANY) if new.size else 0.0
    found: np.ndarray = distances[len(held_out) :] < max(NEAR * usual, _ALIKE)
    return found


def resample(
    measure: Callable[[np.ndarray, np.ndarray], float],
    real: int,
    generated: int,
    seed: int = 0,
    draws: int = DRAWS,
) -> np.ndarray:
    """What a measure comes to on resamples of both sets, [draws] float64.

    Two models that are measured with as many pictures and the same seed are resampled alike.

    Args:
      measure: of the rows of real pictures and those of generated ones.
      real: pictures.
      generated: pictures.
      seed: of the resamples.
      draws: how many.
    """
    random = np.random.default_rng(seed)
    rows = [
        (random.integers(0, real, real), random.integers(0, generated, generated))
        for _ in range(draws)
    ]
    return np.array([measure(*pair) for pair in rows])


def find_modes(features: np.ndarray, modes: int, seed: int = 0, rounds: int = 20) -> np.ndarray:
    """Returns the centres of so many clusters by Lloyd's algorithm (1982), [modes, features].

    Args:
      features: [pictures, features].
      modes: how many, at most as many as there are pictures.
      seed: of the pictures that it begins with.
      rounds: of the algorithm.
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
    """Returns the layer before the last one of a classifier."""
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
    """Returns the principal components of the pixels (Pearson, 1901), and clusters in them."""
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
    """Yields the same of some pictures after others, as all of them may be more than memory
    holds.
    """
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
