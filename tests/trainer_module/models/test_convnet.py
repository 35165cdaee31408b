"""The default for pictures: how deep it is, that it learns from a few, and what it goes on with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tf_keras

from tests.support.trainer_data import Transformed
from tests.support.trainings import train_whole
from tests.support.warm_data import given, using
from trainer_module.compat.model_optimization import is_wrapper
from trainer_module.errors import TrainingError
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


def build(height: int, width: int, filters: list[int]) -> tf_keras.Model:
    image = TransformedFeature("image", "image", (height, width, 3))
    settings = ModelSettings(kind="convnet", filters=filters, hidden_units=[])
    return load_builder("convnet")(Problem(Task.BINARY, "y", ("a", "b"), (image,)), settings)


def filters_of(model: tf_keras.Model) -> list[int]:
    return [x.filters for x in model.layers if isinstance(x, tf_keras.layers.Conv2D)]


@pytest.mark.parametrize(
    ("side", "filters"),
    [(1, [16]), (28, [16, 32, 64]), (LARGEST_SIDE, [16, 32, 64, 128])],
)
def test_larger_pictures_have_more_stages(side: int, filters: list[int]) -> None:
    assert default_filters(side) == filters


@pytest.mark.parametrize(
    ("size", "filters"),
    [((1, 1), [16, 16]), ((100, 130), [16, 16, 16, 16, 32, 32, 64, 64])],
)
def test_pictures_of_any_size_fit(size: tuple[int, int], filters: list[int]) -> None:
    """Those larger than the first stage takes are made smaller before, twice in the last case."""
    model = build(*size, [])
    found = filters_of(model)
    assert found == filters
    assert np.isfinite(model({"image": np.ones((2, *size, 3), np.float32)})).all()


def test_filters_are_configured_by_stage() -> None:
    assert filters_of(build(12, 10, [4, 8])) == [4, 4, 8, 8]
    with pytest.raises(TrainingError, match=r"12x10 pixels .*model\.filters"):
        build(12, 10, [2] * 5)


def test_convnet_needs_an_image() -> None:
    number = (TransformedFeature("fare", "numeric", (1,)),)
    with pytest.raises(TrainingError, match=r"'convnet' needs an image feature, .* has fare"):
        load_builder("convnet")(Problem(Task.BINARY, "y", ("a", "b"), number), ModelSettings())


def test_augmentation_can_be_switched_off() -> None:
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


@pytest.mark.slow
def test_default_network_learns_from_a_few_pictures(digits: Transformed, tmp_path: Path) -> None:
    settings = TrainerSettings.model_validate(
        {
            "label": "digit",
            "task": "multiclass",
            **digits.settings.model_dump(mode="json", include={"features"}),
        }
    )
    data = replace(digits, settings=settings)
    assert settings.model.kind == "convnet"
    trained = train_whole(given(data, tmp_path, None, epochs=25))
    assert trained.measured["accuracy"] > 0.9


@pytest.mark.slow
def test_each_layer_is_trained_for_8_bits(digits: Transformed) -> None:
    optimize = WhileTraining(quantize="qat")
    data = using(digits, "convnet", filters=[])
    model = make_network(data.problem, data.settings.model_copy(update={"optimize": optimize}))
    quantised = [x for x in model.layers if is_wrapper(x)]
    assert sum(isinstance(x.layer, tf_keras.layers.Conv2D) for x in quantised) == 4
    assert describe_quantized(model) == []
