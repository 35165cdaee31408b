"""Conversions that cannot succeed: each is a sentence, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
import tensorflow as tf
import tf_keras

from components.optimizer.converting import conversion
from components.optimizer.converting.conversion import SECONDS, convert, convert_in_child
from tests.support.exported_models import build, export, make_problem, make_sample
from trainer_module.errors import TrainingError
from trainer_module.export.variants.manifest import VARIANT_FILE
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem

pytestmark = pytest.mark.slow

AMOUNTS = (TransformedFeature("amount", "numeric", (3,)),)
PRICE = make_problem("regression", AMOUNTS)


@pytest.fixture(scope="module")
def price(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(build("mlp", PRICE), PRICE, tmp_path_factory.mktemp("price") / "model")


def export_function(function: object, folder: Path, problem: Problem = PRICE) -> Path:
    """A model that is one operation of TensorFlow's."""
    inputs = problem.make_inputs()
    output = tf_keras.layers.Lambda(function)(inputs["amount"])
    return export(tf_keras.Model(inputs, output), problem, folder)


def _children() -> set[psutil.Process]:
    return set(psutil.Process(os.getpid()).children(recursive=True))


def test_operation_unknown_to_litert_is_named(tmp_path: Path) -> None:
    model = export_function(
        lambda x: tf.cast(tf.bitwise.bitwise_and(tf.cast(x[:, :1], tf.int32), 3), tf.float32),
        tmp_path / "model",
    )
    with pytest.raises(TrainingError, match=r"BitwiseAnd: .* float"):
        convert("float", model, make_sample(PRICE), tmp_path)


def test_model_with_nan_predictions_is_refused(tmp_path: Path) -> None:
    model = export_function(
        lambda x: tf.where(x[:, :1] > 10.0, 1.0, tf.sqrt(x[:, :1])), tmp_path / "model"
    )
    sample = make_sample(PRICE)
    with pytest.raises(TrainingError, match=r"of the original model is not finite for \d+ of 40"):
        convert("float", model, sample, tmp_path)


def test_empty_sample_is_refused(price: Path, tmp_path: Path) -> None:
    empty = {name: values[:0] for name, values in make_sample(PRICE).items()}
    with pytest.raises(TrainingError, match=r"has no examples to calibrate"):
        convert("int8", price, empty, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trouble", "seconds", "message"),
    [
        (
            "kill",
            SECONDS,
            r"float .*SIGKILL",
        ),
        ("hang", 3, r"float took longer than 3"),
    ],
)
def test_crash_or_hang_of_a_conversion_is_an_error(
    price: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    seconds: float,
    message: str,
) -> None:
    monkeypatch.setenv("TROUBLE", trouble)
    monkeypatch.setattr(conversion, "MODULE", "troubled_conversions")
    monkeypatch.setattr(conversion, "SECONDS", seconds)
    # Tests before this one share some that go on.
    others = _children()
    with pytest.raises(TrainingError, match=message):
        convert_in_child("float", price, make_sample(PRICE), tmp_path / "float")
    assert not list(tmp_path.iterdir())
    assert not _children() - others


def test_earlier_output_is_replaced(price: Path, tmp_path: Path) -> None:
    """As an earlier attempt was interrupted, or was of another model."""
    folder = tmp_path / "float"
    folder.mkdir()
    (folder / "old").write_text("")
    (tmp_path / ".float.part").mkdir()
    convert_in_child("float", price, make_sample(PRICE), folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["float"]
    assert sorted(path.name for path in folder.iterdir()) == ["model.tflite", VARIANT_FILE]
