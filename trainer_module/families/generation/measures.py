"""How like two sets of pictures are, by their features: NumPy alone, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

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
    """The squared Frechet distance of two normal distributions with the features' moments.

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
    """The share of the modes of real pictures that generated ones have, too.

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
    """The distance of each point to the nearest of others, [points] float64.

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
    """The centres of so many clusters by Lloyd's algorithm (1982), [modes, features].

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
