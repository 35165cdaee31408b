"""BERT: equal to the reference from its files alone, and files that cannot be used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from safetensors.numpy import load_file, save_file

from trainer_module.errors import DataError, TrainingError
from trainer_module.families.supervised.models.bert import encode, load_weights
from trainer_module.families.supervised.models.bert_files import read_files, read_weights
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, TrainSettings
from trainer_module.settings.model import load_builder
from trainer_module.training.optimizers import build_optimizer

BERT = Path(__file__).parent / "data" / "bert"
"""Made by tools/make_bert_reference.py with Hugging Face's transformers."""
WEIGHTS = "model.safetensors"


def built_encoder(folder: Path, texts: int, length: int) -> tf_keras.Model:
    files = read_files(str(folder))
    inputs = [tf_keras.Input((length,), dtype=tf.int64) for _ in range(texts)]
    states, pooled = encode(inputs, files.shape, dropout=0.1)
    model = tf_keras.Model(inputs, [*states, pooled])
    load_weights(model, read_weights(files))
    return model


def test_hidden_states_equal_those_of_transformers() -> None:
    """Of pairs of texts, each of which is padded here, and both together there."""
    reference = np.load(BERT / "states.npz")
    ids, types = reference["input_ids"].astype(np.int64), reference["token_type_ids"]
    is_first = (types == 0) & (ids > 0)
    first, second = np.where(is_first, ids, 0), np.zeros_like(ids)
    second[:, 0] = ids[0, 0]
    for row, (of_row, kinds) in enumerate(zip(ids, types, strict=True)):
        second[row, 1 : 1 + kinds.sum()] = of_row[kinds == 1]
    *states, pooled = built_encoder(BERT, 2, ids.shape[1])([first, second])
    is_token = np.concatenate([first > 0, second[:, 1:] > 0], 1)
    expected = ids > 0
    assert expected.sum() == is_token.sum() > 300
    for state, right in zip(states, reference["hidden"], strict=True):
        np.testing.assert_allclose(state.numpy()[is_token], right[expected], atol=1e-4)
    np.testing.assert_allclose(pooled, reference["pooled"], atol=1e-4)


def rewrite(folder: Path, change: Callable[[dict[str, np.ndarray]], Mapping[str, Any]]) -> None:
    save_file(dict(change(load_file(BERT / WEIGHTS))), folder / WEIGHTS)


def old_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As files have them that were made from TensorFlow's checkpoints."""
    kinds = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, old in kinds.items():
        tensors = {name.replace(new, old): value for name, value in tensors.items()}
    return tensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the files, to change."""
    return Path(shutil.copytree(BERT, tmp_path / "bert"))


@pytest.mark.parametrize(
    ("change", "tolerance"),
    [
        (lambda t: {name.removeprefix("bert."): value for name, value in t.items()}, 0),
        (old_names, 0),
        (lambda t: {name: value.astype(np.float16) for name, value in t.items()}, 1e-2),
    ],
    ids=["no prefix", "gamma and beta", "float16"],
)
def test_other_names_and_types_of_weights_are_read(
    folder: Path, change: Any, tolerance: float
) -> None:
    right = read_weights(read_files(str(BERT)))
    rewrite(folder, change)
    found = read_weights(read_files(str(folder)))
    assert {name for name in right if "pooler" not in name} <= found.keys()
    for name, value in found.items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, right[name], atol=tolerance)


def set_key(key: str, value: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, key: value}))

    return change


def truncate(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((BERT / WEIGHTS).read_bytes()[:-100])


def pickle_weights(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("model_type", "roberta"), "model_type is 'roberta'"),
        (
            set_key("hidden_size", 64),
            "embeddings.word_embeddings.weight has the shape 500x32",
        ),
        (set_key("num_hidden_layers", 3), "encoder.layer.2.attention.self.query.weight is missing"),
        (truncate, "the file is damaged or incomplete"),
        (
            lambda f: (f / "vocab.txt").open("a").write("more\n"),
            "501 lines, but vocab_size",
        ),
        (
            pickle_weights,
            "pytorch_model.bin is a pickle",
        ),
        (shutil.rmtree, "the folder does not exist"),
    ],
)
def test_unusable_files_are_refused_with_their_key(
    folder: Path, change: Callable[[Path], object], message: str
) -> None:
    change(folder)
    with pytest.raises(DataError) as caught:
        read_files(str(folder))
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)


def problem_of(*features: TransformedFeature) -> Problem:
    return Problem("binary", "y", ("no", "yes"), features)


def text(name: str, length: int = 8, size: int = 500) -> TransformedFeature:
    return TransformedFeature(name, "text", (length,), vocabulary_size=size)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            (text("a", 21), text("b", 21)),
            "'a' and 'b' have up to 41 tokens",
        ),
        ((text("a", size=499),), "vocabulary of 500 pieces"),
    ],
)
def test_features_that_bert_cannot_read_are_refused(features: tuple, message: str) -> None:
    settings = ModelSettings(kind="bert", weights=str(BERT))
    with pytest.raises(TrainingError) as caught:
        load_builder("bert")(problem_of(*features), settings)
    assert message in str(caught.value)


def test_training_begins_with_the_weights_of_the_files() -> None:
    settings = ModelSettings(kind="bert", weights=str(BERT))
    fare = TransformedFeature("fare", "numeric", (1,))
    model = load_builder("bert")(problem_of(text("a"), text("b"), fare), settings)
    words = model.get_layer("bert_words").get_weights()[0]
    np.testing.assert_array_equal(
        words, load_file(BERT / WEIGHTS)["bert.embeddings.word_embeddings.weight"]
    )


@pytest.mark.slow
def test_each_layer_below_the_output_learns_more_slowly() -> None:
    settings = TrainSettings.model_validate(
        {"optimizer": {"kind": "adamw", "layer_decay": 0.5, "weight_decay": 1.0}}
    )
    optimizer = build_optimizer(settings.optimizer, 0.1, 1)
    sizes = {"layers": 2, "hidden": 4, "heads": 2, "max_tokens": 8}
    model_settings = ModelSettings.model_validate({"kind": "bert", "size": sizes})
    model = load_builder("bert")(problem_of(text("a", size=9)), model_settings)
    before = {v.name: v.numpy() for v in model.trainable_variables}
    # A gradient of the same size everywhere: Adam's first step is the rate, in either direction.
    optimizer.apply_gradients([(tf.ones_like(v), v) for v in model.trainable_variables])
    rates = {"words": 0.125, "layer_0_out": 0.25, "layer_1_between": 0.5, "pooler": 1.0}
    for name, factor in rates.items():
        kernel = model.get_layer(f"bert_{name}").weights[0]
        rate = 0.1 * factor
        expected = before[kernel.name] * (1 - rate) - rate
        np.testing.assert_allclose(kernel.numpy(), expected, atol=1e-5)
    norm = model.get_layer("bert_layer_1_norm").weights[0]
    np.testing.assert_allclose(norm.numpy(), 1 - 0.05, atol=1e-5)
    assert optimizer.learning_rate.numpy() == pytest.approx(0.1)
