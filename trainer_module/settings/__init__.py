"""Typed settings of Transform and Trainer, which the config of a pipeline composes.

Nothing here imports TensorFlow, so the check of a config takes a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from trainer_module.settings.ensembles import describe_default, ensemble_obstacle
from trainer_module.settings.model import (
    LEARNERS,
    ZOO,
    ModelSettings,
    ModelSpec,
    kind_for,
)
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


def _feature_type(features: dict[str, str]) -> Any:
    """Returns the pydantic type of a column's feature settings; the key `type` selects the class.

    Args:
      features: the import paths of the feature classes by their name in `type`.
    """
    registered = tagged_union(features.values(), "type")
    adapter = TypeAdapter[Any](registered)

    def validate(value: Any, handler: Any) -> Any:
        """Returns the validated settings; errors are only about the class that `type` names."""
        del handler
        kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
        if isinstance(kind, str) and is_own(kind):
            return OwnFeature.model_validate(value)
        return adapter.validate_python(value)

    # The operator | does not accept `registered`, which is a value and not a type.
    any_feature: Any = Union[registered, OwnFeature]  # noqa: UP007
    return Annotated[any_feature, WrapValidator(validate)]


Feature: TypeAlias = Annotated[BaseFeature, Registered(FEATURES, _feature_type)]


Section = TypeVar("Section", bound=Settings)

DEFAULTS_DEPEND_ON = {"learning_rate": "optimizer", "early_stopping": "epochs"}
"""Pairs of keys of `train`: the model's default of the first key applies only if the config leaves
the second key at the model's default."""


def complete(
    model: ModelSettings, train: TrainSettings, kind: str
) -> tuple[ModelSettings, TrainSettings]:
    """Returns the settings with the defaults that follow from the kind of the model.

    The values of the config are kept; complete settings are returned unchanged.
    """
    model = model.model_copy(update={"kind": kind})
    spec = ZOO.get(kind) or LEARNERS.get(kind, ModelSpec(kind))
    defaults = (spec.fine_tuning_defaults if model.weights else None) or spec.train
    changed = _changed_keys(train, defaults)
    applicable = {
        key: value for key, value in defaults.items() if DEFAULTS_DEPEND_ON.get(key) not in changed
    }
    return _fill_absent_keys(model, spec.model), _fill_absent_keys(train, applicable)


def _changed_keys(train: TrainSettings, defaults: Mapping[str, Any]) -> set[str]:
    """Returns the keys in the config, without `optimizer` if it has the model's default kind."""
    kind = defaults.get("optimizer", {}).get("kind")
    unchanged = {"optimizer"} if train.optimizer.kind == kind else set()
    return train.model_fields_set - unchanged


def complete_features(
    features: Mapping[str, BaseFeature], model: ModelSettings
) -> dict[str, BaseFeature]:
    """Returns the settings of the columns; keys that the config omits get the model's defaults."""
    defaults = dict(ZOO[model.kind].features) if model.kind in ZOO else {}
    text = defaults.get("text", {})
    if model.weights and text.get("tokens") == "wordpiece":
        defaults["text"] = {**text, "vocabulary": model.weights}
    return {name: _complete_feature(f, defaults.get(f.type, {})) for name, f in features.items()}


def undetermined_keys(model: ModelSettings, train: TrainSettings) -> dict[str, set[str]]:
    """Returns, by section, the keys whose values are undetermined until the features are known.

    With `model.kind: auto`, the features determine the model, and the model determines defaults.
    The result is empty if the config names the kind of model.
    """
    if model.kind != AUTO:
        return {}
    model_keys = {key for spec in ZOO.values() for key in spec.model}
    train_keys = {key for spec in ZOO.values() for key in spec.train}
    train_keys.update(DEFAULTS_DEPEND_ON.values())
    return {
        "model": {"kind", *(model_keys - model.model_fields_set)},
        "train": train_keys - train.model_fields_set,
    }


def _complete_feature(feature: BaseFeature, defaults: Mapping[str, Any]) -> BaseFeature:
    absent = {k: v for k, v in defaults.items() if k not in feature.model_fields_set}
    # The values are not validated here: a rule of the config reports contradictions.
    return feature.model_copy(update=absent) if absent else feature


