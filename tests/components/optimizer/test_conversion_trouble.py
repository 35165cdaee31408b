"""Conversions that cannot succeed: each is a sentence, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.lite.python.lite import TFLiteConverterBase

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


def test_operation_that_litert_lacks(tmp_path: Path) -> None:
    model = export_function(
        lambda x: tf.cast(tf.bitwise.bitwise_and(tf.cast(x[:, :1], tf.int32), 3), tf.float32),
        tmp_path / "model",
    )
    with pytest.raises(
        TrainingError, match=r"no operation BitwiseAnd: replace .* remove float from"
    ):
        convert("float", model, make_sample(PRICE), tmp_path)


def test_converted_model_that_does_not_run(tmp_path: Path) -> None:
    """LiteRT's converter writes what its runtime then refuses."""
    model = export_function(lambda x: tf.math.lgamma(x)[:, :1], tmp_path / "model")
    with pytest.raises(
        TrainingError, match=r"converted model fails \(Given shapes.*SUB.*\): replace the lay"
    ):
        convert("float", model, make_sample(PRICE), tmp_path)


def test_operation_that_onnx_lacks(tmp_path: Path) -> None:
    model = export_function(lambda x: tf.math.lgamma(x)[:, :1], tmp_path / "model")
    with pytest.raises(
        TrainingError, match=r"ONNX .*lacks the operation Lgamma\. Replace the layer"
    ):
        convert("onnx", model, make_sample(PRICE), tmp_path)


def test_whole_numbers_that_int16x8_does_not_take(tmp_path: Path) -> None:
    tags = TransformedFeature("tags", "categorical", (2,), vocabulary_size=6, many=True)
    problem = make_problem("regression", (tags,))
    model = export(build("mlp", problem), problem, tmp_path / "model")
    with pytest.raises(TrainingError, match=r"integers of the feature 'tags' to int16x8: use"):
        convert("int16x8", model, make_sample(problem), tmp_path)


@pytest.mark.parametrize("name", ["float", "onnx"])
def test_numbers_that_are_none(name: str, tmp_path: Path) -> None:
    model = export_function(
        lambda x: tf.where(x[:, :1] > 10.0, 1.0, tf.sqrt(x[:, :1])), tmp_path / "model"
    )
    sample = make_sample(PRICE)
    with pytest.raises(TrainingError, match=r"of the original model is not finite for \d+ of 40"):
        convert(name, model, sample, tmp_path)


def test_sample_without_an_example(price: Path, tmp_path: Path) -> None:
    empty = {name: values[:0] for name, values in make_sample(PRICE).items()}
    with pytest.raises(TrainingError, match=r"has no examples to calibrate"):
        convert("int8", price, empty, tmp_path)
    assert not list(tmp_path.iterdir())


def test_sample_without_a_feature(price: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"lacks the feature 'amount' of the model"):
        convert("float", price, {"other": np.zeros((2, 1))}, tmp_path)


def test_model_of_another_release(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the model cannot be converted: .*inputs\.json"):
        convert("float", tmp_path, make_sample(PRICE), tmp_path)


@pytest.mark.parametrize(
    ("trouble", "seconds", "message"),
    [
        ("crash", SECONDS, r"the conversion to float was killed by SIGABRT"),
        (
            "kill",
            SECONDS,
            r"the conversion to float was killed by SIGKILL \(out of memory\?\)",
        ),
        ("hang", 3, r"the conversion to float took longer than 3"),
    ],
)
def test_process_that_ends_badly(
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


def test_folder_of_before_is_replaced(price: Path, tmp_path: Path) -> None:
    """As an earlier attempt was interrupted, or was of another model."""
    folder = tmp_path / "float"
    folder.mkdir()
    (folder / "old").write_text("")
    (tmp_path / ".float.part").mkdir()
    convert_in_child("float", price, make_sample(PRICE), folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["float"]
    assert sorted(path.name for path in folder.iterdir()) == ["model.tflite", VARIANT_FILE]


def test_int8_of_another_converter_is_refused(
    price: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not look at numbers alone would quantise what is quantised."""
    quantize = TFLiteConverterBase._quantize
    monkeypatch.setattr(
        TFLiteConverterBase, "_quantize", lambda *given, **named: quantize(*given, **named)
    )
    with pytest.raises(TrainingError, match=r"LiteRT's int8 cannot be relied on .*_quantize has"):
        convert("int8", price, make_sample(PRICE), tmp_path)
