"""Columns whose names differ only in case, or collide with a layer or an argument, are trained."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.trainer_data import Row, Transformed, transformed_once
from tests.support.warm_data import export, using
from trainer_module.export.interface import request_names
from trainer_module.settings import TrainerSettings

COLUMNS = ["total", "Total", "x y", "X Y", "self", "rent", "rent_flat", "city", "city_embedding"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    generator = random.Random(3)  # noqa: S311

    def make_row() -> Row:
        row: Row = {name: generator.random() for name in COLUMNS}
        row |= {name: generator.choice("abc") for name in ("city", "city_embedding")}
        row["place"] = generator.choice(["road\ntown", "lane\r\ntown"])
        return row | {"label": int(row["total"] > 0.5)}

    rows = [make_row() for _ in range(120)]
    settings = TrainerSettings.model_validate(
        {
            "label": "label",
            "task": "binary",
            "features": {
                "rent": {"type": "numeric", "buckets": 4},
                "city": {"type": "categorical", "encoding": "embedding"},
            },
            "model": {"kind": "mlp", "hidden_units": [4]},
            "train": {"epochs": 1, "batch_size": 32},
        }
    )
    return transformed_once(tmp_path_factory, "odd_names", rows[:90], rows[90:], settings)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "wide_deep", "tabular"])
def test_a_model_of_odd_names_is_trained_and_exported(
    odd: Transformed, tmp_path: Path, kind: str
) -> None:
    import tensorflow as tf

    folder = export(using(odd, kind), tmp_path)
    signature = tf.saved_model.load(str(folder)).signatures["serving_raw"]
    inputs = signature.structured_input_signature[1]
    assert len(inputs) == len(COLUMNS) + 1
    values = {
        name: tf.constant(["a"]) if spec.dtype == tf.string else tf.constant([0.25])
        for name, spec in inputs.items()
    }
    assert signature(**values)["scores"].shape == (1, 2)


@pytest.mark.slow
def test_categories_with_line_breaks_are_in_the_vocabulary(odd: Transformed) -> None:
    assert set(odd.tft_output.vocabulary_by_name("place")) == {b"road town", b"lane town"}
    assert set(odd.transform(odd.train)["place"].ravel()) == {0, 1}


def test_request_names_differ_by_more_than_case_and_are_no_arguments() -> None:
    names = request_names(COLUMNS)
    assert len({name.lower() for name in names}) == len(COLUMNS)
    assert "self" not in names
    assert request_names(["fare", "class"]) == ["fare", "column_class"]
