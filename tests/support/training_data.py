"""Fixtures: small data sets taken through Transform, and models trained on them; made once."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.support.trainer_data import (
    SMALLEST_BERT,
    Row,
    Transformed,
    made_once,
    make_image,
    transformed_once,
)
from tests.support.warm_data import export, make_orders_before, make_orders_later
from trainer_module.settings import TrainerSettings


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
    return transformed_once(tmp_path_factory, "trips", rows[:450], rows[450:], settings)


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
    return transformed_once(tmp_path_factory, "shades", rows[:150], rows[150:], settings)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Multiclass: scikit-learn's pictures of digits, of 8x8 pixels."""
    found = load_digits()

    def make_row(index: int) -> Row:
        pixels = (found.images[index] * 15).astype(np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(pixels).save(encoded, "PNG")
        return {"image": encoded.getvalue(), "digit": int(found.target[index])}

    rows = [make_row(index) for index in range(400)]
    settings = TrainerSettings.model_validate(
        {
            "label": "digit",
            "task": "multiclass",
            "features": {"image": {"type": "image", "height": 8, "width": 8, "channels": 1}},
            "model": {"kind": "cnn", "filters": [8], "hidden_units": [32]},
            "train": {"epochs": 1, "batch_size": {"global": 32}, "learning_rate": 0.01},
        }
    )
    return transformed_once(tmp_path_factory, "digits", rows[:320], rows[320:], settings)


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
    return transformed_once(tmp_path_factory, "houses", rows[:240], rows[240:], settings)


def make_review(generator: random.Random, index: int) -> Row:
    """Whether a review, or its title, has a good word; with a random number."""
    words = ["the", "film", "was", "long", "actors", "story"]

    def make_text(is_good: bool) -> str:
        word = "great" if is_good else "awful"
        chosen = [*generator.choices(words, k=generator.randint(2, 6)), word]
        return " ".join(generator.sample(chosen, len(chosen)))

    liked = generator.random() < 0.5
    text = None if index % 9 == 0 else make_text(liked)
    title = make_text(liked)
    return {"review": text, "title": title, "length": generator.random(), "liked": int(liked)}


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Binary: a bag of terms, a sequence of tokens, and a number."""
    generator = random.Random(7)  # noqa: S311
    rows = [make_review(generator, index) for index in range(200)]
    settings = TrainerSettings.model_validate(
        {
            "label": "liked",
            "task": "binary",
            "features": {
                "review": {"type": "text", "max_tokens": 8, "vocabulary_size": 50},
                "title": {"type": "text", "max_tokens": 8, "encoding": "sequence"},
            },
            "model": {"kind": "bag"},
            "train": {"epochs": 3, "batch_size": 16, "learning_rate": 0.01},
        }
    )
    return transformed_once(tmp_path_factory, "reviews", rows[:150], rows[150:], settings)


@pytest.fixture(scope="session")
def opinions(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Binary: titles of reviews in pieces of words, for BERT."""
    generator = random.Random(7)  # noqa: S311
    rows = [make_review(generator, index) for index in range(120)]
    rows = [{"title": row["title"], "liked": row["liked"]} for row in rows]
    settings = TrainerSettings.model_validate(
        {
            "label": "liked",
            "task": "binary",
            "features": {"title": {"type": "text", "max_tokens": 8, "vocabulary_size": 60}},
            "model": {"kind": "bert", "size": SMALLEST_BERT, "dropout": 0.0},
            "train": {"epochs": 1, "batch_size": 16, "learning_rate": 0.01},
        }
    )
    return transformed_once(tmp_path_factory, "opinions", rows[:90], rows[90:], settings)


@pytest.fixture(scope="session")
def opinions_model(opinions: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An exported model of `opinions`, trained as they say."""
    return _model(opinions, tmp_path_factory, "opinions_model")


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Multiclass, of numbers and text: what an old model is trained on."""
    return make_orders_before(tmp_path_factory)


@pytest.fixture(scope="session")
def later_orders(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """The same some time later: with other values, classes and columns."""
    return make_orders_later(tmp_path_factory)


@pytest.fixture(scope="session")
def orders_model(orders: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An exported model of `orders`, trained as they say."""
    return _model(orders, tmp_path_factory, "orders_model")


@pytest.fixture(scope="session")
def later_orders_model(
    later_orders: Transformed, orders_model: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """An exported model of `later_orders` that began with the weights of `orders_model`."""
    return _model(later_orders, tmp_path_factory, "later_orders_model", orders_model)


@pytest.fixture(scope="session")
def trips_model(trips: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An exported model of `trips`, trained as they say."""
    return _model(trips, tmp_path_factory, "trips_model")


@pytest.fixture(scope="session")
def shades_model(shades: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An exported model of `shades`, trained as they say."""
    return _model(shades, tmp_path_factory, "shades_model")


@pytest.fixture(scope="session")
def digits_model(digits: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An exported model of `digits`, trained by TensorFlow's default strategy."""
    return _model(digits, tmp_path_factory, "digits_model")


@pytest.fixture(scope="session")
def houses_model(houses: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An exported model of `houses`, trained as they say."""
    return _model(houses, tmp_path_factory, "houses_model")


def _model(
    data: Transformed, factory: pytest.TempPathFactory, name: str, base: str | None = None
) -> str:
    """The path of the model; its record lies in `model_run` beside it."""
    directory = made_once(factory, name, lambda directory: export(data, directory, base))
    return data.fn_args(directory).serving_model_dir
