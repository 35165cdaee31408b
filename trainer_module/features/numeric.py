"""Numbers: z-scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from trainer_module.errors import DataError
from trainer_module.features.base import BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor

MOST_SEPARATE = 200
"""Of more columns of numbers one vector is made: TensorFlow Transform looks at each pair of what
goes in and what comes out, which takes hours for thousands of both."""
PACKED = "all_numbers"
"""The name of that vector: scores in the order of the columns' names, then the flags."""


class NumericFeature(BaseFeature):
    """A number: scaled to mean 0 and variance 1; a missing one becomes the mean.

    Where the first data had gaps, another input flags them.
    """

    type: Literal["numeric"]

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, n] float32 each, and the flags of optional columns."""
        del features
        return scale_numbers(columns)

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Whatever number is no image."""
        del indices
        return dtype == cls.dtype and len(shape) != 3


def scale_numbers(columns: Mapping[str, AnyTensor]) -> dict[str, tf.Tensor]:
    """Z-scores, [batch, n] float32 each; a missing value becomes 0, the mean.

    An optional column also gets its flag, `<name>_missing`. More than `MOST_SEPARATE` columns
    become one tensor, `PACKED`.

    Raises:
      DataError: if a column holds text.
    """
    import tensorflow as tf

    from trainer_module.features.raw_columns import dense_numbers, flag_missing
    from trainer_module.features.scaling import z_scores

    if not columns:
        return {}
    for name, column in columns.items():
        if column.dtype == tf.string:
            raise DataError(
                f"column {name!r} holds text and cannot be numeric; use type: categorical or "
                "ignore."
            )
    dense = {name: dense_numbers(column) for name, column in columns.items()}
    # One analysis of all columns side by side takes a fraction of the time of one for each.
    scores = z_scores(tf.concat(list(dense.values()), 1))
    if len(columns) > MOST_SEPARATE:
        gaps = [flag_missing(n, c, tf.math.is_nan(dense[n])) for n, c in columns.items()]
        return {PACKED: tf.concat([scores, *(flag for gap in gaps for flag in gap.values())], 1)}
    scores = tf.split(scores, [numbers.shape[1] for numbers in dense.values()], axis=1)
    outputs = dict(zip(dense, scores, strict=True))
    for name, column in columns.items():
        outputs |= flag_missing(name, column, tf.math.is_nan(dense[name]))
    return outputs
