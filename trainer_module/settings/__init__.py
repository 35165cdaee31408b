"""Typed settings of what runs inside Transform and Trainer; a pipeline's config composes them.

Nothing here imports TensorFlow: a config is checked before that is paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, PrivateAttr, model_validator

from trainer_module.features.base import IgnoredFeature
from trainer_module.features.boolean import BooleanFeature
from trainer_module.features.categorical import CategoricalFeature
from trainer_module.features.cross import CrossFeature
from trainer_module.features.date import DateFeature
from trainer_module.features.image import ImageFeature
from trainer_module.features.numeric import NumericFeature
from trainer_module.features.own import is_own
from trainer_module.features.sequence import SequenceFeature
from trainer_module.features.text.text import TextFeature
from trainer_module.sections import Settings
from trainer_module.settings.defaults import complete, complete_features, left_out
from trainer_module.settings.features import Feature
from trainer_module.settings.model import ModelSettings
from trainer_module.settings.optimize import WhileTraining
from trainer_module.settings.tasks import BaseTask, Task, TaskSettings
from trainer_module.settings.train import (
    AUTO,
    NOT_IN_CACHE_KEY,
    AugmentSettings,
    BatchSize,
    CheckpointSettings,
    ClusterSettings,
    CosineSchedule,
    CrossValidation,
    EarlyStoppingSettings,
    ExponentialSchedule,
    LearningRate,
    LinearSchedule,
    Loop,
    LossSettings,
    OptimizerName,
    OptimizerSettings,
    Precision,
    StepsBySize,
    StepSchedule,
    StrategySettings,
    TrainSettings,
)
from trainer_module.strategies.base import BaseStrategy, Strategy
from trainer_module.strategies.mirrored import (
    CentralStorageStrategy,
    MirroredStrategy,
    Reduction,
)
from trainer_module.strategies.multi_worker import Communication, MultiWorkerMirroredStrategy
from trainer_module.strategies.one_replica import DefaultStrategy, OneDeviceStrategy
from trainer_module.strategies.parameter_server import ParameterServerStrategy
from trainer_module.strategies.tpu import TPUStrategy

__all__ = [
    "AUTO",
    "OWN_PREPROCESSING_KEY",
    "SETTINGS_KEY",
    "AugmentSettings",
    "BaseTask",
    "BatchSize",
    "BooleanFeature",
    "CategoricalFeature",
    "CentralStorageStrategy",
    "CheckpointSettings",
    "ClusterSettings",
    "Communication",
    "CosineSchedule",
    "CrossFeature",
    "CrossValidation",
    "DateFeature",
    "DefaultStrategy",
    "EarlyStoppingSettings",
    "ExponentialSchedule",
    "Feature",
    "IgnoredFeature",
    "ImageFeature",
    "LearningRate",
    "LinearSchedule",
    "Loop",
    "LossSettings",
    "MirroredStrategy",
    "ModelSettings",
    "MultiWorkerMirroredStrategy",
    "NumericFeature",
    "OneDeviceStrategy",
    "OptimizerName",
    "OptimizerSettings",
    "ParameterServerStrategy",
    "Precision",
    "Reduction",
    "SequenceFeature",
    "Settings",
    "StepSchedule",
    "StepsBySize",
    "Strategy",
    "StrategySettings",
    "TPUStrategy",
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
    def task(self) -> Task:
        """What the label is."""
        return self.target.label_kind

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
        """Whether a request has to bring a raw column: it is an input, or a part of one."""
        if column == self.weight:
            return False
        own = self.features.get(column)
        # Most columns of a wide table are seen as they are: the others need not be looked through.
        if own is None or (own.is_input and column in own.columns_of(column)):
            return True
        inputs = ((name, feature) for name, feature in self.features.items() if feature.is_input)
        return any(column in feature.columns_of(name) for name, feature in inputs)

    def to_custom_config(self) -> dict[str, Any]:
        """The `custom_config` that carries these settings to Transform and Trainer.

        It is part of TFX's cache key, so what does not change the model stays out of it.
        """
        later = {section: dict.fromkeys(keys, True) for section, keys in self._left_out.items()}
        excluded = {**later, "train": NOT_IN_CACHE_KEY | later.get("train", {})}
        return {SETTINGS_KEY: self.model_dump(mode="json", exclude=excluded)}

    @classmethod
    def from_custom_config(cls, custom_config: Mapping[str, Any]) -> TrainerSettings:
        """The settings that `to_custom_config` put in; KeyError if they are not there."""
        return cls.model_validate(custom_config[SETTINGS_KEY])

    def with_strategy(self, strategy: BaseStrategy) -> TrainerSettings:
        """The same settings with another strategy."""
        train = self.train.model_copy(update={"strategy": strategy})
        return self.model_copy(update={"train": train})
