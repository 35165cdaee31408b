"""Numbers brought to a scale, side by side: one analysis of all columns that are scaled alike."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import schema_inference

if TYPE_CHECKING:
    from trainer_module.features.numeric import NumericFeature


def hash_values(values: tf.Tensor, buckets: int, nothing: str | None = None) -> tf.Tensor:
    """Indices of string values, the same shape, int64.

    Args:
      values: of any shape.
      buckets: how many indices there are for them.
      nothing: a value that is none; index 0 is for it alone, and the buckets come after it.
    """
    hashed = tf.strings.to_hash_bucket_fast(values, buckets)
    if nothing is None:
        return limit_indices(hashed, buckets)
    indices = tf.where(values == nothing, tf.constant(0, tf.int64), hashed + 1)
    return limit_indices(indices, buckets + 1)


ROUNDING = 1e-6
"""The share of a mean below which a standard deviation is float32's alone."""

_QUANTILES = 200
"""Into how many ranges of as many rows the values of a column are divided."""


def z_scores(numbers: tf.Tensor) -> tf.Tensor:
    """Mean 0 and variance 1 in each column.

    Args:
      numbers: [batch, n] float32, NaN where missing.

    Returns:
      The same shape, 0 where missing.
    """
    train = _TrainSplit(numbers)
    scores = _ratio(numbers - train.mean, train.deviation)
    return tf.where(tf.math.is_nan(scores), 0.0, scores)


def limit_indices(indices: tf.Tensor, size: int) -> tf.Tensor:
    """Notes that indices, int64, are below a size; as TFT notes it of vocabularies."""
    schema_inference.set_tensor_schema_override(
        indices, tf.constant(0, tf.int64), tf.constant(size - 1, tf.int64)
    )
    return indices


def bend(numbers: tf.Tensor, feature: NumericFeature) -> tf.Tensor:
    """Numbers clipped, and their logarithms where the scale is of those; NaN where missing."""
    if feature.clip is not None:
        clipped = tf.clip_by_value(numbers, *feature.clip)
        numbers = tf.where(tf.math.is_nan(numbers), numbers, clipped)
    return _logarithm(numbers) if feature.scaling == "log" else numbers


def scale(
    numbers: Mapping[str, tf.Tensor], features: Mapping[str, NumericFeature]
) -> dict[str, tf.Tensor]:
    """Columns as the config asks for them: [batch, n] float32 each, and of buckets int64.

    Args:
      numbers: `bend` has been at them; NaN where missing.
      features: their settings, by name.
    """
    if not numbers:
        return {}
    names = sorted(numbers)
    widths = [numbers[name].shape[1] for name in names]
    train = _TrainSplit(tf.concat([numbers[name] for name in names], 1))
    outputs, begin = {}, 0
    for name, width in zip(names, widths, strict=True):
        column, feature = slice(begin, begin + width), features[name]
        if feature.buckets is not None:
            outputs[name] = _bucketize(numbers[name], train.quantiles[column], feature.buckets)
        else:
            filled = tf.where(
                tf.math.is_nan(numbers[name]), train.fill(feature)[column], numbers[name]
            )
            outputs[name] = train.apply(filled, feature, column)
        begin += width
    return outputs


