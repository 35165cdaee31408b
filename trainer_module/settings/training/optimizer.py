"""What turns gradients into steps."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from trainer_module.errors import enumerate_names
from trainer_module.sections import Settings


class OptimizerName(StrEnum):
    """The optimizers by name; the learning rate is `train.learning_rate`."""

    ADAM = "adam"
    ADAMW = "adamw"
    SGD = "sgd"
    RMSPROP = "rmsprop"
    LION = "lion"


READERS = {
    "momentum": (OptimizerName.SGD, OptimizerName.RMSPROP),
    "nesterov": (OptimizerName.SGD,),
}
"""The optimizers that read a key which not all of them do."""


class OptimizerSettings(Settings):
    """An optimizer with its options."""

    kind: OptimizerName = OptimizerName.ADAM
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """sgd, rmsprop: the share of the last step that the next one goes on with."""
    nesterov: bool = False
    """sgd: whether the gradient is that of where the momentum leads."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Share of the weights, times the learning rate, that each step takes off them; biases and the
    weights of normalisation stay. Default: 0.004 for adamw, otherwise none."""
    clip_norm: PositiveFloat | None = None
    """Gradients whose norm, over all variables together, is larger are scaled down to it."""
    layer_decay: float | None = Field(default=None, gt=0, le=1)
    """bert: the learning rate of each block is so many times that of the one above it; of the
    output it is `learning_rate`. Default with `model.weights`: 0.9."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """Such as 0.99: each epoch ends with the moving average of the weights, of which each step
    keeps so much."""

    @model_validator(mode="after")
    def _options_are_read(self) -> OptimizerSettings:
        for key, readers in READERS.items():
            if getattr(self, key) and self.kind not in readers:
                raise ValueError(f"{key} is for {enumerate_names(readers, 'and')}, not {self.kind}")
        return self


def as_kind(value: Any) -> Any:
    """The name alone stands for a mapping without options."""
    return {"kind": value} if isinstance(value, str) else value


AnyOptimizer = Annotated[
    OptimizerSettings,
    BeforeValidator(as_kind, json_schema_input_type=OptimizerName | OptimizerSettings),
]
