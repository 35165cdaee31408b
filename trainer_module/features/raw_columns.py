"""Raw columns, whatever the schema makes of them, as dense tensors."""

from __future__ import annotations

from typing import TypeAlias

import tensorflow as tf

AnyTensor: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor

MISSING_INTEGER = tf.int64.min
"""Stands for a missing value in a dense tensor of whole numbers, which have no NaN."""


_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?"
MISSING_SUFFIX = "_missing"
"""Ends the name of the 0/1 feature that flags a missing value of an optional column."""


def flag_missing(name: str, column: AnyTensor, missing: tf.Tensor) -> dict[str, tf.Tensor]:
    """The flags by their name, [batch, n] float32; none of a column that had no gaps at first."""
    had_gaps = not isinstance(column, tf.Tensor)
    return {name + MISSING_SUFFIX: tf.cast(missing, tf.float32)} if had_gaps else {}


def dense_numbers(column: AnyTensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """[batch, n] float32, or of another float type, NaN where missing."""
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
    """[batch, n] string, empty where missing; a whole number is written without a decimal point."""
    if isinstance(column, tf.RaggedTensor):
        column = column.to_sparse()
    if isinstance(column, tf.SparseTensor):
        column = tf.SparseTensor(column.indices, _as_string(column.values), column.dense_shape)
        return _one_value(column, "")
    return _matrix(_as_string(column))


def list_strings(column: AnyTensor, length: int, separator: str | None = None) -> tf.Tensor:
    """[batch, length] string of rows with several values, empty where a row has no more.

    Args:
      column: lists; with a separator, texts.
      length: of more values the first ones.
      separator: stands between the values of a text.
    """
    if separator is not None:
        texts = tf.reshape(dense_strings(column), [-1])
        values = tf.strings.strip(tf.strings.split(texts, separator))
    elif isinstance(column, tf.Tensor):
        values = tf.RaggedTensor.from_tensor(_matrix(_as_string(column)))
    else:
        values = _ragged(column)
        values = values.with_flat_values(_as_string(values.flat_values))
    values = tf.ragged.boolean_mask(values, values != "")
    return values.to_tensor("", shape=[None, length])


def list_numbers(column: AnyTensor, length: int, separator: str | None = None) -> tf.Tensor:
    """[batch, length] float32 of rows with several values, NaN where missing; as `list_strings`.

    What is no number in a text is missing.
    """
    nothing = tf.constant(float("nan"))
    if separator is not None:
        texts = list_strings(column, length, separator)
        is_number = tf.strings.regex_full_match(texts, _NUMBER)
        return tf.where(is_number, tf.strings.to_number(tf.where(is_number, texts, "0")), nothing)
    if isinstance(column, tf.Tensor):
        values = tf.RaggedTensor.from_tensor(dense_numbers(column))
    else:
        values = _ragged(column)
        values = values.with_flat_values(tf.cast(values.flat_values, tf.float32))
    return values.to_tensor(nothing, shape=[None, length])


def _ragged(column: tf.SparseTensor | tf.RaggedTensor) -> tf.RaggedTensor:
    is_ragged = isinstance(column, tf.RaggedTensor)
    return column if is_ragged else tf.RaggedTensor.from_sparse(column)


def _as_string(values: tf.Tensor) -> tf.Tensor:
    if values.dtype == tf.string:
        return values
    if values.dtype.is_integer:
        values = tf.cast(values, tf.int64)
        return tf.where(values == MISSING_INTEGER, "", tf.strings.as_string(values))
    whole = tf.strings.as_string(tf.cast(tf.math.round(values), tf.int64))
    text = tf.where(values == tf.math.round(values), whole, tf.strings.as_string(values))
    return tf.where(tf.math.is_nan(values), "", text)


def _one_value(column: tf.SparseTensor, missing: float | str) -> tf.Tensor:
    """[batch, 1]; TensorFlow refuses an example with more than one value: index out of bounds."""
    shape = tf.stack([column.dense_shape[0], 1])
    return tf.sparse.to_dense(tf.SparseTensor(column.indices, column.values, shape), missing)


def _matrix(column: tf.Tensor) -> tf.Tensor:
    return column[:, tf.newaxis] if column.shape.rank == 1 else column
