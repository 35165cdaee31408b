"""Environment and data of these tests; TensorFlow reads both settings below only once."""

from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import random

import pytest
import tensorflow as tf
from trainer_data import Row, Transformed, make_image, run_transform

from trainer_module.settings import TrainerSettings

# Two logical CPUs make real replicas.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(scope="session")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Binary, with a number, an optional number, an optional integer and text, and an identifier.

    The label, 0.0 or 1.0, follows `fare` and `company`; 1 is the more frequent one, and the first
    row of the train split has none.
    """
    generator = random.Random(7)  # noqa: S311

    def make_row(index: int) -> Row:
        fare = generator.uniform(0, 100)
        company = generator.choice(["Ace", "Best", "City"])
        return {
            "fare": fare,
            "constant": 0.1,
            "miles": None if index % 4 == 0 else fare / 3,
            "area": None if index % 5 == 0 else generator.choice([8, 32]),
            "company": None if index % 7 == 0 else company,
            "trip id": index,
            "tipped": None if index == 0 else float(fare > 30 or company == "City"),
        }

    rows = [make_row(index) for index in range(600)]
    settings = TrainerSettings.model_validate(
        {
            "label": "tipped",
            "task": "binary",
            "features": {
                "area": {"type": "categorical"},
                "company": {"type": "categorical", "vocabulary_size": 3},
                "trip id": {"type": "ignore"},
            },
            "model": {"kind": "mlp", "hidden_units": [16]},
            "train": {"epochs": 3, "batch_size": 32, "learning_rate": 0.01},
        }
    )
    return run_transform(tmp_path_factory.mktemp("trips"), rows[:450], rows[450:], settings)


@pytest.fixture(scope="session")
def shades(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Multiclass: grey images, with the text label dark, light or mid."""
    generator = random.Random(7)  # noqa: S311

    def make_row() -> Row:
        name, shade = generator.choice([("dark", 20), ("light", 230), ("mid", 128)])
        return {"image": make_image(shade + generator.randint(-15, 15)), "shade": name}

    rows = [make_row() for _ in range(200)]
    settings = TrainerSettings.model_validate(
        {
            "label": "shade",
            "task": "multiclass",
            "features": {"image": {"type": "image", "height": 12, "width": 10, "channels": 1}},
            "model": {"kind": "cnn", "filters": [8], "hidden_units": [16]},
            "train": {"epochs": 8, "batch_size": 16, "learning_rate": 0.01},
        }
    )
    return run_transform(tmp_path_factory.mktemp("shades"), rows[:150], rows[150:], settings)


@pytest.fixture(scope="session")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Regression: the price is twice the size, plus 10 in the north."""
    generator = random.Random(7)  # noqa: S311

    def make_row() -> Row:
        size, north = generator.uniform(0, 5), generator.random() < 0.5
        side = "north" if north else "south"
        return {"size": size, "side": side, "price": 2 * size + 10 * north}

    rows = [make_row() for _ in range(300)]
    settings = TrainerSettings.model_validate(
        {
            "label": "price",
            "task": "regression",
            "model": {"kind": "wide_deep", "hidden_units": [16]},
            "train": {"epochs": 6, "batch_size": 16, "learning_rate": 0.05},
        }
    )
    return run_transform(tmp_path_factory.mktemp("houses"), rows[:240], rows[240:], settings)
