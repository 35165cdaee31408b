"""Text that nothing can be learnt from, and models that cannot take it as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tensorflow as tf

from trainer_module.errors import DataError, TrainingError
from trainer_module.features.text.transform import Rarities, TermOrder, transform_texts
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, TextFeature
from trainer_module.settings.model import load_builder


def test_a_column_without_a_token_is_refused() -> None:
    wanted = re.escape(
        "column 'review' of type: text has no token in any row of the train split; set "
        "features: {review: {type: ignore}}."
    )
    for buckets in (None, 10):
        order = TermOrder("review", 5, buckets)
        for analysis in (order, Rarities(order)):
            with pytest.raises(DataError, match=wanted):
                analysis([])


def test_numbers_are_no_text() -> None:
    columns, features = {"price": tf.constant([[1.5]])}, {"price": TextFeature(type="text")}
    with pytest.raises(DataError, match="'price' holds numbers, and cannot be text; set type: num"):
        transform_texts(columns, features)


@pytest.mark.parametrize(
    ("kind", "shape", "sizes", "message"),
    [
        ("bag", None, {}, "model 'bag' needs a column of text, but no column"),
        (
            "text_cnn",
            (4, 2),
            {},
            "needs text as a sequence of tokens; set {type: text} for a column",
        ),
    ],
)
def test_models_without_their_column_are_refused(
    kind: str, shape: tuple[int, ...] | None, sizes: dict[str, Any], message: str
) -> None:
    text = TransformedFeature("review", "text", shape or (), 9)
    features = (text,) if shape else (TransformedFeature("price", "numeric", (1,)),)
    settings = ModelSettings(kind=kind, **sizes)
    with pytest.raises(TrainingError, match=re.escape(message)):
        load_builder(kind)(Problem("binary", "y", ("no", "yes"), features), settings)
