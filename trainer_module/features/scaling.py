"""The scaling of numeric columns, and the hashing of values.

One analysis of Transform computes the statistics of many columns.
"""

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


def hash_values(values: tf.Tensor, buckets: int, reserved: str | None = None) -> tf.Tensor:
    """Returns the hash buckets of string values, int64 of the same shape.

    Args:
      values: strings of any shape.
      buckets: the number of buckets.
      reserved: a value that gets the index 0; the indices of the buckets then begin at 1.
    """
    hashes = tf.strings.to_hash_bucket_fast(values, buckets)
    if reserved is None:
        return limit_indices(hashes, buckets)
    indices = tf.where(values == reserved, tf.constant(0, tf.int64), hashes + 1)
    return limit_indices(indices, buckets + 1)


ROUNDING = 1e-6
"""The ratio to the mean below which a standard deviation counts as a rounding error of float32."""

_QUANTILES = 200
"""The number of quantiles that are computed per column."""


def z_scores(numbers: tf.Tensor) -> tf.Tensor:
    """Returns each column scaled to mean 0 and variance 1.

    Args:
      numbers: [batch, n] float32, NaN where missing.

    Returns:
      A tensor of the same shape, 0 where missing.
    """
    train = _TrainStatistics(numbers)
    scores = _ratio(numbers - train.mean, train.deviation)
    return tf.where(tf.math.is_nan(scores), 0.0, scores)


