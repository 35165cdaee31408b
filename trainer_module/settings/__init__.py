"""Typed settings of what runs inside Transform and Trainer; a pipeline's config composes them.

Nothing here imports TensorFlow: a config is checked before that is paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar, Union

from pydantic import Field, PrivateAttr, TypeAdapter, WrapValidator, model_validator

from trainer_module.features import FEATURES
from trainer_module.features.base import BaseFeature, IgnoredFeature
from trainer_module.features.date import DateFeature
from trainer_module.features.image import ImageFeature
from trainer_module.features.numeric import NumericFeature
from trainer_module.features.own import OwnFeature, is_own
from trainer_module.features.text.text import TextFeature
from trainer_module.sections import Registered, Settings, tagged_union
from trainer_module.settings.model import LEARNERS, ZOO, ModelSettings, ModelSpec, kind_for
from trainer_module.settings.optimize import WhileTraining
from trainer_module.settings.tasks import BaseTask, Task, TaskSettings, as_task
from trainer_module.settings.train import (
    AUTO,
    NOT_IN_CACHE_KEY,
    AugmentSettings,
    CheckpointSettings,
    CosineSchedule,
    CrossValidation,
    EarlyStoppingSettings,
    LinearSchedule,
    Loop,
    LossSettings,
    OptimizerName,
    Precision,
    StepSchedule,
    TrainSettings,
)
from trainer_module.strategies.base import BaseStrategy, Strategy
from trainer_module.strategies.synchronous import (
    DefaultStrategy,
    MirroredStrategy,
)


def _any_of(features: dict[str, str]) -> Any:
    """Returns a mapping with the options of a type, which its key `type` names."""
    registered = tagged_union(features.values(), "type")
    adapter = TypeAdapter[Any](registered)

    def validate(value: Any, handler: Any) -> Any:
        """By the one type that is meant, so that messages are about it alone."""
        del handler
        kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
        if isinstance(kind, str) and is_own(kind):
            return OwnFeature.model_validate(value)
        return adapter.validate_python(value)

    either: Any = Union[registered, OwnFeature]  # noqa: UP007 - of a value
    return Annotated[either, WrapValidator(validate)]


Feature: TypeAlias = Annotated[BaseFeature, Registered(FEATURES, _any_of)]


Section = TypeVar("Section", bound=Settings)

GO_BY = {"learning_rate": "optimizer", "early_stopping": "epochs"}
"""Keys of `train` that mean something else where the config gives the other one as it likes."""


def complete(
    model: ModelSettings, train: TrainSettings, feature_types: Iterable[str]
) -> tuple[ModelSettings, TrainSettings]:
    """Returns the same settings with what follows from the features and the model.

    What the config gives is kept, and what is complete stays as it is.
    """
    given = model.model_fields_set
    valued = [key for key in given if getattr(model, key) is not None]
    kind = kind_for(feature_types, valued) if model.kind == AUTO else model.kind
    model = model.model_copy(update={"kind": kind})
    spec = ZOO.get(kind) or LEARNERS.get(kind, ModelSpec(kind))
    usual = (spec.fine_tuning_defaults if model.weights else None) or spec.train
    other = _given_otherwise(train, usual)
    defaults = {key: value for key, value in usual.items() if GO_BY.get(key) not in other}
    return _filled(model, spec.model), _filled(train, defaults)


def _given_otherwise(train: TrainSettings, usual: Mapping[str, Any]) -> set[str]:
    """Returns the keys that the config gives; an optimizer of the usual kind has the usual rate."""
    kind = usual.get("optimizer", {}).get("kind")
    same = {"optimizer"} if train.optimizer.kind == kind else set()
    return train.model_fields_set - same


def complete_features(
    features: Mapping[str, BaseFeature], model: ModelSettings
) -> dict[str, BaseFeature]:
    """Returns the same settings of columns, with what a model takes where keys are left out."""
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


__all__ = [
    "AUTO",
    "OWN_PREPROCESSING_KEY",
    "SETTINGS_KEY",
    "AugmentSettings",
    "BaseTask",
    "CheckpointSettings",
    "CosineSchedule",
    "CrossValidation",
    "DateFeature",
    "DefaultStrategy",
    "EarlyStoppingSettings",
    "Feature",
    "IgnoredFeature",
    "ImageFeature",
    "LinearSchedule",
    "Loop",
    "LossSettings",
    "MirroredStrategy",
    "ModelSettings",
    "NumericFeature",
    "OptimizerName",
    "Precision",
    "Settings",
    "StepSchedule",
    "Strategy",
    "Task",
    "TaskSettings",
    "TextFeature",
    "TrainSettings",
    "TrainerSettings",
    "WhileTraining",
]

SETTINGS_KEY = "scopeline"
"""The key of the settings in the `custom_config` of Transform and Trainer."""

OWN_PREPROCESSING_KEY = "preprocessing"
"""The key of the import path of a `preprocessing_fn` of the user's, in that of Transform."""


