"""What a column means to the model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from trainer_module.sections import Settings


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
