"""A small model that our own code has exported and pushed: how it is made, and its rows."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.pusher.versions import list_versions, push_new_version
from components.serving.model import Model
from tests.support.trainer_data import Row, run_transform, to_example
from trainer_module.settings import TrainerSettings
from trainer_module.trainer import run_fn

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "label": "tipped",
    "task": "binary",
    "features": {
        "area": {"type": "categorical"},
        "company": {"type": "categorical", "vocabulary_size": 3},
        "trip id": {"type": "ignore"},
        "tags": {"type": "categorical", "many": True},
    },
    "model": {"kind": "mlp", "hidden_units": [8]},
    "train": {"epochs": 2, "batch_size": 32, "learning_rate": 0.01},
}


def make_rows(count: int) -> list[Row]:
    """Numbers, whole numbers and text with gaps, lists of several lengths, and a label."""
    generator = random.Random(7)  # noqa: S311

    def make_row(index: int) -> Row:
        fare = round(generator.uniform(0, 100), 2)
        company = generator.choice(["Ace", "Best, Ltd", "Café"])
        return {
            "fare": fare,
            "price (EUR)": round(fare / 3, 3),
            "area": None if index % 5 == 0 else generator.choice([8, 32]),
            "company": None if index % 7 == 0 else company,
            "tags": [f"t{n}" for n in range(index % 3)],
            "trip id": index,
            "tipped": float(fare > 30),
        }

    return [make_row(index) for index in range(count)]


@dataclass(frozen=True)
class Pushed:
    """A folder of one version."""

    serving: Path

    @property
    def version(self) -> Path:
        return list_versions(self.serving)[-1]


def push(root: Path) -> None:
    rows = make_rows(300)
    data = run_transform(root, rows[:250], rows[250:], TrainerSettings.model_validate(SETTINGS))
    fn_args = data.fn_args(root)
    run_fn(fn_args)
    push_new_version(Path(fn_args.serving_model_dir), root / "trips")


def expected(model: Model, rows: list[Row]) -> np.ndarray:
    """The probability of the second class, by serialised tf.Examples."""
    inputs = tf.constant([to_example(row) for row in rows])
    loaded = _load(model.folder)
    return loaded.signatures["serving_default"](examples=inputs)["scores"].numpy()[:, 1]


@functools.cache
def _load(version: Path) -> Any:
    return tf.saved_model.load(str(version))
