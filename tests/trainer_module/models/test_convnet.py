"""The default for pictures: how deep it is, that it learns from a few, and what it goes on with."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tf_keras
from PIL import Image

from tests.support.trainer_data import Row, Transformed, transformed_once
from tests.support.trainings import train_whole
from tests.support.warm_data import given, load, prepare
from trainer_module.compat.model_optimization import is_wrapper
from trainer_module.errors import TrainingError
from trainer_module.export.saving import export_model
from trainer_module.families.supervised.models.pictures import LARGEST_SIDE, default_filters
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import (
    AugmentSettings,
    ModelSettings,
    Task,
    TrainerSettings,
    WhileTraining,
)
from trainer_module.settings.model import load_builder
from trainer_module.training.building import make_network
from trainer_module.training.compression import describe_quantized
from trainer_module.training.plan import TrainingResult

SIDE, COUNT = 24, 300


def build(height: int, width: int, filters: list[int]) -> tf_keras.Model:
    image = TransformedFeature("image", "image", (height, width, 3))
    settings = ModelSettings(kind="convnet", filters=filters, hidden_units=[])
    return load_builder("convnet")(Problem(Task.BINARY, "y", ("a", "b"), (image,)), settings)


def filters_of(model: tf_keras.Model) -> list[int]:
    return [x.filters for x in model.layers if isinstance(x, tf_keras.layers.Conv2D)]


@pytest.mark.parametrize(
    ("side", "filters"),
    [
        (1, [16]),
        (8, [16, 32]),
        (28, [16, 32, 64]),
        (32, [16, 32, 64, 128]),
        (LARGEST_SIDE, [16, 32, 64, 128]),
    ],
)
def test_larger_pictures_have_more_stages(side: int, filters: list[int]) -> None:
    assert default_filters(side) == filters


@pytest.mark.parametrize(
    ("size", "filters"),
    [
        ((1, 1), [16, 16]),
        ((3, 200), [16, 16]),
        ((12, 10), [16, 16, 32, 32]),
        ((100, 130), [16, 16, 16, 16, 32, 32, 64, 64]),
    ],
)
def test_pictures_of_any_size_fit(size: tuple[int, int], filters: list[int]) -> None:
    """Those larger than the first stage takes are made smaller before, twice in the last case."""
    model = build(*size, [])
    found = filters_of(model)
    assert found == filters
    assert np.isfinite(model({"image": np.ones((2, *size, 3), np.float32)})).all()


def test_filters_are_those_of_the_stages() -> None:
    assert filters_of(build(12, 10, [4, 8])) == [4, 4, 8, 8]
    message = (
        "'image' of 12x10 pixels is too small for 5 stages; give fewer numbers in model.filters"
    )
    with pytest.raises(TrainingError, match=message):
        build(12, 10, [2] * 5)


def test_it_needs_an_image() -> None:
    number = (TransformedFeature("fare", "numeric", (1,)),)
    with pytest.raises(TrainingError, match=r"'convnet' needs an image feature, .* has fare"):
        load_builder("convnet")(Problem(Task.BINARY, "y", ("a", "b"), number), ModelSettings())


def test_a_config_may_have_pictures_left_as_they_are() -> None:
    image = {"photo": {"type": "image", "height": 8, "width": 8}}
    given = {"label": "y", "task": "binary", "features": image}
    settings = TrainerSettings.model_validate(given)
    assert settings.train.augment == AugmentSettings(shift=0.1, zoom=0.1)
    assert settings.train.early_stopping == "auto"
    plain = TrainerSettings.model_validate({**given, "train": {"augment": None}})
    for complete in (plain, TrainerSettings.from_custom_config(plain.to_custom_config())):
        assert complete.model.kind == "convnet"
        assert complete.train.augment is None
    cnn = TrainerSettings.model_validate({**given, "model": {"filters": [8]}})
    for complete in (cnn, TrainerSettings.from_custom_config(cnn.to_custom_config())):
        assert (complete.model.kind, complete.model.filters) == ("cnn", [8])
        assert complete.train.augment is None


def draw(random: np.random.Generator) -> Row:
    """A circle or a square of any place, size and colour, as a PNG."""
    radius = random.uniform(3, 7)
    y, x = random.uniform(radius, SIDE - radius, 2)
    down, right = np.abs(np.arange(SIDE) - y)[:, None], np.abs(np.arange(SIDE) - x)
    name = str(random.choice(["circle", "square"]))
    is_circle = name == "circle"
    inside = down**2 + right**2 <= radius**2 if is_circle else np.maximum(down, right) < radius
    ground = random.uniform(0, 255, 3)
    colour = (ground + 127 + random.uniform(-60, 60, 3)) % 256
    pixels = np.where(inside[..., None], colour, ground)
    encoded = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(encoded, "PNG")
    return {"image": encoded.getvalue(), "shape": name}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """What a newcomer has: a few pictures, and a config that says nothing of the model."""
    random = np.random.default_rng(1)
    rows = [draw(random) for _ in range(COUNT)]
    image = {"type": "image", "height": SIDE, "width": SIDE}
    settings = TrainerSettings.model_validate(
        {"label": "shape", "task": "binary", "features": {"image": image}}
    )
    return transformed_once(tmp_path_factory, "shapes", rows[:240], rows[240:], settings)


@pytest.fixture(scope="module")
def learnt(shapes: Transformed, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """By the default in a third of its steps: seconds."""
    return train_whole(given(shapes, tmp_path_factory.mktemp("learnt"), None, epochs=40))


def test_a_few_pictures_are_enough(learnt: TrainingResult) -> None:
    assert learnt.measured["accuracy"] > 0.9


def test_it_goes_on_with_all_of_its_weights(
    shapes: Transformed, learnt: TrainingResult, tmp_path: Path
) -> None:
    base = str(tmp_path / "base")
    export_model(learnt.model, shapes.tft_output, shapes.problem, shapes.settings, base)
    job = prepare(shapes, tmp_path, base, epochs=1)
    assert job.notes == [f"warm start: from {base}, all weights"]
    for found, right in zip(job.model.get_weights(), load(base).get_weights(), strict=True):
        np.testing.assert_array_equal(found, right)


def test_all_of_it_is_trained_for_8_bits(shapes: Transformed) -> None:
    settings = shapes.settings.model_copy(update={"optimize": WhileTraining(quantize="qat")})
    data = replace(shapes, settings=settings)
    model = make_network(data.problem, data.settings)
    quantised = [x for x in model.layers if is_wrapper(x)]
    assert sum(isinstance(x.layer, tf_keras.layers.Conv2D) for x in quantised) == 6
    assert describe_quantized(model) == []
