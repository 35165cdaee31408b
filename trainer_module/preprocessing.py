"""The `preprocessing_fn` of TFX Transform, which turns raw columns into the features of a model.

All transformations become part of the exported TensorFlow graph, so training and serving cannot
differ. Transformed features keep the names of their columns. Your own `preprocessing_fn` can call
`transform_features`, `transform_label` and `transform_weight`, and extend their results.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from trainer_module.errors import DataError
from trainer_module.features import FEATURES, feature_class
from trainer_module.features.base import GROUP, TIME, free_name
from trainer_module.features.categorical import CategoricalFeature
from trainer_module.features.numeric import NumericFeature
from trainer_module.features.own import is_own, transform_own
from trainer_module.features.raw_columns import (
    AnyTensor,
    dense_keys,
    dense_numbers,
    fingerprints,
)
from trainer_module.sections import load_own
from trainer_module.settings import OWN_PREPROCESSING_KEY, Feature, TrainerSettings

CUSTOM_CONFIG_KEY = "custom_config"
"""The name of the optional argument of the user's `preprocessing_fn`."""


def preprocessing_fn(
    inputs: dict[str, AnyTensor], custom_config: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Transforms the features and the label by the `TrainerSettings` in `custom_config`.

    Raises:
      DataError: the label or a configured feature is not among `inputs`.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    label = transform_label(inputs, settings)
    weight = transform_weight(inputs, settings)
    split_keys = transform_split_keys(inputs, settings)
    return {**transform_features(inputs, settings), **weight, **split_keys, settings.label: label}


def preprocess_by_own_function(
    inputs: dict[str, AnyTensor], custom_config: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Returns the tensors of the user's `preprocessing_fn`, and the tensor by which training
    divides the train split.

    Args:
      inputs: the raw columns.
      custom_config: the settings, and the import path of the user's function under
        `OWN_PREPROCESSING_KEY`.

    Raises:
      DataError: the data lacks the column of `data.split_by` or `data.order_by`.
      TrainingError: the user's function cannot be imported.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    own = load_own("preprocessing", custom_config[OWN_PREPROCESSING_KEY])
    # TFX passes `custom_config` under the same condition.
    takes_config = CUSTOM_CONFIG_KEY in inspect.signature(own).parameters
    returned = own(dict(inputs), **({CUSTOM_CONFIG_KEY: custom_config} if takes_config else {}))
    return {**returned, **transform_split_keys(inputs, settings)}


def transform_features(
    inputs: Mapping[str, AnyTensor], settings: TrainerSettings
) -> dict[str, tf.Tensor]:
    """Transforms every column except the label, the weight and the ignored columns.

    Returns:
      Dense tensors, as the `transform` of each feature type returns them.

    Raises:
      DataError: a feature in `settings` is not among `inputs`.
    """
    _check_columns(inputs, settings)
    chosen = {
        name: settings.features.get(name) or default_feature(inputs[name].dtype)
        for name in sorted({*inputs, *settings.features})
        if name not in (settings.label, settings.weight)
    }
    transformed: dict[str, tf.Tensor] = {}
    for kind in dict.fromkeys([*FEATURES, *sorted(f.type for f in chosen.values())]):
        features = {name: feature for name, feature in chosen.items() if feature.type == kind}
        if features and feature_class(kind).is_input:
            needed = {column for name, f in features.items() for column in f.columns_of(name)}
            columns = {name: inputs[name] for name in sorted(needed)}
            taken = {*inputs, *chosen, *transformed}
            transform = (
                functools.partial(transform_own, kind, taken=taken)
                if is_own(kind)
                else feature_class(kind).transform
            )
            outputs = transform(columns, features)
            transformed |= {free_name(name, taken): output for name, output in outputs.items()}
    return transformed


def transform_label(inputs: Mapping[str, AnyTensor], settings: TrainerSettings) -> tf.Tensor:
    """Returns the label in the form that the loss takes.

    Returns:
      For regression, float32 [batch, 1]; a missing label is NaN. For classification, int64
      [batch, 1]: the index of the class among the sorted classes of the train split (integers sort
      as numbers, text sorts bytewise). A label that is missing or not in the train split is -1.

    Raises:
      DataError: the label is not among `inputs`, or has a type that the task cannot use.
    """
    _require(settings.label, inputs, "label")
    return settings.label_task.transform_label(inputs[settings.label], settings.label)


def transform_weight(
    inputs: Mapping[str, AnyTensor], settings: TrainerSettings
) -> dict[str, tf.Tensor]:
    """Returns the examples' weights, [batch, 1] float32, by name.

    The result is empty if the config has no `data.weight`.

    Raises:
      DataError: the weight is not among `inputs`.
    """
    if settings.weight is None:
        return {}
    _require(settings.weight, inputs, "weight")
    return {settings.weight: dense_numbers(inputs[settings.weight])}


def transform_split_keys(
    inputs: Mapping[str, AnyTensor], settings: TrainerSettings
) -> dict[str, tf.Tensor]:
    """Returns the tensor, [batch, 1], by which training divides the train split, by its name in
    `SPLIT_KEYS`.

    No model takes the tensor as an input, and no request needs its column.

    Raises:
      DataError: the column is not among `inputs`.
    """
    if settings.split_by:
        _require(settings.split_by, inputs, "data.split_by")
        return {GROUP: fingerprints(inputs[settings.split_by])}
    if settings.order_by:
        _require(settings.order_by, inputs, "data.order_by")
        return {TIME: dense_keys(inputs[settings.order_by])}
    return {}


def _check_columns(inputs: Mapping[str, AnyTensor], settings: TrainerSettings) -> None:
    """Raises DataError for features of missing columns, and for new features with the name of a
    column.
    """
    for name, feature in settings.features.items():
        for column in feature.columns_of(name):
            _require(column, inputs, "feature")
        if not feature.is_column and name in inputs:
            raise DataError(
                f"features.{name}: the data has a column {name!r}, but a feature of type: "
                f"{feature.type} needs a name that no column has."
            )


def default_feature(dtype: tf.DType) -> Feature:
    """Returns the default feature settings of a column: categorical for text, numeric otherwise."""
    if dtype == tf.string:
        return CategoricalFeature(type="categorical")
    return NumericFeature(type="numeric")


def _require(name: str, columns: Collection[str], role: str) -> None:
    if name not in columns:
        near = difflib.get_close_matches(name, columns, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"its columns are {', '.join(sorted(columns))}."
        )
        raise DataError(f"the data has no column {name!r}, which is configured as {role}; {hint}")
