"""From raw columns to what the model sees: the `preprocessing_fn` of TFX Transform.

Everything here becomes part of the TensorFlow graph that also serves, so training and serving
cannot differ. Transformed features keep the names of their columns. A `preprocessing_fn` of your
own can call `transform_features` and `transform_label` and add to what they return.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module import vocabulary
from trainer_module.errors import DataError
from trainer_module.settings import (
    CategoricalFeature,
    Feature,
    ImageFeature,
    NumericFeature,
    Task,
    TrainerSettings,
)

MISSING_SUFFIX = "_missing"
"""Ends the name of the 0/1 feature that flags a missing number in an optional column."""

MISSING_VALUE = "<missing>"
"""The vocabulary's entry for a missing value of a categorical feature."""

AnyTensor: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor


def preprocessing_fn(
    inputs: dict[str, AnyTensor], custom_config: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Transforms the features and the label as `TrainerSettings` in `custom_config` says.

    Raises:
      DataError: if the label or a configured feature is not among `inputs`.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    label = transform_label(inputs, settings)
    return {**transform_features(inputs, settings), settings.label: label}


def transform_features(
    inputs: Mapping[str, AnyTensor], settings: TrainerSettings
) -> dict[str, tf.Tensor]:
    """Transforms every column but the label and the ignored ones.

    Returns:
      Dense tensors: numeric [batch, n] float32 (and, for an optional column, its flag
      `<name>_missing`), categorical [batch, n] int64, image [batch, height, width, channels]
      float32 in 0..1.

    Raises:
      DataError: if a feature in `settings` is not among `inputs`.
    """
    for name in settings.features:
        _require(name, inputs, "feature")
    chosen = {
        name: settings.features.get(name) or default_feature(inputs[name].dtype)
        for name in sorted(inputs)
        if name != settings.label
    }
    numbers = {n: inputs[n] for n, f in chosen.items() if isinstance(f, NumericFeature)}
    categories = {n: f for n, f in chosen.items() if isinstance(f, CategoricalFeature)}
    images = {n: f for n, f in chosen.items() if isinstance(f, ImageFeature)}
    return {
        **scale_numbers(numbers),
        **index_categories({name: inputs[name] for name in categories}, categories),
        **{name: decode_images(name, inputs[name], feature) for name, feature in images.items()},
    }


def transform_label(inputs: Mapping[str, AnyTensor], settings: TrainerSettings) -> tf.Tensor:
    """The label as the loss wants it.

    Returns:
      Regression: [batch, 1] float32, NaN where missing. Classification: [batch, 1] int64, the
      index of the class among the sorted classes of the train split (whole numbers sort as
      numbers, text bytewise), -1 where missing or not in the train split.

    Raises:
      DataError: if the label is not among `inputs`, or not of a type the task can use.
    """
    _require(settings.label, inputs, "label")
    label = inputs[settings.label]
    if settings.task is Task.REGRESSION:
        if label.dtype == tf.string:
            raise DataError(
                f"label {settings.label!r} holds text, but task: regression predicts a number; "
                "use task: binary or multiclass."
            )
        return _dense_numbers(label)
    return vocabulary.compute_and_apply_classes(
        _dense_strings(label), settings.label, numeric=label.dtype != tf.string
    )


def default_feature(dtype: tf.DType) -> Feature:
    """How a column is transformed if the settings do not say: text is categorical."""
    if dtype == tf.string:
        return CategoricalFeature(type="categorical")
    return NumericFeature(type="numeric")


def _require(name: str, columns: Iterable[str], role: str) -> None:
    if name not in (columns := list(columns)):
        near = difflib.get_close_matches(name, columns, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(columns))}."
        raise DataError(f"the data has no column {name!r}, which is configured as {role}; {hint}")


