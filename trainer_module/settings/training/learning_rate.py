"""The learning rate: a constant, or a schedule over the epochs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveFloat, PositiveInt, Tag, field_validator

from trainer_module.sections import Settings


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
    initial: PositiveFloat | Literal["auto"]
    """The learning rate at the start of the decay. `auto`: 0.004 where a step of all replicas takes
    256 examples, and with the root of their number otherwise."""
    final_fraction: float = Field(default=0.0, ge=0, le=1)
    """The learning rate at the end, as a fraction of `initial`."""
    warmup_epochs: int = Field(default=0, ge=0)
    """Epochs in which the learning rate rises from 0 to `initial`."""


class LinearSchedule(Settings):
    """A straight line down to 0 over all epochs, after a linear warm-up: BERT's."""

    schedule: Literal["linear"]
    initial: PositiveFloat
    """The learning rate at the end of the warm-up."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the learning rate rises from 0 to `initial`."""


class ExponentialSchedule(Settings):
    """The learning rate is multiplied by `decay` every epoch, smoothly."""

    schedule: Literal["exponential"]
    initial: PositiveFloat
    decay: float = Field(gt=0, lt=1)


def _learning_rate_kind(value: Any) -> str:
    """Which member of `LearningRate` a value of the config means to be."""
    if isinstance(value, Mapping):
        return str(value.get("schedule", "a schedule: one of steps, cosine, linear, exponential"))
    return str(getattr(value, "schedule", "constant"))


LearningRate = Annotated[
    Annotated[PositiveFloat, Tag("constant")]
    | Annotated[StepSchedule, Tag("steps")]
    | Annotated[CosineSchedule, Tag("cosine")]
    | Annotated[LinearSchedule, Tag("linear")]
    | Annotated[ExponentialSchedule, Tag("exponential")],
    Discriminator(_learning_rate_kind),
]
