"""Conversions of raw columns, which are dense, sparse or ragged tensors, to dense tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from trainer_module.features.base import MISSING_SUFFIX
from trainer_module.features.number_format import (
    DIGITS,
    FACTORS,
    LARGEST_WHOLE,
    MINUS,
    NumberFormat,
)

AnyTensor: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor

MISSING_INTEGER = tf.int64.min
"""The value that marks a missing value in a dense tensor of whole numbers, which have no NaN."""

NO_FINGERPRINT = -1
"""The fingerprint of a row whose value is missing."""


_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?"


def flag_missing(name: str, column: AnyTensor, missing: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the flags of a column's missing values, [batch, n] float32, by their name.

    The result is empty for a required column: a column that had no missing values when the schema
    was inferred.

    Args:
      name: the name of the column.
      column: the raw column.
      missing: whether each value is missing, [batch, n] bool.
    """
    is_optional = not isinstance(column, tf.Tensor)
    return {name + MISSING_SUFFIX: tf.cast(missing, tf.float32)} if is_optional else {}


def dense_numbers(column: AnyTensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Returns the numbers of a column, [batch, n] of a float type, with NaN where missing."""
    if isinstance(column, tf.RaggedTensor):
        column = column.to_sparse()
    if isinstance(column, tf.SparseTensor):
        column = tf.SparseTensor(column.indices, tf.cast(column.values, dtype), column.dense_shape)
        return _one_value(column, float("nan"))
    numbers = tf.cast(column, dtype)
    if column.dtype == tf.int64:
        numbers = tf.where(column == MISSING_INTEGER, tf.constant(float("nan"), dtype), numbers)
    return _matrix(numbers)


def dense_strings(column: AnyTensor) -> tf.Tensor:
    """Returns the values of a column as strings, [batch, n]; an empty string where missing.

    Whole numbers have no decimal point.
    """
    if isinstance(column, tf.RaggedTensor):
        column = column.to_sparse()
    if isinstance(column, tf.SparseTensor):
        column = tf.SparseTensor(column.indices, _as_string(column.values), column.dense_shape)
        return _one_value(column, "")
    return _matrix(_as_string(column))


def dense_keys(column: AnyTensor) -> tf.Tensor:
    """Returns the values of a column as sort keys, [batch, 1] of the column's type.

    A missing value is `MISSING_INTEGER`, NaN or an empty string.
    """
    if isinstance(column, tf.RaggedTensor):
        column = column.to_sparse()
    if isinstance(column, tf.SparseTensor):
        missing_number = MISSING_INTEGER if column.dtype.is_integer else float("nan")
        return _one_value(column, "" if column.dtype == tf.string else missing_number)
    return _matrix(column)


def fingerprints(column: AnyTensor) -> tf.Tensor:
    """Returns fingerprints of a column's rows, [batch, 1] int64.

    Rows with equal values have equal fingerprints. Rows whose value is missing have
    `NO_FINGERPRINT`.
    """
    if isinstance(column, tf.Tensor):
        column = tf.RaggedTensor.from_tensor(_matrix(column))
    elif isinstance(column, tf.SparseTensor):
        column = tf.RaggedTensor.from_sparse(column)
    texts = column.with_flat_values(_as_string(column.flat_values))
    # The lengths distinguish ["a", "b"] from ["a\x1fb"].
    joined = tf.strings.reduce_join(texts, axis=-1, separator="\x1f")
    is_missing = joined == ""
    keys = tf.strings.join([tf.strings.as_string(texts.row_lengths()), joined], "\x1f")
    hashes = tf.strings.to_hash_bucket_fast(keys, tf.int64.max)
    return tf.where(is_missing, tf.constant(NO_FINGERPRINT, tf.int64), hashes)[:, tf.newaxis]


def parse_numbers(texts: tf.Tensor, number_format: NumberFormat) -> tf.Tensor:
    """Returns strings as numbers, float32 of the same shape, and NaN for other strings."""
    is_number = tf.strings.regex_full_match(texts, number_format.pattern)
    pieces = tf.strings.regex_replace(texts, f"^{number_format.pattern}$", number_format.rewrite)
    if number_format.style == "clock":
        pieces = tf.where(is_number, pieces, ";0;0;0;")
        defaults = [[""], ["0"], ["0"], ["0"], [""]]
        sign, hours, minutes, seconds, half = tf.io.decode_csv(pieces, defaults, field_delim=";")
        hour = tf.strings.to_number(hours, tf.float64)
        half = tf.strings.lower(half)
        hour += 12 * tf.cast((half == "p") & (hour < 12), tf.float64)
        hour -= 12 * tf.cast((half == "a") & (hour == 12), tf.float64)
        minute = tf.strings.to_number(minutes, tf.float64)
        seconds = tf.strings.regex_replace(seconds, ",", ".")
        number = hour + minute / 60 + tf.strings.to_number(seconds, tf.float64) / 3600
    else:
        pieces = tf.where(is_number, pieces, ";0;")
        sign, digits, factor = tf.io.decode_csv(pieces, [[""], ["0"], [""]], field_delim=";")
        digits = tf.strings.regex_replace(digits, f"[^0-9eE+{number_format.decimal}-]", "")
        digits = tf.strings.regex_replace(digits, ",", ".")
        number = tf.strings.to_number(digits, tf.float64)
        for letter, times in FACTORS.items():
            number *= tf.where(tf.strings.lower(factor) == letter, *_constants(times, 1.0))
    number *= tf.where(tf.strings.regex_full_match(sign, f".*[({MINUS}].*"), *_constants(-1.0, 1.0))
    number = tf.cast(number, tf.float32)
    return tf.where(is_number & tf.math.is_finite(number), number, float("nan"))


def _constants(yes: float, no: float) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(yes, tf.float64), tf.constant(no, tf.float64)


def list_strings(column: AnyTensor, length: int, separator: str | None = None) -> tf.Tensor:
    """Returns rows of several values, [batch, length] string, padded with empty strings.

    Args:
      column: lists of values, or strings if there is a separator.
      length: the maximum number of values per row; further values are dropped.
      separator: the separator of the values in a string.
    """
    if separator is None:
        return _truncate_or_pad(column, length, _as_string, "")
    separators = rf"(?:\s*{re.escape(separator)}\s*)+"
    texts = tf.strings.regex_replace(dense_strings(column)[:, 0], separators, separator)
    texts = tf.strings.regex_replace(texts, rf"^{separators}|{separators}$|^\s+|\s+$", "")
    return tf.strings.split(texts, separator).to_tensor("", shape=[None, length])


def list_numbers(column: AnyTensor, length: int, separator: str | None = None) -> tf.Tensor:
    """Returns rows of several numbers, [batch, length] float32, padded with NaN.

    Parts of a string that are not numbers are NaN. `list_strings` describes the arguments.
    """
    if separator is None:
        return _truncate_or_pad(
            column, length, lambda values: tf.cast(values, tf.float32), float("nan")
        )
    texts = list_strings(column, length, separator)
    is_number = tf.strings.regex_full_match(texts, _NUMBER)
    numbers = tf.strings.to_number(tf.where(is_number, texts, "0"))
    return tf.where(is_number, numbers, float("nan"))


def _truncate_or_pad(
    column: AnyTensor,
    length: int,
    convert: Callable[[tf.Tensor], tf.Tensor],
    missing: float | str,
) -> tf.Tensor:
    """Returns the first `length` converted values of each list, padded with `missing`."""
    if isinstance(column, tf.Tensor):
        column = convert(_matrix(column))[:, :length]
        gap = [[0, 0], [0, length - column.shape[1]]]
        return tf.pad(column, gap, constant_values=missing)
    if isinstance(column, tf.RaggedTensor):
        column = column.to_sparse()
    rows = column.dense_shape[0]
    column = tf.sparse.slice(column, [0, 0], tf.stack([rows, length]))
    values = tf.SparseTensor(column.indices, convert(column.values), tf.stack([rows, length]))
    return tf.sparse.to_dense(values, missing)


def _as_string(values: tf.Tensor) -> tf.Tensor:
    if values.dtype == tf.string:
        return values
    if values.dtype.is_integer:
        values = tf.cast(values, tf.int64)
        return tf.where(values == MISSING_INTEGER, "", tf.strings.as_string(values))
    fits = tf.abs(values) < tf.cast(LARGEST_WHOLE, values.dtype)
    is_whole = (values == tf.math.round(values)) & fits
    whole = tf.strings.as_string(tf.cast(tf.where(is_whole, values, 0), tf.int64))
    short = tf.strings.as_string(values, precision=DIGITS, shortest=True)
    text = tf.where(is_whole, whole, short)
    return tf.where(tf.math.is_nan(values), "", text)


def _one_value(column: tf.SparseTensor, missing: float | str) -> tf.Tensor:
    """Returns a column as a dense tensor, [batch, 1].

    For an example with several values, TensorFlow raises an error: index out of bounds.
    """
    shape = tf.stack([column.dense_shape[0], 1])
    return tf.sparse.to_dense(tf.SparseTensor(column.indices, column.values, shape), missing)


def _matrix(column: tf.Tensor) -> tf.Tensor:
    return column[:, tf.newaxis] if column.shape.rank == 1 else column
