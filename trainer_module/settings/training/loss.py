"""What training makes small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, model_validator

from trainer_module.errors import enumerate_names
from trainer_module.sections import DOCSTRING, Settings
from trainer_module.settings.training.optimizer import as_kind


@dataclass(frozen=True)
class LossSpec:
    """What has to be known of a loss before TensorFlow is imported."""

    tasks: tuple[str, ...]
    """The names of those that it is for."""
    reads: tuple[str, ...] = ()
    """Keys that not every loss reads."""


_CLASSES = ("binary", "multiclass", "ordinal")
_NUMBERS = ("regression", "count")
LOSSES = {
    "cross_entropy": LossSpec(_CLASSES, reads=("label_smoothing",)),
    "focal": LossSpec(_CLASSES, reads=("gamma", "label_smoothing")),
    "poisson": LossSpec(("count",)),
    "mse": LossSpec(_NUMBERS),
    "mae": LossSpec(_NUMBERS),
    "huber": LossSpec(_NUMBERS, reads=("delta",)),
}
"""The losses by name. The first of a task is its usual one."""


def losses_for(task: str) -> list[str]:
    """The names of the losses for a task, by its name."""
    return [name for name, spec in LOSSES.items() if task in spec.tasks]


def is_usual(loss: str, task: str) -> bool:
    """Whether a loss is the usual one of a task, both by name; the empty name is."""
    return loss in ("", losses_for(task)[0])


def _name_losses(schema: dict[str, Any]) -> None:
    schema["description"] = f"{', '.join(f'`{name}`' for name in LOSSES)}, {DOCSTRING}"


class LossSettings(Settings):
    """A loss with its options."""

    kind: str = Field(json_schema_extra=_name_losses)
    """or the import path of one of yours: a function of labels and predictions that returns a loss
    per example, or a subclass of `tf_keras.losses.Loss`."""
    gamma: NonNegativeFloat = 2.0
    """focal: how much less the examples count that the model is sure of (arXiv:1708.02002)."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """cross_entropy, focal: the share of a label that is spread over all classes."""
    delta: PositiveFloat | None = None
    """huber: errors beyond it count linearly. Default: the standard deviation of the label."""
    options: dict[str, Any] = {}
    """For a class of yours: its arguments."""

    @property
    def is_custom(self) -> bool:
        """Whether `kind` is an import path."""
        return "." in self.kind

    @model_validator(mode="after")
    def _options_are_read(self) -> LossSettings:
        reads = LOSSES[self.kind].reads if self.kind in LOSSES else ()
        for key, field in LossSettings.model_fields.items():
            if key in ("kind", "options") or getattr(self, key) == field.default or key in reads:
                continue
            readers = [name for name, spec in LOSSES.items() if key in spec.reads]
            raise ValueError(f"{key} is for {enumerate_names(readers, 'and')}, not {self.kind}")
        if self.options and not self.is_custom:
            raise ValueError(f"options are for a class of yours, not {self.kind}")
        return self


AnyLoss = Annotated[
    LossSettings, BeforeValidator(as_kind, json_schema_input_type=str | LossSettings)
]
