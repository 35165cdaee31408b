"""Data that has moved on since a model was trained, and the start of a training on it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras

from tests.support.trainer_data import Row, Transformed, transformed_once
from tests.support.trainings import begin, open_training, run_fn
from trainer_module.settings import ModelSettings, TrainerSettings
from trainer_module.training.plan import TrainingInputs, TrainingResult

ODD = b"caf\xe9"
"""A value that is no UTF-8."""


def make_orders(
    factory: pytest.TempPathFactory,
    name: str,
    companies: list[Any],
    kinds: list[str],
    **columns: float,
) -> Transformed:
    """Multiclass: `kind` follows `company` and `amount`; the first companies are more frequent."""
    generator = random.Random(7)  # noqa: S311

    def make_row(index: int) -> Row:
        # The first company comes up most often, then the second: their order in the vocabulary.
        company = generator.choices(companies, [2.0**-i for i in range(len(companies))])[0]
        amount = generator.uniform(0, 10)
        kind = kinds[(companies.index(company) + int(amount > 5)) % len(kinds)]
        return {"amount": amount, "company": company, "kind": kind, **columns, "zip": float(index)}

    settings = TrainerSettings.model_validate(
        {
            "label": "kind",
            "task": "multiclass",
            "features": {"company": {"type": "categorical", "vocabulary_size": 10}},
            "model": {"kind": "mlp", "hidden_units": [16, 8]},
            "train": {"epochs": 3, "batch_size": 32, "learning_rate": 0.02},
        }
    )
    rows = [make_row(index) for index in range(400)]
    return transformed_once(factory, name, rows[:320], rows[320:], settings)


def make_orders_before(factory: pytest.TempPathFactory) -> Transformed:
    """What the old model is trained on."""
    return make_orders(factory, "orders", ["Ace", ODD, "Best"], ["ham", "urgent", "news"], old=1.0)


def make_orders_later(factory: pytest.TempPathFactory) -> Transformed:
    """Other companies lead, one is new; so is a class between the others; a column has gone."""
    kinds = ["ham", "urgent", "news", "spam"]
    companies = ["Best", "New", ODD, "Ace"]
    return make_orders(factory, "later_orders", companies, kinds, bonus=2.0)


def using(data: Transformed, kind: str, **model: Any) -> Transformed:
    """The same data for another model."""
    values = {**data.settings.model.model_dump(), "kind": kind, **model}
    model_settings = ModelSettings.model_validate(values)
    return replace(data, settings=data.settings.model_copy(update={"model": model_settings}))


def export(data: Transformed, directory: Path, base: str | None = None, **train: Any) -> str:
    """Trains, from scratch or from a base; the path of the exported model."""
    fn_args = data.fn_args(directory, train=train)
    fn_args.base_model = base
    run_fn(fn_args)
    return str(fn_args.serving_model_dir)


def given(data: Transformed, directory: Path, base: str | None, **train: Any) -> TrainingInputs:
    fn_args = data.fn_args(directory, train=train)
    fn_args.base_model = base
    return open_training(fn_args)


def prepare(data: Transformed, directory: Path, base: str | None, **train: Any) -> TrainingResult:
    """All that happens before the first step."""
    return begin(given(data, directory, base, **train))


def load(path: str) -> tf_keras.Model:
    return tf_keras.models.load_model(path, compile=False)


def layer(model: tf_keras.Model, name: str) -> list[np.ndarray]:
    return model.get_layer(name).get_weights()


def dense(model: tf_keras.Model) -> list[list[np.ndarray]]:
    """The weights of the hidden layers, in order."""
    layers = [x for x in model.layers if isinstance(x, tf_keras.layers.Dense)]
    return [x.get_weights() for x in layers if x.name.startswith("dense")]
