"""Pictures changed while a model is trained: how, and the same however they are shared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import to_example, write_examples
from trainer_module.data.augmentation import (
    DRAWS,
    change_pictures,
    draw_shares,
    make_augmentation,
    mix,
)
from trainer_module.data.examples import Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.losses import MixedLoss, with_larger_share
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import AugmentSettings, Task

PHOTO = TransformedFeature("photo", "image", (8, 8, 1))
PROBLEM = Problem(Task.MULTICLASS, "y", ("a", "b", "c"), (PHOTO,))
SPEC = {
    "photo": tf.io.FixedLenFeature([8, 8, 1], tf.float32),
    "y": tf.io.FixedLenFeature([1], tf.int64),
}
PIXELS = np.random.default_rng(1).random((12, 8, 8, 1), np.float32)
EVERYTHING = {
    "flip": "both",
    "rotate": 0.1,
    "shift": 0.1,
    "zoom": 0.2,
    "contrast": 0.3,
    "cutout": 3,
    "mixup": 0.4,
}
ACROSS, DOWN, TURN, RIGHT, LOWER, LARGER, SHARPER, X, Y = range(DRAWS)


def changed(settings: dict[str, Any], **drawn: float) -> np.ndarray:
    """The first picture, changed by numbers that are given instead of drawn."""
    draws = np.zeros((1, DRAWS), np.float32)
    for name, number in drawn.items():
        draws[0, globals()[name]] = number
    pixels = change_pictures(PIXELS[:1], AugmentSettings(**settings), tf.constant(draws))
    return pixels.numpy()[0, ..., 0]


FIRST = PIXELS[0, ..., 0]
FLIPPED_THEN_LEFT = FIRST[:, ::-1][:, [*range(2, 8), 7, 7]]


@pytest.mark.parametrize(
    ("settings", "drawn", "expected"),
    [
        ({"flip": "horizontal"}, {"ACROSS": 0.1, "DOWN": 0.1}, FIRST[:, ::-1]),
        ({"flip": "vertical"}, {"ACROSS": 0.1, "DOWN": 0.1}, FIRST[::-1]),
        ({"flip": "horizontal", "shift": 0.25}, {"ACROSS": 1, "RIGHT": -1}, FLIPPED_THEN_LEFT),
        ({"rotate": 0.25}, {"TURN": 1}, np.rot90(FIRST)),
        ({"shift": 0.25}, {"RIGHT": 1}, FIRST[:, [0, 0, *range(6)]]),
        ({"contrast": 0.5}, {"SHARPER": -1}, FIRST / 2 + FIRST.mean() / 2),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_pictures_are_changed_by_the_drawn_numbers(
    settings: dict[str, Any], drawn: dict[str, float], expected: np.ndarray
) -> None:
    np.testing.assert_allclose(changed(settings, **drawn), expected, atol=1e-5)


def test_zoom_scales_about_the_centre() -> None:
    ramp = np.tile(np.arange(8, dtype=np.float32), (8, 1))[np.newaxis, ..., np.newaxis]
    draws = np.zeros((1, DRAWS), np.float32)
    draws[0, LARGER] = 1
    larger = change_pictures(ramp, AugmentSettings(zoom=0.25), tf.constant(draws)).numpy()
    np.testing.assert_allclose(larger[0, 3, :, 0], 3.5 + (np.arange(8) - 3.5) / 1.25, atol=1e-5)


def test_cutting_out_covers_a_square_with_the_mean() -> None:
    cut = changed({"cutout": 4}, X=0.0, Y=0.5)
    covered = np.isclose(cut, FIRST.mean())
    assert covered.sum() == 16
    assert covered[4:8, 2:6].all()
    np.testing.assert_array_equal(cut[~covered], FIRST[~covered])


def load(tmp_path: Path, max_bytes: int = 1_000_000, batch: int = 4, **options: Any) -> Split:
    """Ten pictures, each of one shade, with everything done to them."""
    augment = options.pop("augment", EVERYTHING)
    records = [
        to_example({"photo": (PIXELS[i] + i).ravel().tolist(), "y": i % 3}) for i in range(10)
    ]
    write_examples(tmp_path / "data.gz", records)
    reader = Reader([str(tmp_path / "data.gz")], SPEC, PROBLEM)
    augmentation = make_augmentation(AugmentSettings(**augment), PROBLEM, 5)
    content = reader.read("train", max_bytes)
    return Split(reader, content, batch, shuffle_seed=1, augmentation=augmentation, **options)


def read(split: Split, turns: int, start: int = 0, worker: int = 0) -> tuple[np.ndarray, ...]:
    """All pictures and labels of a worker's batches, one after the other."""
    context = tf.distribute.InputContext(split.workers, worker, split.replicas)
    batches = list(split.batches(context, start).take(turns))
    return (
        np.concatenate([features["photo"] for features, _ in batches]),
        np.concatenate([label for _, label in batches]),
    )