class _TrainSplit:
    """What the train split's columns are like, [n] each; analysed when asked for, once."""

    def __init__(self, numbers: tf.Tensor) -> None:
        self._numbers = numbers

    @functools.cached_property
    def mean(self) -> tf.Tensor:
        return _finite(tft.mean(self._numbers, reduce_instance_dims=False))

    @functools.cached_property
    def deviation(self) -> tf.Tensor:
        found = tf.sqrt(_finite(tft.var(self._numbers, reduce_instance_dims=False)))
        # Of a constant that is no sum of few powers of 2, what rounding leaves is no spread.
        return tf.where(found > ROUNDING * tf.abs(self.mean), found, 0.0)

    @functools.cached_property
    def bounds(self) -> tuple[tf.Tensor, tf.Tensor]:
        both = tf.concat([self._numbers, -self._numbers], 1)
        # Of NaN TensorFlow Transform makes a maximum that is NaN.
        both = tf.where(tf.math.is_nan(both), -math.inf, both)
        highest = _finite(tft.max(both, reduce_instance_dims=False))
        high, low = tf.split(highest, 2)
        return -low, high

    @functools.cached_property
    def quantiles(self) -> tf.Tensor:
        """[n, _QUANTILES - 1]."""
        found = tft.quantiles(
            self._numbers, _QUANTILES, epsilon=0.2 / _QUANTILES, reduce_instance_dims=False
        )
        return tf.ensure_shape(_finite(found), [self._numbers.shape[1], _QUANTILES - 1])

    def fill(self, feature: NumericFeature) -> tf.Tensor:
        """What stands for missing numbers of each column, if it is of the settings."""
        if feature.fill == "mean":
            return self.mean
        if feature.fill == "median":
            return self.quantiles[:, _QUANTILES // 2 - 1]
        number = tf.constant(0.0 if feature.fill == "zero" else feature.fill)
        number = _logarithm(number) if feature.scaling == "log" else number
        return tf.fill([self._numbers.shape[1]], number)

    def apply(self, numbers: tf.Tensor, feature: NumericFeature, column: slice) -> tf.Tensor:
        """Scales numbers of a column, none of them missing."""
        match feature.scaling:
            case "z_score" | "log":
                return _ratio(numbers - self.mean[column], self.deviation[column])
            case "min_max":
                low, high = (bound[column] for bound in self.bounds)
                return tf.clip_by_value(_ratio(numbers - low, high - low), 0.0, 1.0)
            case "robust":
                low, middle, high = (
                    self.quantiles[column, _QUANTILES * quarter // 4 - 1] for quarter in (1, 2, 3)
                )
                # More than half of the rows may have the same value.
                tails = self.quantiles[column, -1] - self.quantiles[column, 0]
                spread = tf.where(high > low, high - low, tails)
                return _ratio(numbers - middle, spread)
            case "quantiles":
                ranks = [
                    _rank(numbers[:, place], boundaries)
                    for place, boundaries in enumerate(tf.unstack(self.quantiles[column]))
                ]
                # Evenly spread numbers between 0 and 1 have a variance of 1/12.
                return (tf.stack(ranks, 1) - 0.5) * math.sqrt(12)
        return numbers


def _rank(numbers: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """Returns the share of the train split that is smaller, interpolated, of numbers [batch]."""
    below = tf.searchsorted(boundaries, numbers, side="left")
    above = tf.searchsorted(boundaries, numbers, side="right")
    low = tf.gather(boundaries, tf.maximum(below - 1, 0))
    high = tf.gather(boundaries, tf.minimum(below, boundaries.shape[0] - 1))
    between = tf.clip_by_value(tf.math.divide_no_nan(numbers - low, high - low), 0.0, 1.0)
    # Of boundaries that are equal to a number, half are below it.
    ranks = tf.where(
        above > below,
        tf.cast(below + above + 1, tf.float32) / 2,
        tf.cast(below, tf.float32) + between,
    )
    return ranks / (boundaries.shape[0] + 1)


def _bucketize(numbers: tf.Tensor, quantiles: tf.Tensor, buckets: int) -> tf.Tensor:
    """Returns the range that each number is in, the last index where it is missing: [batch, n]
    int64.
    """
    places = [_QUANTILES * bucket // buckets - 1 for bucket in range(1, buckets)]
    boundaries = tf.gather(quantiles, places, axis=1)
    found = tf.searchsorted(boundaries, tf.transpose(numbers), side="right", out_type=tf.int64)
    index = tf.where(tf.math.is_nan(numbers), tf.constant(buckets, tf.int64), tf.transpose(found))
    return limit_indices(index, buckets + 1)


def _logarithm(numbers: tf.Tensor) -> tf.Tensor:
    return tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))


def _finite(statistics: tf.Tensor) -> tf.Tensor:
    """0 for a column that is always missing in the train split."""
    statistics = tf.cast(statistics, tf.float32)
    return tf.where(tf.math.is_finite(statistics), statistics, 0.0)


def _ratio(numbers: tf.Tensor, spread: tf.Tensor) -> tf.Tensor:
    """Numbers by a spread; as they are where there is none, as TFT has it."""
    return numbers / tf.where(spread > 0, spread, tf.ones_like(spread))
