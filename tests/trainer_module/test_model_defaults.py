"""What a model takes where the config leaves keys out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from trainer_module.features.text.text import TextFeature
from trainer_module.settings import (
    CosineSchedule,
    EarlyStoppingSettings,
    LinearSchedule,
    OptimizerName,
    TrainerSettings,
)
from trainer_module.settings.model import DEFAULT_MEMBERS
from trainer_module.settings.train import BatchSize, StepsBySize

IMAGE = {"photo": {"type": "image", "height": 8, "width": 8}}
NUMBER = {"fare": {"type": "numeric"}}


def settings_of(**sections: Any) -> TrainerSettings:
    return TrainerSettings.model_validate({"label": "y", "task": "binary", **sections})


@pytest.mark.parametrize(
    ("features", "kind"),
    [({}, "ensemble"), (NUMBER, "ensemble"), (IMAGE, "convnet"), ({**NUMBER, **IMAGE}, "convnet")],
)
def test_the_model_follows_the_features(features: dict[str, Any], kind: str) -> None:
    assert settings_of(features=features).model.kind == kind
    assert settings_of(features=features, model={"kind": "mlp"}).model.kind == "mlp"


@pytest.mark.parametrize(
    "sections",
    [
        {"task": "count"},
        {"train": {"strategy": "multi_worker_mirrored"}},
        {"train": {"strategy": "auto", "cluster": {"workers": 2}}},
        {"optimize": {"prune": {}}},
    ],
)
def test_settings_without_an_ensemble_train_a_network(sections: dict[str, Any]) -> None:
    settings = settings_of(**sections)
    assert settings.model.kind == "tabular"
    assert settings.model_note
    assert not settings_of(**sections, model={"kind": "tabular"}).model_note


@pytest.mark.parametrize(
    "train",
    [{"strategy": "mirrored"}, {"loss": "cross_entropy"}],
)
def test_other_settings_train_an_ensemble(train: dict[str, Any]) -> None:
    assert settings_of(train=train).model.kind == "ensemble"


def test_missing_keys_have_the_defaults_of_the_model() -> None:
    settings = settings_of()
    assert settings.model.hidden_units == [128, 128]
    assert settings.train.optimizer.kind is OptimizerName.ADAMW
    assert settings.train.learning_rate == CosineSchedule(schedule="cosine", initial="auto")
    assert settings.train.batch_size == BatchSize(at_most=256)
    assert settings.train.steps == StepsBySize(small=2000, large=8000)
    assert settings.train.early_stopping == EarlyStoppingSettings(patience=6)
    mlp = settings_of(model={"kind": "mlp"})
    assert mlp.model.hidden_units == [64]
    assert (mlp.train.optimizer.kind, mlp.train.learning_rate) == (OptimizerName.ADAM, 0.001)
    assert (mlp.train.batch_size, mlp.train.steps) == ("auto", 8000)


def test_configured_keys_win() -> None:
    given = {"batch_size": "auto", "learning_rate": 0.01, "steps": 500}
    settings = settings_of(model={"dropout": 0.0}, train=given)
    assert (settings.model.dropout, settings.model.hidden_units) == (0.0, [128, 128])
    assert settings.train.model_dump(include=set(given)) == given


def test_learning_rate_follows_the_optimizer() -> None:
    """A thousandth of a plan for Adam suits no plain gradient descent."""
    settings = settings_of(train={"optimizer": "sgd"})
    assert settings.train.learning_rate == 0.001


def test_option_of_the_default_optimizer_keeps_its_learning_rate(tmp_path: Path) -> None:
    """0.001 without a warm-up would wipe out what a BERT has learnt."""
    optimizer = {"kind": "adamw", "layer_decay": 0.8}
    model = {"kind": "bert", "weights": str(tmp_path)}
    train = settings_of(model=model, train={"optimizer": optimizer}).train
    assert train.learning_rate == LinearSchedule(schedule="linear", initial=1e-4)
    assert (train.optimizer.layer_decay, train.optimizer.clip_norm) == (0.8, None)
    tabular = settings_of(train={"optimizer": {"kind": "adamw", "weight_decay": 0.1}}).train
    assert tabular.learning_rate == CosineSchedule(schedule="cosine", initial="auto")


def test_complete_settings_survive_the_custom_config() -> None:
    settings = settings_of(train={"epochs": 3}, model={"members": 2})
    carried = json.loads(json.dumps(settings.to_custom_config()))
    again = TrainerSettings.from_custom_config(carried)
    assert again.to_custom_config() == settings.to_custom_config()
    assert again.model == settings.model


def test_inferred_text_columns_choose_the_model() -> None:
    carried = settings_of(model={"dropout": 0.2}).to_custom_config()
    text, number = {"type": "text"}, {"type": "numeric"}
    for found, kind, units in [
        ({"review": text}, "ensemble", [128, 128]),
        ({"review": text, "stars": number}, "ensemble", [128, 128]),
    ]:
        settings = TrainerSettings.from_custom_config(
            {"scopeline": {**carried["scopeline"], "features": found}}
        )
        assert (settings.model.kind, settings.model.hidden_units) == (kind, units)
        assert settings.model.dropout == 0.2
        assert settings.train.early_stopping == EarlyStoppingSettings(patience=6)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"review": {"type": "text"}, "id": {"type": "ignore"}}, ["tabular", "linear"]),
        ({"review": {"type": "text", "words": 8}}, list(DEFAULT_MEMBERS)),
        ({}, list(DEFAULT_MEMBERS)),
    ],
)
def test_trees_are_members_where_they_can_read_a_column(
    features: dict[str, Any], expected: list[str]
) -> None:
    assert settings_of(features=features).members == expected


def test_text_without_an_ensemble_is_learnt_by_a_bag() -> None:
    settings = settings_of(
        features={"review": {"type": "text"}}, train={"strategy": "parameter_server"}
    )
    assert settings.model.kind == "bag"
    assert "train.strategy" in settings.model_note


def test_text_is_encoded_as_the_model_needs() -> None:
    found = {"review": {"type": "text"}, "title": {"type": "text", "encoding": "bag"}}
    assert are_bags("text_cnn", found) == [False, True]
    assert are_bags("mlp", found) == [True, True]


def are_bags(kind: str, columns: dict[str, dict]) -> list[bool]:
    """Of each column of text."""
    features = settings_of(model={"kind": kind}, features=columns).features.values()
    return [cast("TextFeature", feature).is_bag for feature in features]
