"""The layers of the model `cnn`, where a config names them, and what each leaves of a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from trainer_module.sections import Settings

Activation = Literal["relu", "elu", "selu", "gelu", "swish", "tanh", "sigmoid", "linear"]

KINDS = ("conv", "pool", "batch_norm", "dropout")
"""Keys, of which a layer has exactly one; a layer's other keys are options of `conv`."""

AFTER = {
    "flatten": "the layers after the last one are flattened by themselves; leave it out",
    "dense": "dense layers come after those of pictures: give model.hidden_units: [256, 128]",
}
"""Layers of other notations, and what does the same here."""


class PictureLayer(Settings):
    """One layer over pictures: a convolution, a max-pooling, batch normalisation or dropout."""

    conv: PositiveInt | None = None
    """Filters of a convolution."""
    size: PositiveInt = 3
    """Height and width of its filters, in pixels."""
    stride: PositiveInt = 1
    """Pixels from one place of a filter to the next."""
    padding: Literal["valid", "same"] = "valid"
    """`valid`: filters stay within the picture, which becomes smaller by `size` - 1; `same`: zeros
    around it keep its size."""
    activation: Activation = "relu"
    """What its outputs go through."""
    pool: PositiveInt | None = None
    """Height and width of the squares of which a max-pooling keeps the largest value each."""
    batch_norm: bool = False
    """Whether the layer before is normalised, over the examples of all replicas."""
    dropout: float | None = Field(default=None, gt=0, lt=1)
    """Share of the activations dropped while training."""

    def __str__(self) -> str:
        """As the config has it: `{conv: 256, size: 3}`."""
        given = self.model_dump(exclude_defaults=True)
        return f"{{{', '.join(f'{key}: {value}' for key, value in given.items())}}}"

    @model_validator(mode="after")
    def _is_one_layer(self) -> PictureLayer:
        given = [key for key in KINDS if getattr(self, key)]
        if len(given) != 1:
            found = f"both {' and '.join(given)}" if given else "none of them"
            raise ValueError(
                f"a layer is one of {', '.join(KINDS)}, and this has {found}; give each layer an "
                "entry of its own, such as {conv: 32}"
            )
        # Whoever reads the settings again is given all keys.
        changed = [key for key in self.model_dump(exclude_defaults=True) if key not in KINDS]
        if changed and given != ["conv"]:
            raise ValueError(f"{changed[0]} is for conv, not for {given[0]}; leave it out")
        return self

    def left_of(self, side: int) -> int:
        """The height or the width that it leaves of one, in pixels; 0 and less: nothing."""
        if self.conv is not None:
            if self.padding == "same":
                return -(-side // self.stride)
            return (side - self.size) // self.stride + 1
        return side // self.pool if self.pool else side


def _as_layer(value: Any) -> Any:
    named = value if isinstance(value, Mapping) else [value]
    for name in AFTER:
        if name in named:
            raise ValueError(AFTER[name])
    return {value: True} if value == "batch_norm" else value


AnyPictureLayer = Annotated[
    PictureLayer,
    BeforeValidator(_as_layer, json_schema_input_type=PictureLayer | Literal["batch_norm"]),
]


def too_small_for(layers: Iterable[PictureLayer], height: int, width: int) -> str:
    """Which layer a picture is too small for, in words; empty if none.

    Args:
      layers: in their order.
      height: of the picture, in pixels.
      width: likewise.
    """
    for number, layer in enumerate(layers):
        left = layer.left_of(height), layer.left_of(width)
        if min(left) < 1:
            return (
                f"layer {number + 1}, {layer}, gets {height}x{width} pixels and leaves nothing of "
                "them; use a larger image, fewer or smaller poolings, or padding: same"
            )
        height, width = left
    return ""
