"""Weights of classes and of examples: what they are, and that both loops count by them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from sklearn.utils.class_weight import compute_class_weight
from trainer_data import Transformed, read_record, transformed_once

from trainer_module.errors import TrainingError
from trainer_module.settings import Loop, TrainerSettings
from trainer_module.trainer import load_data, open_strategy, run_fn
from trainer_module.weights import describe_imbalance, weigh, weights_by_class

CLASSES = ("bronze", "gold", "silver")


def test_balanced_is_scikit_learns() -> None:
    counts = (50, 10, 30)
    labels = np.repeat(np.arange(3), counts)
    found = weights_by_class("balanced", "plan", CLASSES, counts)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(found, expected)


def test_classes_that_are_not_named_count_once() -> None:
    assert weights_by_class({"gold": 5.0}, "plan", CLASSES, (1, 1, 1)) == (1, 5, 1)
    assert weights_by_class(None, "plan", CLASSES, (1, 1, 1)) == ()
    with pytest.raises(TrainingError, match=r"'golden', which is no class of 'plan'; did you mean"):
        weights_by_class({"golden": 5.0}, "plan", CLASSES, (1, 1, 1))


def test_a_rare_class_is_said_once() -> None:
    said = describe_imbalance("plan", CLASSES, (500, 20, 480))
    assert said == (
        "class 'gold' of label 'plan' is 0.02 of the train split (20 of 1,000 examples): "
        "`train: {class_weights: balanced}` would make all classes count alike"
    )
    assert describe_imbalance("plan", CLASSES, (500, 70, 430)) is None
    assert describe_imbalance("price", (), ()) is None


def test_weights_of_both_kinds_are_multiplied() -> None:
    label, column = tf.constant([[0], [2]], tf.int64), tf.constant([[3.0], [0.5]])
    np.testing.assert_allclose(weigh(label, (1, 5, 2), column), [3, 1])
    np.testing.assert_allclose(weigh(label, (), column), [3, 0.5])
    np.testing.assert_allclose(weigh(label, (1, 5, 2), None), [1, 2])
    assert weigh(label, (), None) is None


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


@pytest.mark.parametrize("loop", Loop)
def test_what_does_not_count_is_not_learnt(judged: Transformed, tmp_path: Path, loop: Loop) -> None:
    run_fn(judged.fn_args(tmp_path, train={"loop": loop}))
    history = read_record(tmp_path / "Format-Serving")["history"]
    assert min(history["val_loss"]) < 0.5
    serve = tf.saved_model.load(str(tmp_path / "Format-Serving")).signatures["serving_raw"]
    assert set(serve.structured_input_signature[1]) == {"size"}, "nobody asks for a weight"
    values = serve(size=tf.constant([1.0, 4.0]))["value"]
    np.testing.assert_allclose(values, [2, 8], atol=1)


def test_the_weight_is_no_feature(judged: Transformed, tmp_path: Path) -> None:
    fn_args = judged.fn_args(tmp_path)
    tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    data = load_data(fn_args, tft_output, judged.settings, open_strategy(judged.settings), 1)
    assert [feature.name for feature in data.problem.features] == ["size"]
    _, label, weight = next(iter(data.evaluation.batches(tf.distribute.InputContext())))
    np.testing.assert_allclose(weight, np.where(label[:, 0] == -8, 0, 0.5))
