"""Typed settings of what runs inside Transform and Trainer; `pipeline.config` composes them.

Nothing here imports TensorFlow: a config is checked before that is paid for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    field_validator,
    model_validator,
)

SETTINGS_KEY = "scopeline"
"""The key of the settings in the `custom_config` of Transform and Trainer."""


class Settings(BaseModel):
    """Base of every section: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Task(StrEnum):
    """What the model predicts."""

    BINARY = "binary"
    MULTICLASS = "multiclass"
    REGRESSION = "regression"

    @property
    def is_classification(self) -> bool:
        """Whether the label is a class."""
        return self is not Task.REGRESSION


class Strategy(StrEnum):
    """The tf.distribute strategy that the model is built and trained under."""

    DEFAULT = "default"
    ONE_DEVICE = "one_device"
    MIRRORED = "mirrored"
    CENTRAL_STORAGE = "central_storage"
    MULTI_WORKER_MIRRORED = "multi_worker_mirrored"
    PARAMETER_SERVER = "parameter_server"
    TPU = "tpu"


class NumericFeature(Settings):
    """A number: scaled to mean 0 and variance 1; a missing one becomes the mean, and is flagged."""

    type: Literal["numeric"]


class CategoricalFeature(Settings):
    """One of a set of values (text or integers): its index in the vocabulary of the train split."""

    type: Literal["categorical"]
    vocabulary_size: PositiveInt = 1000
    """At most this many values, the most frequent ones, get an index of their own."""
    oov_buckets: PositiveInt = 1
    """Values outside the vocabulary are hashed into this many further indices."""


class ImageFeature(Settings):
    """An encoded PNG, JPEG or BMP: decoded, resized and scaled to 0..1."""

    type: Literal["image"]
    height: PositiveInt
    """Pixels."""
    width: PositiveInt
    """Pixels."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for RGB."""


class IgnoredFeature(Settings):
    """A column that the model must not see: an identifier, or one that gives the answer away."""

    type: Literal["ignore"]


Feature = Annotated[
    NumericFeature | CategoricalFeature | ImageFeature | IgnoredFeature,
    Field(discriminator="type"),
]


class StepSchedule(Settings):
    """A constant learning rate between epochs: `values[i]` until epoch `boundaries[i]`."""

    schedule: Literal["steps"]
    values: list[PositiveFloat] = Field(min_length=1)
    """Learning rates, one more than there are boundaries."""
    boundaries: list[PositiveInt]
    """Epochs, counted from 0, at which the next value begins; ascending."""

    @field_validator("boundaries")
    @classmethod
    def _ascending(cls, boundaries: list[int]) -> list[int]:
        if any(a >= b for a, b in itertools.pairwise(boundaries)):
            raise ValueError("must be ascending epochs, such as [3, 7]")
        return boundaries

    @field_validator("boundaries")
    @classmethod
    def _one_fewer(cls, boundaries: list[int], info: Any) -> list[int]:
        values = info.data.get("values")
        if values is not None and len(boundaries) != len(values) - 1:
            raise ValueError(
                f"{len(values)} values need {len(values) - 1} boundaries, found {len(boundaries)}"
            )
        return boundaries


class CosineSchedule(Settings):
    """Cosine decay over all epochs, after an optional linear warm-up (arXiv:1608.03983)."""

    schedule: Literal["cosine"]
    initial: PositiveFloat
    """The learning rate at the start of the decay."""
    final_fraction: float = Field(default=0.0, ge=0, le=1)
    """The learning rate at the end, as a fraction of `initial`."""
    warmup_epochs: int = Field(default=0, ge=0)
    """Epochs in which the learning rate rises from 0 to `initial`."""


class ExponentialSchedule(Settings):
    """The learning rate is multiplied by `decay` every epoch, smoothly."""

    schedule: Literal["exponential"]
    initial: PositiveFloat
    decay: float = Field(gt=0, lt=1)


def _learning_rate_kind(value: Any) -> str:
    """Which member of `LearningRate` a value of the config means to be."""
    if isinstance(value, Mapping):
        return str(value.get("schedule", "a schedule: one of steps, cosine, exponential"))
    return str(getattr(value, "schedule", "constant"))


LearningRate = Annotated[
    Annotated[PositiveFloat, Tag("constant")]
    | Annotated[StepSchedule, Tag("steps")]
    | Annotated[CosineSchedule, Tag("cosine")]
    | Annotated[ExponentialSchedule, Tag("exponential")],
    Discriminator(_learning_rate_kind),
]


class EarlyStopping(Settings):
    """Stop when the evaluation loss has not improved for some epochs."""

    patience: PositiveInt = 3
    """Epochs without improvement before training stops."""
    min_delta: float = Field(default=0.0, ge=0)
    """An improvement smaller than this does not count."""


class ModelSettings(Settings):
    """The model: one of the zoo with its sizes, or a builder of yours."""

    kind: str = "mlp"
    """`cnn`, `mlp`, `wide_deep`, or the import path of a function
    `build_model(problem, settings)` that returns an uncompiled tf_keras model."""
    filters: list[PositiveInt] = [32]
    """cnn: filters of each 3x3 convolution; each is followed by a 2x2 max-pooling."""
    hidden_units: list[PositiveInt] = [64]
    """Units of each dense layer before the output."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the activations dropped before the output layer while training."""
    embedding_size: PositiveInt = 8
    """Size of the vector that a value of a categorical feature is embedded in."""
    options: dict[str, Any] = {}
    """For a builder of yours: anything it wants to know."""

    @property
    def is_custom(self) -> bool:
        """Whether `kind` is an import path."""
        return "." in self.kind


class TrainSettings(Settings):
    """How the model is trained."""

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    """Examples per replica and step; the global batch is this times the replicas."""
    learning_rate: LearningRate = 0.001
    """A constant for the Adam optimizer, or a schedule over the epochs."""
    strategy: Strategy = Strategy.DEFAULT
    seed: int = 42
    """Seeds weights, shuffling and dropout: the same seed gives the same model on one machine."""
    early_stopping: EarlyStopping | None = None

    @model_validator(mode="after")
    def _warmup_ends(self) -> TrainSettings:
        rate = self.learning_rate
        if isinstance(rate, CosineSchedule) and rate.warmup_epochs >= self.epochs:
            raise ValueError(
                f"learning_rate.warmup_epochs is {rate.warmup_epochs}; "
                f"it must be less than epochs, {self.epochs}"
            )
        return self


class TrainerSettings(Settings):
    """What Transform and Trainer are told; travels as JSON in TFX's `custom_config`."""

    label: str
    task: Task
    features: dict[str, Feature] = {}
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()

    def to_custom_config(self) -> dict[str, Any]:
        """The `custom_config` that carries these settings to Transform and Trainer."""
        return {SETTINGS_KEY: self.model_dump(mode="json")}

    @classmethod
    def from_custom_config(cls, custom_config: Mapping[str, Any]) -> TrainerSettings:
        """The settings that `to_custom_config` put in; KeyError if they are not there."""
        return cls.model_validate(custom_config[SETTINGS_KEY])