def scale_numbers(columns: Mapping[str, AnyTensor]) -> dict[str, tf.Tensor]:
    """Z-scores, [batch, n] float32 each; a missing value becomes 0, the mean.

    An optional column also gets its flag, `<name>_missing`.

    Raises:
      DataError: if a column holds text.
    """
    if not columns:
        return {}
    for name, column in columns.items():
        if column.dtype == tf.string:
            raise DataError(
                f"column {name!r} holds text and cannot be numeric; use type: categorical or "
                "ignore."
            )
    dense = {name: _dense_numbers(column) for name, column in columns.items()}
    # One analysis of all columns side by side takes a fraction of the time of one for each.
    joined = tf.concat(list(dense.values()), 1)
    present = tf.where(~tf.math.is_nan(joined))
    # A sparse tensor keeps the missing values out of the mean and the variance.
    sparse = tf.SparseTensor(present, tf.gather_nd(joined, present), tf.shape(joined, tf.int64))
    scores = tf.sparse.to_dense(tft.scale_to_z_score(sparse, elementwise=True))
    # A column that is always missing in the train split has no mean.
    scores = tf.where(tf.math.is_nan(scores), 0.0, scores)
    scores = tf.split(scores, [numbers.shape[1] for numbers in dense.values()], axis=1)
    outputs = dict(zip(dense, scores, strict=True))
    for name, column in columns.items():
        if not isinstance(column, tf.Tensor):
            missing = tf.math.is_nan(dense[name])
            outputs[name + MISSING_SUFFIX] = tf.cast(missing, tf.float32)
    return outputs


def index_categories(
    columns: Mapping[str, AnyTensor], features: Mapping[str, CategoricalFeature]
) -> dict[str, tf.Tensor]:
    """Indices in the vocabularies, [batch, n] int64 each; missing is a value of its own."""
    if not columns:
        return {}
    values = {name: _dense_strings(column) for name, column in columns.items()}
    values = {name: tf.where(value == "", MISSING_VALUE, value) for name, value in values.items()}
    paths = vocabulary.compute_vocabularies(
        values, {name: vocabulary.ByFrequency(features[name].vocabulary_size) for name in values}
    )
    return {
        name: tft.apply_vocabulary(value, paths[name], num_oov_buckets=features[name].oov_buckets)
        for name, value in values.items()
    }


def decode_images(name: str, column: AnyTensor, feature: ImageFeature) -> tf.Tensor:
    """[batch, height, width, channels] float32 in 0..1.

    Raises:
      DataError: if the column holds numbers.
    """
    if column.dtype != tf.string:
        raise DataError(
            f"column {name!r} holds numbers; type: image needs encoded PNG, JPEG or BMP bytes."
        )

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(
            encoded, feature.channels, dtype=tf.float32, expand_animations=False
        )
        return tf.image.resize(image, [feature.height, feature.width])

    shape = [feature.height, feature.width, feature.channels]
    encoded = tf.reshape(_dense_strings(column), [-1])
    return tf.map_fn(decode, encoded, fn_output_signature=tf.TensorSpec(shape, tf.float32))


def _dense_numbers(column: AnyTensor) -> tf.Tensor:
    """[batch, n] float32, NaN where missing."""
    if isinstance(column, tf.RaggedTensor):
        column = column.to_sparse()
    if isinstance(column, tf.SparseTensor):
        column = tf.SparseTensor(
            column.indices, tf.cast(column.values, tf.float32), column.dense_shape
        )
        return _one_value(column, float("nan"))
    return _matrix(tf.cast(column, tf.float32))


def _dense_strings(column: AnyTensor) -> tf.Tensor:
    """[batch, n] string, empty where missing; a whole number is written without a decimal point."""
    if isinstance(column, tf.RaggedTensor):
        column = column.to_sparse()
    if isinstance(column, tf.SparseTensor):
        column = tf.SparseTensor(column.indices, _as_string(column.values), column.dense_shape)
        return _one_value(column, "")
    return _matrix(_as_string(column))


def _as_string(values: tf.Tensor) -> tf.Tensor:
    if values.dtype == tf.string:
        return values
    if values.dtype.is_integer:
        return tf.strings.as_string(values)
    whole = tf.strings.as_string(tf.cast(tf.math.round(values), tf.int64))
    text = tf.where(values == tf.math.round(values), whole, tf.strings.as_string(values))
    return tf.where(tf.math.is_nan(values), "", text)


def _one_value(column: tf.SparseTensor, missing: float | str) -> tf.Tensor:
    """[batch, 1]; TensorFlow refuses an example with more than one value: index out of bounds."""
    shape = tf.stack([column.dense_shape[0], 1])
    return tf.sparse.to_dense(tf.SparseTensor(column.indices, column.values, shape), missing)


def _matrix(column: tf.Tensor) -> tf.Tensor:
    return column[:, tf.newaxis] if column.shape.rank == 1 else column
