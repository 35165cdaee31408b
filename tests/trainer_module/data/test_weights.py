"""Weights of classes and of examples: what they are, and that both loops count by them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from sklearn.utils.class_weight import compute_class_weight

from tests.support.trainer_data import (
    Transformed,
    read_record,
    transformed_once,
)
from tests.support.trainings import run_fn
from trainer_module.data.input_pipeline import Weighting, weights_by_class
from trainer_module.data.loading import load_data
from trainer_module.errors import TrainingError
from trainer_module.settings import Loop, TrainerSettings
from trainer_module.trainer import open_strategy

CLASSES = ("bronze", "gold", "silver")


def test_balanced_is_scikit_learns() -> None:
    counts = (50, 10, 30)
    labels = np.repeat(np.arange(3), counts)
    found = weights_by_class("balanced", "plan", CLASSES, counts)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(found, expected)


def test_classes_without_a_configured_weight_count_1() -> None:
    assert weights_by_class({"gold": 5.0}, "plan", CLASSES, (1, 1, 1)) == (1, 5, 1)
    assert weights_by_class(None, "plan", CLASSES, (1, 1, 1)) == ()
    without_silver = weights_by_class("balanced", "plan", CLASSES, (6.0, 1.5))
    np.testing.assert_allclose(without_silver, (7.5 / 18, 7.5 / 4.5, 1))
    with pytest.raises(TrainingError, match=r"'golden'.*'plan'"):
        weights_by_class({"golden": 5.0}, "plan", CLASSES, (1, 1, 1))


def test_weights_of_classes_and_rows_are_multiplied() -> None:
    label, column = tf.constant([[0], [2]], tf.int64), tf.constant([[3.0], [0.5]])
    for by_class, sums, given, expected in [
        ((1, 5, 2), [3, 0, 0.5], column, [3, 1]),
        ((), [3, 0, 0.5], column, [3, 0.5]),
        ((1, 5, 2), [1, 0, 1], None, [1, 2]),
    ]:
        found = Weighting.over(by_class, sums, 2).weigh(label, given)
        np.testing.assert_allclose(found, np.array(expected) / np.mean(expected), rtol=1e-6)
    assert Weighting.over((), [1, 0, 1], 2).weigh(label, None) is None
    with pytest.raises(TrainingError, match=r"train\.class_weights"):
        Weighting.over((0, 5, 0), [1, 0, 1], 2)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Regression: twice the size; half of the rows are wrong, and do not count."""
    generator = random.Random(7)  # noqa: S311

    def make_row(index: int) -> dict:
        size = generator.uniform(0, 5)
        right = index % 2
        return {"size": size, "trust": 0.5 * right, "price": 2 * size if right else -8.0}

    rows = [make_row(index) for index in range(160)]
    settings = TrainerSettings.model_validate(
        {
            "label": "price",
            "weight": "trust",
            "task": "regression",
            "model": {"kind": "wide_deep", "hidden_units": [16]},
            "train": {"epochs": 8, "batch_size": 8, "learning_rate": 0.05},
        }
    )
    return transformed_once(tmp_path_factory, "judged", rows[:120], rows[120:], settings)


@pytest.mark.slow
def test_rows_of_weight_0_are_not_learnt(judged: Transformed, tmp_path: Path) -> None:
    run_fn(judged.fn_args(tmp_path, train={"loop": Loop.CUSTOM}))
    history = read_record(tmp_path / "Format-Serving")["history"]
    assert min(history["val_loss"]) < 0.5
    serve = tf.saved_model.load(str(tmp_path / "Format-Serving")).signatures["serving_raw"]
    assert set(serve.structured_input_signature[1]) == {"size"}, "a request needs no weight"
    values = serve(size=tf.constant([1.0, 4.0]))["value"]
    np.testing.assert_allclose(values, [2, 8], atol=1)


@pytest.mark.slow
def test_weight_column_is_no_feature(judged: Transformed, tmp_path: Path) -> None:
    fn_args = judged.fn_args(tmp_path)
    tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    settings = judged.settings
    data = load_data(fn_args, tft_output, settings, open_strategy(settings), 1)
    assert [feature.name for feature in data.problem.features] == ["size"]
    _, label, weight = next(iter(data.evaluation.batches(tf.distribute.InputContext())))
    np.testing.assert_array_equal(weight, 1)
    assert data.train.examples == 60, "what does not count is left out"
    assert label.numpy().min() >= 0
    right = [row["price"] for row in judged.train if row["trust"]]
    assert data.problem.label_mean == pytest.approx(np.mean(right))
    assert data.problem.label_deviation == pytest.approx(np.std(right), rel=1e-5)


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Binary: one in sixteen, or half of those whose size is above 4."""
    generator = random.Random(8)  # noqa: S311
    sizes = [generator.uniform(0, 5) for _ in range(1_000)]
    rows = [{"size": s, "y": int(generator.random() < (0.4 if s > 4 else 0.0))} for s in sizes]
    settings = TrainerSettings.model_validate({"label": "y", "task": "binary"})
    return transformed_once(tmp_path_factory, "rare", rows, rows[:200], settings)


# Weights of classes count in the same way in each network.
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tabular", "trees"])
def test_class_weights_leave_probabilities_calibrated(
    rare: Transformed, tmp_path: Path, kind: str
) -> None:
    model = {"kind": kind} | ({"trees": 60} if kind == "trees" else {"hidden_units": [16]})
    steps = {} if kind == "trees" else {"batch_size": 50, "epochs": 10, "learning_rate": 0.02}
    train = {"class_weights": "balanced", "early_stopping": False, **steps}
    settings = TrainerSettings.model_validate(
        {"label": "y", "task": "binary", "model": model, "train": train}
    )
    run_fn(replace(rare, settings=settings).fn_args(tmp_path))
    serve = tf.saved_model.load(str(tmp_path / "Format-Serving")).signatures["serving_raw"]
    size = np.array([row["size"] for row in rare.train], np.float32)
    served = serve(size=tf.constant(size))["scores"].numpy()[:, 1]
    share = np.mean([row["y"] for row in rare.train])
    assert served.mean() == pytest.approx(share, rel=0.3), "balanced, it would be 0.25 or more"
    assert served[size > 4.2].mean() > 5 * served[size < 3].mean()
