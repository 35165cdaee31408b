"""What models make of text before their own layers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from trainer_module.base_model import Axis, find_axes
from trainer_module.features.text.layers import (
    LargestInText,
    TermIndices,
    TokensMean,
    WeightedSum,
)
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import load_builder

BAG = TransformedFeature("re view", "text", (4, 2), 9)
TOKENS = TransformedFeature("title", "text", (4,), 7)


def test_padding_does_not_count() -> None:
    vectors = tf.constant([[[1.0], [10.0], [100.0]]])
    pairs = tf.constant([[[3.0, 0.5], [4.0, 2.0], [0.0, 0.0]]])
    assert WeightedSum()([vectors, pairs]).numpy() == WeightedSum.SCALE * 20.5
    assert TokensMean()([vectors, tf.constant([[3, 4, 0]])]).numpy() == 5.5
    assert LargestInText()([vectors, tf.constant([[3, 4, 0]])]).numpy() == 10
    for layer in (TokensMean(), LargestInText()):
        assert layer([vectors, tf.constant([[0, 0, 0]])]).numpy() == 0, "an empty text"


def test_indices_have_all_their_digits_in_half_precision() -> None:
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        assert TermIndices()(tf.constant([[[65_537.0, 1.0]]])).numpy() == 65_537
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("kind", ["bag", "text_cnn", "tabular"])
def test_each_row_of_the_vectors_stands_for_a_word(kind: str) -> None:
    problem = Problem("binary", "y", ("no", "yes"), (BAG, TOKENS))
    settings = ModelSettings(kind=kind, hidden_units=[3], filters=[2], members=2)
    model = load_builder(kind)(problem, settings)
    assert np.isfinite(model({"re view": np.zeros((1, 4, 2)), "title": np.zeros((1, 4))})).all()
    of_words = {axes[0] for name, axes in find_axes(model, problem).items() if "embeddings" in name}
    assert of_words == {Axis("vocabulary", "re view"), Axis("vocabulary", "title")}
