"""Which model is trained."""

from __future__ import annotations

from typing import Any

from pydantic import Field, PositiveInt

from trainer_module.sections import Settings


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