class TrainerSettings(Settings):
    """What Transform and Trainer are told; travels as JSON in TFX's `custom_config`."""

    label: str
    weight: str | None = None
    """The column of the examples' weights; None where all count alike."""
    split_by: str | None = None
    """The column whose equal values stay on one side wherever the train split is divided."""
    order_by: str | None = None
    """The column by which what is chosen is chosen by later rows than are learnt from."""
    target: TaskSettings = Field(alias="task")
    features: dict[str, Feature] = {}
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    evaluate: CrossValidation = CrossValidation()
    optimize: WhileTraining = WhileTraining()
    _left_out: dict[str, set[str]] = PrivateAttr(default_factory=dict)
    """Keys by section that the features which the data gives will have a say in."""

    @model_validator(mode="after")
    def _complete(self) -> TrainerSettings:
        types = [feature.type for feature in self.features.values()]
        self._left_out = left_out(self.model, self.train)
        model, train = complete(self.model, self.train, types)
        features = complete_features(self.features, model)
        # Values do not change any more once this is over.
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "train", train)
        object.__setattr__(self, "features", features)
        return self

    @property
    def label_task(self) -> BaseTask:
        """The task, where it is supervised; TypeError where it has no label."""
        return as_task(self.target)

    @property
    def task(self) -> Task:
        """What the label is."""
        return self.label_task.label_kind

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's code that Trainer runs, by the key that names each."""
        model = {"model.kind": self.model.kind} if self.model.is_custom else {}
        return (
            self.own_features
            | model
            | {f"train.{key}": path for key, path in self.train.own_code.items()}
        )

    @property
    def own_features(self) -> dict[str, str]:
        """Import paths of the user's feature types, which Transform runs too."""
        types = {f"features.{name}.type": feature.type for name, feature in self.features.items()}
        return {key: path for key, path in types.items() if is_own(path)}

    def is_asked_for(self, column: str) -> bool:
        """Returns whether a request has to bring a raw column: it is an input, or a part of one."""
        if column == self.weight:
            return False
        own = self.features.get(column)
        # Most columns of a wide table are seen as they are: the others need not be looked through.
        if own is None or (own.is_input and column in own.columns_of(column)):
            return True
        inputs = ((name, feature) for name, feature in self.features.items() if feature.is_input)
        return any(column in feature.columns_of(name) for name, feature in inputs)

    def to_custom_config(self) -> dict[str, Any]:
        """Returns the `custom_config` that carries these settings to Transform and Trainer.

        It is part of TFX's cache key, so what does not change the model stays out of it.
        """
        later = {section: dict.fromkeys(keys, True) for section, keys in self._left_out.items()}
        excluded = {**later, "train": NOT_IN_CACHE_KEY | later.get("train", {})}
        return {SETTINGS_KEY: self.model_dump(mode="json", exclude=excluded)}

    @classmethod
    def from_custom_config(cls, custom_config: Mapping[str, Any]) -> TrainerSettings:
        """Returns the settings that `to_custom_config` put in; KeyError if they are not there."""
        return cls.model_validate(custom_config[SETTINGS_KEY])

    def with_strategy(self, strategy: BaseStrategy) -> TrainerSettings:
        """Returns the same settings with another strategy."""
        train = self.train.model_copy(update={"strategy": strategy})
        return self.model_copy(update={"train": train})
