"""How pictures are changed while a model is trained, so that it never sees one twice."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, model_validator

from trainer_module.sections import Settings


class AugmentSettings(Settings):
    """Random changes of pictures: new ones in every step of training, and none elsewhere."""

    flip: Literal["horizontal", "vertical", "both"] | None = None
    """Mirror every other picture: left and right, top and bottom, or each of them by itself."""
    rotate: float = Field(default=0.0, ge=0, le=0.5)
    """The share of a full turn that a picture is turned, at most, either way: 0.05 is 18 degrees.
    """
    shift: float = Field(default=0.0, ge=0, lt=1)
    """The share of its height and width that a picture is moved, at most, either way."""
    zoom: float = Field(default=0.0, ge=0, lt=1)
    """How much larger or smaller a picture becomes, at most: 0.1 is by a tenth."""
    contrast: float = Field(default=0.0, ge=0, lt=1)
    """How much further from its mean, or nearer to it, the pixels of a picture are, at most."""
    cutout: NonNegativeInt = 0
    """Pixels of a side of the square that the picture's mean covers (DeVries and Taylor, 2017,
    arXiv:1708.04552)."""
    mixup: float = Field(default=0.0, ge=0, le=10)
    """Mix each picture and its label with another one's, in shares drawn from Beta(mixup, mixup)
    (Zhang et al., 2018, arXiv:1710.09412); 0.2 is usual, 0 mixes none."""

    @model_validator(mode="after")
    def _changes_something(self) -> AugmentSettings:
        if not any(dict(self).values()):
            raise ValueError(
                "changes nothing; give one of flip, rotate, shift, zoom, contrast, cutout and "
                "mixup, or leave augment out"
            )
        return self

    @property
    def moves(self) -> bool:
        """Whether pixels change their places, other than by mirroring."""
        return bool(self.rotate or self.shift or self.zoom)
