"""The scaling of numeric columns, with one analysis of all columns of the same scaling."""

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
    """Returns the hash buckets of string values, int64 of the same shape.

    Args:
      values: of any shape.
      buckets: the number of buckets.
      nothing: a value with index 0 for itself alone, before the buckets; None for no such value.
    """
    hashed = tf.strings.to_hash_bucket_fast(values, buckets)
    if nothing is None:
        return limit_indices(hashed, buckets)
    indices = tf.where(values == nothing, tf.constant(0, tf.int64), hashed + 1)
    return limit_indices(indices, buckets + 1)


ROUNDING = 1e-6
"""The share of a mean below which a standard deviation is a rounding error of float32."""

_QUANTILES = 200
"""The number of quantiles that are computed per column."""


def z_scores(numbers: tf.Tensor) -> tf.Tensor:
    """Returns each column scaled to mean 0 and variance 1.

    Args:
      numbers: [batch, n] float32, NaN where missing.

    Returns:
      The same shape, 0 where missing.
    """
    train = _TrainSplit(numbers)
    scores = _ratio(numbers - train.mean, train.deviation)
    return tf.where(tf.math.is_nan(scores), 0.0, scores)


def limit_indices(indices: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the indices, int64, whose range below `size` is stored in the schema, as TFT does."""
    schema_inference.set_tensor_schema_override(
        indices, tf.constant(0, tf.int64), tf.constant(size - 1, tf.int64)
    )
    return indices


def clip_and_log(numbers: tf.Tensor, feature: NumericFeature) -> tf.Tensor:
    """Returns clipped numbers, or their logarithms if the scaling is `log`; NaN where missing."""
    if feature.clip is not None:
        clipped = tf.clip_by_value(numbers, *feature.clip)
        numbers = tf.where(tf.math.is_nan(numbers), numbers, clipped)
    return _logarithm(numbers) if feature.scaling == "log" else numbers


def scale(
    numbers: Mapping[str, tf.Tensor], features: Mapping[str, NumericFeature]
) -> dict[str, tf.Tensor]:
    """Returns the columns in their configured scaling: [batch, n] float32 each, int64 for buckets.

    Args:
      numbers: the outputs of `clip_and_log`; NaN where missing.
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
    """The statistics of the train split's columns, [n] each, analysed at their first use."""

    def __init__(self, numbers: tf.Tensor) -> None:
        self._numbers = numbers

    @functools.cached_property
    def mean(self) -> tf.Tensor:
        return _finite(tft.mean(self._numbers, reduce_instance_dims=False))

    @functools.cached_property
    def deviation(self) -> tf.Tensor:
        found = tf.sqrt(_finite(tft.var(self._numbers, reduce_instance_dims=False)))
        # Rounding gives most constants a small deviation, which does not count.
        return tf.where(found > ROUNDING * tf.abs(self.mean), found, 0.0)

    @functools.cached_property
    def bounds(self) -> tuple[tf.Tensor, tf.Tensor]:
        both = tf.concat([self._numbers, -self._numbers], 1)
        # TensorFlow Transform's maximum of NaN is NaN.
        both = tf.where(tf.math.is_nan(both), -math.inf, both)
        highest = _finite(tft.max(both, reduce_instance_dims=False))
        high, low = tf.split(highest, 2)
        return -low, high

    @functools.cached_property
    def quantiles(self) -> tf.Tensor:
        """The quantiles of each column, [n, _QUANTILES - 1]."""
        found = tft.quantiles(
            self._numbers, _QUANTILES, epsilon=0.2 / _QUANTILES, reduce_instance_dims=False
        )
        return tf.ensure_shape(_finite(found), [self._numbers.shape[1], _QUANTILES - 1])

    def fill(self, feature: NumericFeature) -> tf.Tensor:
        """Returns the value that replaces missing numbers in each column, by the settings."""
        if feature.fill == "mean":
            return self.mean
        if feature.fill == "median":
            return self.quantiles[:, _QUANTILES // 2 - 1]
        number = tf.constant(0.0 if feature.fill == "zero" else feature.fill)
        number = _logarithm(number) if feature.scaling == "log" else number
        return tf.fill([self._numbers.shape[1]], number)

    def apply(self, numbers: tf.Tensor, feature: NumericFeature, column: slice) -> tf.Tensor:
        """Returns the scaled numbers of a column, none of them missing."""
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
    """Returns the interpolated share of the train split that is smaller than each number,
    [batch].
    """
    below = tf.searchsorted(boundaries, numbers, side="left")
    above = tf.searchsorted(boundaries, numbers, side="right")
    low = tf.gather(boundaries, tf.maximum(below - 1, 0))
    high = tf.gather(boundaries, tf.minimum(below, boundaries.shape[0] - 1))
    between = tf.clip_by_value(tf.math.divide_no_nan(numbers - low, high - low), 0.0, 1.0)
    # Half of the boundaries that are equal to a number count as below it.
    ranks = tf.where(
        above > below,
        tf.cast(below + above + 1, tf.float32) / 2,
        tf.cast(below, tf.float32) + between,
    )
    return ranks / (boundaries.shape[0] + 1)


def _bucketize(numbers: tf.Tensor, quantiles: tf.Tensor, buckets: int) -> tf.Tensor:
    """Returns the bucket of each number, the last index where missing: [batch, n] int64."""
    places = [_QUANTILES * bucket // buckets - 1 for bucket in range(1, buckets)]
    boundaries = tf.gather(quantiles, places, axis=1)
    found = tf.searchsorted(boundaries, tf.transpose(numbers), side="right", out_type=tf.int64)
    index = tf.where(tf.math.is_nan(numbers), tf.constant(buckets, tf.int64), tf.transpose(found))
    return limit_indices(index, buckets + 1)


def _logarithm(numbers: tf.Tensor) -> tf.Tensor:
    return tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))


def _finite(statistics: tf.Tensor) -> tf.Tensor:
    """Returns the statistics, with 0 for a column that is always missing in the train split."""
    statistics = tf.cast(statistics, tf.float32)
    return tf.where(tf.math.is_finite(statistics), statistics, 0.0)


def _ratio(numbers: tf.Tensor, spread: tf.Tensor) -> tf.Tensor:
    """Returns numbers divided by a spread; unchanged where the spread is 0, as in TFT."""
    return numbers / tf.where(spread > 0, spread, tf.ones_like(spread))
