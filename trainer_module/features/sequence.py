"""Sequences: lists of numbers, all of one length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from trainer_module.errors import DataError
from trainer_module.features.base import LENGTH_SUFFIX, BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor


class SequenceFeature(BaseFeature):
    """A list of numbers in order: scaled to mean 0 and variance 1, cut or filled up with 0.

    Another input says which share of the length it has.
    """

    type: Literal["sequence"]
    may_mix: ClassVar[bool] = True
    length: PositiveInt
    """How many numbers the model sees, from the first one on."""
    separator: str | None = Field(default=None, min_length=1)
    """Stands between the numbers of a text, such as `;`; what is no number counts as missing."""

    @property
    def is_list(self) -> bool:
        """Unless a text holds all of them."""
        return self.separator is None

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, length] float32 each, and their lengths, [batch, 1].

        Raises:
          DataError: if a column holds text, and its settings have no separator.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import list_numbers
        from trainer_module.features.scaling import z_scores

        longest = max(feature.length for feature in features.values())
        padded = []
        for name, feature in features.items():
            if (columns[name].dtype == tf.string) == (feature.separator is None):
                found = "numbers" if feature.separator else "text"
                change = "leave out" if feature.separator else "name what separates its numbers by"
                raise DataError(f"column {name!r} holds {found}: {change} its key separator.")
            numbers = list_numbers(columns[name], feature.length, feature.separator)
            gap = [[0, 0], [0, longest - feature.length]]
            padded.append(tf.pad(numbers, gap, constant_values=float("nan")))
        # All places of a column are scaled alike: they are rows of one analysis of all columns.
        stacked = tf.reshape(tf.stack(padded, 2), [-1, len(padded)])
        scores = tf.reshape(z_scores(stacked), [-1, longest, len(padded)])
        outputs = {}
        for place, (name, feature) in enumerate(features.items()):
            outputs[name] = scores[:, : feature.length, place]
            present = tf.cast(~tf.math.is_nan(padded[place]), tf.float32)
            share = tf.reduce_sum(present, 1, keepdims=True) / feature.length
            outputs[name + LENGTH_SUFFIX] = share
        return outputs
