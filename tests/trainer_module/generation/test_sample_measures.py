"""The measures of generated pictures, against values that are known."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_module.errors import DataError
from trainer_module.families.generation.family import check_size, doublings
from trainer_module.families.generation.measures import (
    are_copies,
    find_modes,
    frechet_distance,
    inside,
    mode_coverage,
    resample,
)

RANDOM = np.random.default_rng(0)


def test_the_distance_of_two_normal_distributions() -> None:
    # Of diagonal covariances it is |m1 - m2|^2 plus the squares of the deviations' differences.
    columns = RANDOM.standard_normal((400, 3))
    columns = (columns - columns.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(columns.T))).T
    other = columns * [1.0, 2.0, 5.0] + [3.0, 0.0, 4.0]
    assert frechet_distance(columns, other) == pytest.approx(25 + 0 + 1 + 16)
    assert frechet_distance(columns, columns) == pytest.approx(0, abs=1e-9)


def test_precision_and_recall_tell_quality_from_variety() -> None:
    real = RANDOM.standard_normal((300, 2))
    narrow = 0.05 * RANDOM.standard_normal((300, 2))  # All of it real, but little of it.
    assert inside(narrow, real).mean() > 0.95
    assert inside(real, narrow).mean() < 0.1
    wide = 30 * RANDOM.standard_normal((300, 2))
    assert inside(wide, real).mean() < 0.1
    assert inside(real, wide).mean() > 0.9


def test_a_point_is_inside_up_to_the_kth_neighbour() -> None:
    manifold = np.array([[0.0], [1.0], [3.0], [6.0]])
    points = np.array([[9.0], [11.01], [-3.1]])
    # The second neighbour of 6 is 1, 5 away, and that of 0 is 3.
    assert inside(points, manifold, neighbours=2).tolist() == [True, False, False]


def test_a_mode_with_too_small_a_share_is_not_covered() -> None:
    real = np.repeat([0, 1, 2, 3], 25)
    generated = np.repeat([0, 1, 2], [50, 46, 4])
    assert mode_coverage(real, generated, 5) == 0.5
    assert mode_coverage(real, real[::-1], 5) == 1


def test_copies_are_nearer_than_new_pictures_are() -> None:
    trained, held_out = RANDOM.random((2, 200, 16))
    generated = np.concatenate([RANDOM.random((5, 16)), trained[:3], trained[3:5] + 0.001])
    assert are_copies(generated, [trained], held_out).tolist() == [False] * 5 + [True] * 5


def test_pictures_that_are_in_both_splits_do_not_hide_copies() -> None:
    trained, held_out = RANDOM.random((2, 200, 16))
    generated = np.concatenate([RANDOM.random((5, 16)), trained[:5]])
    known = np.concatenate([held_out[:190], trained[-10:]])
    expected = [False] * 5 + [True] * 5
    assert are_copies(generated, np.split(trained, 4), known).tolist() == expected
    assert are_copies(generated, [trained], trained).tolist() == expected


def test_resamples_of_two_models_are_of_the_same_rows() -> None:
    values = RANDOM.random(50)
    draws = [
        resample(lambda r, g, by=by: float((values[g] + by).mean()), 30, 50) for by in (0.0, 0.5)
    ]
    assert np.ptp(draws[0]) > 0.05
    assert draws[1] - draws[0] == pytest.approx(np.full(len(draws[0]), 0.5))


def test_modes_are_the_clusters() -> None:
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = np.repeat(centres, 40, axis=0) + 0.1 * RANDOM.standard_normal((120, 2))
    found = find_modes(points, 3, seed=1)
    assert sorted(found.round().tolist()) == sorted(centres.tolist())


@pytest.mark.parametrize(("size", "times"), [((28, 28), 2), ((32, 32), 3), ((8, 8), 1)])
def test_pictures_are_doubled(size: tuple[int, int], times: int) -> None:
    assert doublings(*size) == times


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [("dcgan", (30, 30, 1), "found 30x30 pixels"), ("gan", (256, 256, 3), "196,608 numbers")],
)
def test_sizes_that_no_generator_makes(kind: str, size: tuple[int, int, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_size(kind, *size)
