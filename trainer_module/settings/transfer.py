"""How a network that others have trained is made to fit other data."""

from __future__ import annotations

from pydantic import Field, PositiveInt, model_validator

from trainer_module.sections import Settings


class TransferSettings(Settings):
    """Two-phase fine-tuning: the head alone first, on a frozen network, then its last layers."""

    freeze: bool | None = None
    """Whether the network begins frozen, with its batch normalisation in inference mode; without,
    all of it is trained from the first step. Default: whether `weights` are given, as a random
    network that is frozen tells little."""
    unfreeze_after: PositiveInt | None = None
    """Epochs after which the network's last layers are trained as well, batch normalisation
    excepted; default: never."""
    unfreeze_layers: PositiveInt = 30
    """How many of its layers that are, counted from the end."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """From then on; until then it is `train.learning_rate`."""
    head: list[PositiveInt] | None = None
    """Units of each dense layer between the network and the output; default: `hidden_units`."""

    @model_validator(mode="after")
    def _has_something_to_unfreeze(self) -> TransferSettings:
        if self.unfreeze_after and self.freeze is False:
            raise ValueError(
                f"unfreeze_after is {self.unfreeze_after}, but with freeze: false nothing is "
                "frozen; leave one of the two out"
            )
        return self
