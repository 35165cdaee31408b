"""Typed settings of Transform and Trainer, which the config of a pipeline composes.

Nothing here imports TensorFlow, so that a config is checked in a fraction of a second.
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
    """Returns the type of a feature's mapping, whose key `type` selects the class of the other
    keys.
    """
    registered = tagged_union(features.values(), "type")
    adapter = TypeAdapter[Any](registered)

    def validate(value: Any, handler: Any) -> Any:
        """Returns the settings of the type that the value names, so that messages are about it
        alone.
        """
        del handler
        kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
        if isinstance(kind, str) and is_own(kind):
            return OwnFeature.model_validate(value)
        return adapter.validate_python(value)

    either: Any = Union[registered, OwnFeature]  # noqa: UP007 - of a value
    return Annotated[either, WrapValidator(validate)]


Feature: TypeAlias = Annotated[BaseFeature, Registered(FEATURES, _any_of)]


Section = TypeVar("Section", bound=Settings)

DEFAULTS_DEPEND_ON = {"learning_rate": "optimizer", "early_stopping": "epochs"}
"""Keys of `train` whose defaults apply only if the config leaves the other key at the model's
default."""


def complete(
    model: ModelSettings, train: TrainSettings, feature_types: Iterable[str]
) -> tuple[ModelSettings, TrainSettings]:
    """Returns the settings with the defaults that follow from the features and the model.

    Values in the config are kept; complete settings are returned unchanged.
    """
    given = model.model_fields_set
    valued = [key for key in given if getattr(model, key) is not None]
    kind = kind_for(feature_types, valued) if model.kind == AUTO else model.kind
    model = model.model_copy(update={"kind": kind})
    spec = ZOO.get(kind) or LEARNERS.get(kind, ModelSpec(kind))
    usual = (spec.fine_tuning_defaults if model.weights else None) or spec.train
    other = _explicit_keys(train, usual)
    defaults = {
        key: value for key, value in usual.items() if DEFAULTS_DEPEND_ON.get(key) not in other
    }
    return _filled(model, spec.model), _filled(train, defaults)


def _explicit_keys(train: TrainSettings, usual: Mapping[str, Any]) -> set[str]:
    """Returns the keys that the config gives, except an optimizer of the model's default kind."""
    kind = usual.get("optimizer", {}).get("kind")
    same = {"optimizer"} if train.optimizer.kind == kind else set()
    return train.model_fields_set - same


def complete_features(
    features: Mapping[str, BaseFeature], model: ModelSettings
) -> dict[str, BaseFeature]:
    """Returns the settings of the columns, with the model's defaults for keys that the config
    omits.
    """
    defaults = dict(ZOO[model.kind].features) if model.kind in ZOO else {}
    text = defaults.get("text", {})
    if model.weights and text.get("tokens") == "wordpiece":
        defaults["text"] = {**text, "vocabulary": model.weights}
    return {name: _completed(f, defaults.get(f.type, {})) for name, f in features.items()}


def left_out(model: ModelSettings, train: TrainSettings) -> dict[str, set[str]]:
    """Returns the keys by section whose values depend on a model that the features will
    determine.
    """
    if model.kind != AUTO:
        return {}
    of_model = {key for spec in ZOO.values() for key in spec.model}
    of_train = {key for spec in ZOO.values() for key in spec.train} | {*DEFAULTS_DEPEND_ON.values()}
    return {
        "model": {"kind", *(of_model - model.model_fields_set)},
        "train": of_train - train.model_fields_set,
    }


def _completed(feature: BaseFeature, defaults: Mapping[str, Any]) -> BaseFeature:
    absent = {k: v for k, v in defaults.items() if k not in feature.model_fields_set}
    # Contradictions are reported by a rule of the config.
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
"""The key of the import path of the user's `preprocessing_fn` in the `custom_config` of Transform.
"""


class TrainerSettings(Settings):
    """The settings of Transform and Trainer, which travel as JSON in TFX's `custom_config`."""

    label: str
    weight: str | None = None
    """The column of the examples' weights; None if all examples count alike."""
    split_by: str | None = None
    """The column whose equal values stay in the same part when the train split is divided."""
    order_by: str | None = None
    """The column by which the train split is divided in time: the held-out rows are the later ones.
    """
    target: TaskSettings = Field(alias="task")
    features: dict[str, Feature] = {}
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    evaluate: CrossValidation = CrossValidation()
    optimize: WhileTraining = WhileTraining()
    _left_out: dict[str, set[str]] = PrivateAttr(default_factory=dict)
    """The keys by section whose values depend on the features that the data determines."""

    @model_validator(mode="after")
    def _complete(self) -> TrainerSettings:
        types = [feature.type for feature in self.features.values()]
        self._left_out = left_out(self.model, self.train)
        model, train = complete(self.model, self.train, types)
        features = complete_features(self.features, model)
        # The model is frozen, so that plain assignment raises an error.
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "train", train)
        object.__setattr__(self, "features", features)
        return self

    @property
    def label_task(self) -> BaseTask:
        """The supervised task; raises TypeError if the task has no label."""
        return as_task(self.target)

    @property
    def task(self) -> Task:
        """The kind of the label: binary, multiclass or regression."""
        return self.label_task.label_kind

    @property
    def own_code(self) -> dict[str, str]:
        """The import paths of the user's code that Trainer runs, by config key."""
        model = {"model.kind": self.model.kind} if self.model.is_custom else {}
        return (
            self.own_features
            | model
            | {f"train.{key}": path for key, path in self.train.own_code.items()}
        )

    @property
    def own_features(self) -> dict[str, str]:
        """The import paths of the user's feature types, which Transform runs too, by config key."""
        types = {f"features.{name}.type": feature.type for name, feature in self.features.items()}
        return {key: path for key, path in types.items() if is_own(path)}

    def is_requested(self, column: str) -> bool:
        """Returns whether a request needs a raw column: an input, or a column that an input is made
        of.
        """
        if column == self.weight:
            return False
        own = self.features.get(column)
        # The common case of a plain column is decided first, so that wide tables stay fast.
        if own is None or (own.is_input and column in own.columns_of(column)):
            return True
        inputs = ((name, feature) for name, feature in self.features.items() if feature.is_input)
        return any(column in feature.columns_of(name) for name, feature in inputs)

    def to_custom_config(self) -> dict[str, Any]:
        """Returns the `custom_config` that carries these settings to Transform and Trainer.

        It is part of TFX's cache key, so keys that do not change the model are left out.
        """
        later = {section: dict.fromkeys(keys, True) for section, keys in self._left_out.items()}
        excluded = {**later, "train": NOT_IN_CACHE_KEY | later.get("train", {})}
        return {SETTINGS_KEY: self.model_dump(mode="json", exclude=excluded)}

    @classmethod
    def from_custom_config(cls, custom_config: Mapping[str, Any]) -> TrainerSettings:
        """Returns the settings that `to_custom_config` stored; raises KeyError if they are
        missing.
        """
        return cls.model_validate(custom_config[SETTINGS_KEY])

    def with_strategy(self, strategy: BaseStrategy) -> TrainerSettings:
        """Returns a copy of the settings with another strategy."""
        train = self.train.model_copy(update={"strategy": strategy})
        return self.model_copy(update={"train": train})