@pytest.mark.slow
def test_replicas_share_the_pictures_of_a_step(tmp_path: Path) -> None:
    max_bytes = 0
    alone = read(load(tmp_path, max_bytes), 5)
    shared = load(tmp_path, max_bytes, batch=2, replicas=2)
    for one, other in zip(alone, read(shared, 10), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.slow
def test_workers_share_the_pictures_of_a_step(tmp_path: Path) -> None:
    alone, _ = read(load(tmp_path), 5)
    shared = load(tmp_path, batch=2, replicas=2, workers=2)
    parts = [read(shared, 5, worker=worker)[0].reshape(5, 2, 8, 8, 1) for worker in (0, 1)]
    np.testing.assert_allclose(np.concatenate(parts, 1).reshape(alone.shape), alone, atol=1e-5)


@pytest.mark.slow
def test_resumed_training_has_the_pictures_of_its_step(tmp_path: Path) -> None:
    split = load(tmp_path)
    whole = [part[2 * 4 :] for part in read(split, 6)]
    for one, other in zip(whole, read(split, 4, start=2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_step_has_the_pictures_of_another(tmp_path: Path) -> None:
    pixels, _ = read(load(tmp_path, batch=10, augment={"rotate": 0.1}), 2)
    order = np.argsort(pixels.reshape(20, -1).mean(1).round())
    assert np.abs(np.diff(pixels[order].reshape(10, 2, -1), axis=1)).mean(-1).min() > 0.01


def test_shares_are_those_of_a_beta_distribution() -> None:
    shares = draw_shares(20_000, tf.constant([1, 2], tf.int64), 0.2).numpy()
    assert shares.min() >= 0
    assert shares.max() <= 1
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert shares.var() == pytest.approx(1 / (4 * (2 * 0.2 + 1)), abs=0.005)


def test_mixture_has_the_pixels_labels_and_weights_of_its_parts() -> None:
    """Pixels by the shares; labels by the shares and the weights."""
    label, shares = tf.constant([[0], [2]], tf.int64), tf.constant([0.75, 0.5])
    features = {"photo": tf.constant(PIXELS[:2])}
    others = {"photo": tf.constant(PIXELS[2:4])}
    weights, other_weights = tf.constant([1.0, 0.0]), tf.constant([3.0, 2.0])
    mixed, labels, weighed = mix(
        (features, label, weights),
        (others, tf.constant([[1], [1]], tf.int64), other_weights),
        shares,
    )
    np.testing.assert_allclose(mixed["photo"][0], 0.75 * PIXELS[0] + 0.25 * PIXELS[2], rtol=1e-6)
    np.testing.assert_allclose(weighed, [1.5, 1.0])
    np.testing.assert_allclose(labels, [[0, 1, 0.5], [2, 1, 0]])


PREDICTED = tf.constant([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]])
MIXED = tf.constant([[0.0, 1, 0.75], [2, 1, 0.4]])
ONE_HOT = [[0.75, 0.25, 0], [0, 0.6, 0.4]]


def test_the_loss_is_that_of_the_mixed_one_hot_label() -> None:
    loss = MixedLoss(tf_keras.losses.SparseCategoricalCrossentropy())
    expected = tf_keras.losses.categorical_crossentropy(ONE_HOT, PREDICTED)
    np.testing.assert_allclose(loss.call(MIXED, PREDICTED), expected, rtol=1e-6)
    again = MixedLoss.from_config(loss.get_config())
    np.testing.assert_allclose(again.call(MIXED, PREDICTED), expected, rtol=1e-6)
    plain = loss.call(tf.constant([[0], [2]]), PREDICTED)
    np.testing.assert_allclose(plain, [-math.log(0.7), -math.log(0.5)], rtol=1e-6)


def test_metrics_take_the_larger_share() -> None:
    metric = with_larger_share(tf_keras.metrics.SparseCategoricalAccuracy())
    metric.update_state(MIXED, PREDICTED)
    assert float(metric.result()) == 0.5
    metric.update_state(tf.constant([[0], [2]]), PREDICTED)
    assert float(metric.result()) == 0.75


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((TransformedFeature("x", "numeric", (1,)),), "no feature is an image"),
        (
            (PHOTO, TransformedFeature("area", "categorical", (1,), 6)),
            "'area' is categorical",
        ),
    ],
)
def test_features_that_cannot_be_changed_are_refused(
    features: tuple[TransformedFeature, ...], message: str
) -> None:
    problem = Problem(Task.MULTICLASS, "y", ("a", "b", "c"), features)
    with pytest.raises(TrainingError, match=message):
        make_augmentation(AugmentSettings(mixup=0.2), problem, 1)
