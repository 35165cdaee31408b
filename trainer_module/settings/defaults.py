"""What a model takes where the config leaves a key out: its kind, its sizes, how it is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from trainer_module.features.base import BaseFeature
from trainer_module.sections import Settings
from trainer_module.settings.model import AUTO, ZOO, ModelSettings, ModelSpec, kind_for
from trainer_module.settings.train import TrainSettings

Section = TypeVar("Section", bound=Settings)

GO_BY = {"learning_rate": "optimizer", "early_stopping": "epochs"}
"""Keys of `train` that mean something else where the config gives the other one as it likes."""


def complete(
    model: ModelSettings, train: TrainSettings, feature_types: Iterable[str]
) -> tuple[ModelSettings, TrainSettings]:
    """The same settings with what follows from the features and the model.

    What the config gives is kept, and what is complete stays as it is.
    """
    given = model.model_fields_set
    kind = kind_for(feature_types, given) if model.kind == AUTO else model.kind
    model = model.model_copy(update={"kind": kind})
    spec = ZOO.get(kind, ModelSpec(kind))
    usual = (spec.tuned if model.weights else None) or spec.train
    other = _given_otherwise(train, usual)
    defaults = {key: value for key, value in usual.items() if GO_BY.get(key) not in other}
    return _filled(model, spec.model), _filled(train, defaults)


def _given_otherwise(train: TrainSettings, usual: Mapping[str, Any]) -> set[str]:
    """The keys that the config gives; an optimizer of the usual kind has the usual rate."""
    kind = usual.get("optimizer", {}).get("kind")
    same = {"optimizer"} if train.optimizer.kind == kind else set()
    return train.model_fields_set - same


def complete_features(
    features: Mapping[str, BaseFeature], model: ModelSettings
) -> dict[str, BaseFeature]:
    """The same settings of columns, with what a model takes where keys are left out."""
    defaults = dict(ZOO[model.kind].features) if model.kind in ZOO else {}
    text = defaults.get("text", {})
    if model.weights and text.get("tokens") == "wordpiece":
        defaults["text"] = {**text, "vocabulary": model.weights}
    return {name: _completed(f, defaults.get(f.type, {})) for name, f in features.items()}


def left_out(model: ModelSettings, train: TrainSettings) -> dict[str, set[str]]:
    """Keys by section that follow from the model, where that follows from features yet to come."""
    if model.kind != AUTO:
        return {}
    of_model = {key for spec in ZOO.values() for key in spec.model}
    of_train = {key for spec in ZOO.values() for key in spec.train} | {*GO_BY.values()}
    return {
        "model": {"kind", *(of_model - model.model_fields_set)},
        "train": of_train - train.model_fields_set,
    }


def _completed(feature: BaseFeature, defaults: Mapping[str, Any]) -> BaseFeature:
    absent = {k: v for k, v in defaults.items() if k not in feature.model_fields_set}
    # What does not go together is for a rule of the config to say.
    return feature.model_copy(update=absent) if absent else feature


def _filled(section: Section, defaults: Mapping[str, Any]) -> Section:
    absent = {k: v for k, v in defaults.items() if k not in section.model_fields_set}
    given = type(section).model_validate(absent)
    return section.model_copy(update={key: getattr(given, key) for key in absent})