def _fill_absent_keys(section: Section, defaults: Mapping[str, Any]) -> Section:
    absent = {k: v for k, v in defaults.items() if k not in section.model_fields_set}
    validated = type(section).model_validate(absent)
    return section.model_copy(update={key: getattr(validated, key) for key in absent})


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
    """The settings of Transform and Trainer, which receive them as JSON in `custom_config`."""

    label: str
    """The name of the label's column."""
    weight: str | None = None
    """The name of the column with the examples' weights, or None if all examples count alike."""
    split_by: str | None = None
    """The name of a column; rows with the same value are held out together or not at all."""
    order_by: str | None = None
    """The name of a column by which the rows are ordered in time; the last rows are held out."""
    target: TaskSettings = Field(alias="task")
    features: dict[str, Feature] = {}
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    evaluate: CrossValidation = CrossValidation()
    optimize: WhileTraining = WhileTraining()
    _undetermined_keys: dict[str, set[str]] = PrivateAttr(default_factory=dict)
    """The result of `undetermined_keys` for the settings before their defaults were filled in."""
    _model_note: str = PrivateAttr("")

    @model_validator(mode="after")
    def _complete(self) -> TrainerSettings:
        self._undetermined_keys = undetermined_keys(self.model, self.train)
        model, train = complete(self.model, self.train, self._choose_kind())
        features = complete_features(self.features, model)
        # The class is frozen: a plain assignment would raise an error.
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "train", train)
        object.__setattr__(self, "features", features)
        return self

    def _choose_kind(self) -> str:
        """Returns the kind of the model in the config, or the default for the features, and sets
        `model_note`.
        """
        model = self.model
        if model.kind != AUTO:
            return model.kind
        types = [feature.type for feature in self.features.values()]
        given = [key for key in model.model_fields_set if getattr(model, key) is not None]
        obstacle = ensemble_obstacle(self.target, self.train, self.optimize)
        kind = kind_for(types, given, obstacle)
        self._model_note = describe_default(kind, obstacle)
        return kind

    @property
    def members(self) -> list[str]:
        """The members of an ensemble that can read the features; trees read no texts."""
        unread = ZOO["trees"].refuses
        features = [feature for feature in self.features.values() if feature.is_input]
        has_columns = any(f.type not in unread or getattr(f, "words", 0) for f in features)
        return self.model.members_that_read(columns=has_columns or not features, bags=True)

    @property
    def model_note(self) -> str:
        """A sentence about the default model if a key excludes an ensemble; else empty."""
        return self._model_note

    @property
    def label_task(self) -> BaseTask:
        """The supervised task that reads the label; raises TypeError if the task has no label."""
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
        """The import paths of the user's feature types, by config key; Transform runs them, too."""
        types = {f"features.{name}.type": feature.type for name, feature in self.features.items()}
        return {key: path for key, path in types.items() if is_own(path)}

    def is_requested(self, column: str) -> bool:
        """Returns whether requests contain a raw column: whether a feature reads the column."""
        if column == self.weight:
            return False
        feature = self.features.get(column)
        # Most columns are decided here; the search below is slow for tables with many columns.
        if feature is None or (feature.is_input and column in feature.columns_of(column)):
            return True
        inputs = ((name, feature) for name, feature in self.features.items() if feature.is_input)
        return any(column in feature.columns_of(name) for name, feature in inputs)

    def to_custom_config(self) -> dict[str, Any]:
        """Returns the `custom_config` that carries these settings to Transform and Trainer.

        The `custom_config` is part of TFX's cache key. It therefore omits keys that do not change
        the model, and keys whose values the features determine.
        """
        undetermined = {
            section: dict.fromkeys(keys, True) for section, keys in self._undetermined_keys.items()
        }
        excluded = {**undetermined, "train": NOT_IN_CACHE_KEY | undetermined.get("train", {})}
        return {SETTINGS_KEY: self.model_dump(mode="json", exclude=excluded)}

    @classmethod
    def from_custom_config(cls, custom_config: Mapping[str, Any]) -> TrainerSettings:
        """Returns the settings from a `custom_config`; raises KeyError if it has no settings."""
        return cls.model_validate(custom_config[SETTINGS_KEY])

    def with_strategy(self, strategy: BaseStrategy) -> TrainerSettings:
        """Returns a copy of the settings with another strategy."""
        train = self.train.model_copy(update={"strategy": strategy})
        return self.model_copy(update={"train": train})