def limit_indices(indices: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the indices, and stores their range, 0 to `size` - 1, in the schema, as TFT does."""
    schema_inference.set_tensor_schema_override(
        indices, tf.constant(0, tf.int64), tf.constant(size - 1, tf.int64)
    )
    return indices


def clip_and_log(numbers: tf.Tensor, feature: NumericFeature) -> tf.Tensor:
    """Returns clipped numbers, or their logarithms if the scaling is `log`. Missing is NaN."""
    if feature.clip is not None:
        clipped = tf.clip_by_value(numbers, *feature.clip)
        numbers = tf.where(tf.math.is_nan(numbers), numbers, clipped)
    return _logarithm(numbers) if feature.scaling == "log" else numbers


def scale(
    numbers: Mapping[str, tf.Tensor], features: Mapping[str, NumericFeature]
) -> dict[str, tf.Tensor]:
    """Returns the columns in their configured scaling: [batch, n] float32 each, int64 for buckets.

    Args:
      numbers: the outputs of `clip_and_log` by name, with NaN where missing.
      features: the settings of the columns by name.
    """
    if not numbers:
        return {}
    names = sorted(numbers)
    widths = [numbers[name].shape[1] for name in names]
    train = _TrainStatistics(tf.concat([numbers[name] for name in names], 1))
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


class _TrainStatistics:
    """The statistics of the train split, [n] each, which are computed if they are used."""

    def __init__(self, numbers: tf.Tensor) -> None:
        self._numbers = numbers

    @functools.cached_property
    def mean(self) -> tf.Tensor:
        return _finite(tft.mean(self._numbers, reduce_instance_dims=False))

    @functools.cached_property
    def deviation(self) -> tf.Tensor:
        deviation = tf.sqrt(_finite(tft.var(self._numbers, reduce_instance_dims=False)))
        # By rounding errors, most constant columns have a small deviation.
        return tf.where(deviation > ROUNDING * tf.abs(self.mean), deviation, 0.0)

    @functools.cached_property
    def bounds(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The smallest and the largest number of each column."""
        signed = tf.concat([self._numbers, -self._numbers], 1)
        # TensorFlow Transform's maximum of numbers with NaN would be NaN.
        signed = tf.where(tf.math.is_nan(signed), -math.inf, signed)
        maxima = _finite(tft.max(signed, reduce_instance_dims=False))
        high, negative_low = tf.split(maxima, 2)
        return -negative_low, high

    @functools.cached_property
    def quantiles(self) -> tf.Tensor:
        """The quantiles of each column, [n, _QUANTILES - 1]."""
        quantiles = tft.quantiles(
            self._numbers, _QUANTILES, epsilon=0.2 / _QUANTILES, reduce_instance_dims=False
        )
        return tf.ensure_shape(_finite(quantiles), [self._numbers.shape[1], _QUANTILES - 1])

    def fill(self, feature: NumericFeature) -> tf.Tensor:
        """Returns the value of `feature.fill` for each column, [n]."""
        if feature.fill == "mean":
            return self.mean
        if feature.fill == "median":
            return self.quantiles[:, _QUANTILES // 2 - 1]
        number = tf.constant(0.0 if feature.fill == "zero" else feature.fill)
        number = _logarithm(number) if feature.scaling == "log" else number
        return tf.fill([self._numbers.shape[1]], number)

    def apply(self, numbers: tf.Tensor, feature: NumericFeature, column: slice) -> tf.Tensor:
        """Returns the scaled numbers of a feature.

        Args:
          numbers: the numbers of the feature, without missing numbers.
          feature: the settings of the feature.
          column: the positions of the feature's numbers among the columns.
        """
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
                # If half of the rows have the same value, the quartiles may be equal.
                tails = self.quantiles[column, -1] - self.quantiles[column, 0]
                spread = tf.where(high > low, high - low, tails)
                return _ratio(numbers - middle, spread)
            case "quantiles":
                ranks = [
                    _rank(numbers[:, index], boundaries)
                    for index, boundaries in enumerate(tf.unstack(self.quantiles[column]))
                ]
                # Numbers that are distributed evenly between 0 and 1 have a variance of 1/12.
                return (tf.stack(ranks, 1) - 0.5) * math.sqrt(12)
        return numbers


def _rank(numbers: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """Returns the share of the train split that is smaller than each number, [batch].

    Between two quantiles, the share is interpolated.

    Args:
      numbers: [batch].
      boundaries: the quantiles of the train split.
    """
    below = tf.searchsorted(boundaries, numbers, side="left")
    above = tf.searchsorted(boundaries, numbers, side="right")
    low = tf.gather(boundaries, tf.maximum(below - 1, 0))
    high = tf.gather(boundaries, tf.minimum(below, boundaries.shape[0] - 1))
    between = tf.clip_by_value(tf.math.divide_no_nan(numbers - low, high - low), 0.0, 1.0)
    # If boundaries are equal to a number, half of them count as smaller.
    ranks = tf.where(
        above > below,
        tf.cast(below + above + 1, tf.float32) / 2,
        tf.cast(below, tf.float32) + between,
    )
    return ranks / (boundaries.shape[0] + 1)


def _bucketize(numbers: tf.Tensor, quantiles: tf.Tensor, buckets: int) -> tf.Tensor:
    """Returns the bucket of each number, [batch, n] int64; missing numbers have the last bucket."""
    rows = [_QUANTILES * bucket // buckets - 1 for bucket in range(1, buckets)]
    boundaries = tf.gather(quantiles, rows, axis=1)
    index = tf.searchsorted(boundaries, tf.transpose(numbers), side="right", out_type=tf.int64)
    index = tf.where(tf.math.is_nan(numbers), tf.constant(buckets, tf.int64), tf.transpose(index))
    return limit_indices(index, buckets + 1)


def _logarithm(numbers: tf.Tensor) -> tf.Tensor:
    return tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))


def _finite(statistics: tf.Tensor) -> tf.Tensor:
    """Returns the statistics, with 0 for a column without a value in the train split."""
    statistics = tf.cast(statistics, tf.float32)
    return tf.where(tf.math.is_finite(statistics), statistics, 0.0)


def _ratio(numbers: tf.Tensor, spread: tf.Tensor) -> tf.Tensor:
    """Returns the numbers divided by the spread; where the spread is 0, the numbers themselves, as
    TFT does.
    """
    return numbers / tf.where(spread > 0, spread, tf.ones_like(spread))
