"""The description of a learning problem for model builders, read from Transform's output."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.features import FEATURES, feature_class
from trainer_module.features.base import PACKED, SPLIT_KEYS, WORDS_SUFFIX, BaseFeature, underscored
from trainer_module.features.numeric import NumericFeature, packed_places
from trainer_module.features.text.text import TextFeature
from trainer_module.features.transformed import TransformedFeature, free_name
from trainer_module.features.vocabularies import read_classes
from trainer_module.measures import make_measure
from trainer_module.settings.tasks import BaseTask, Task, as_task


@dataclass(frozen=True)
class Problem:
    """The task, its classes and the inputs."""

    target: BaseTask
    label: str
    classes: tuple[str, ...]
    """The names of the classes by index, or an empty tuple for regression."""
    features: tuple[TransformedFeature, ...]
    weight: str | None = None
    """The column of the examples' weights, or None if all examples count alike."""
    label_mean: float = 0.0
    """The mean of the label on the train split, for regression; with `log_range` of its logarithm.
    """
    label_deviation: float = 1.0
    """The standard deviation of the label on the train split, for regression; with `log_range` of
    its logarithm."""
    log_range: tuple[float, float] | None = None
    """The least and the largest logarithm of a prediction, if the model learns the logarithm of the
    label; otherwise None."""
    quartiles: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The minimum, the quartiles and the maximum of each numeric feature on the train split.

    The shape is [5, n] for each name; the mapping is empty if the quartiles were not measured.
    """
    loss: str = ""
    """The name of the loss, or an empty string for the task's default loss."""
    class_weights: tuple[float, ...] = ()
    """The weight of each class in the loss, by index, or an empty tuple if all classes count alike.
    """
    measures: tuple[str, ...] = ()
    """The Evaluator's metrics that training measures in addition to the task's default metrics."""

    def __post_init__(self) -> None:
        # As in a config, the name of a task stands for the task without options.
        object.__setattr__(self, "target", as_task(self.target))
        taken = frozenset(feature.name for feature in self.features)
        features = tuple(replace(feature, taken=taken) for feature in self.features)
        object.__setattr__(self, "features", features)

    @property
    def task(self) -> Task:
        """The kind of the label: binary, multiclass or regression."""
        return self.target.label_kind

    @property
    def class_shift(self) -> tuple[float, ...]:
        """The shift of the logits that class weights cause: the logit of a class of weight 2 grows
        by log 2.

        A binary task has one number: the shift of the second class relative to the first. Other
        tasks have a number per class, which is 0 for a class of weight 0. The tuple is empty if all
        classes count alike.
        """
        shift = self.target.logit_shift(self.class_weights)
        return tuple(shift) if any(shift) else ()

    @classmethod
    def from_transform(
        cls,
        tft_output: tft.TFTransformOutput,
        task: BaseTask | str,
        label: str,
        declared: Mapping[str, BaseFeature] | None = None,
        weight: str | None = None,
    ) -> Problem:
        """Reads the transformed features and, for classification, the classes.

        Args:
          tft_output: the output of Transform.
          task: the task, or the name of a task without options.
          label: the column of the label.
          declared: the feature settings of the config, by name. A transformed tensor has the
            declared type if the tensor fits the type, otherwise the first type that fits.
          weight: the column of the examples' weights, if there is one.

        Raises:
          TrainingError: the label is not among the transformed features; a feature is not dense,
            or has an unknown vocabulary or dtype; or the number of classes does not suit the task.
        """
        for role, column in {"label": label, "weight": weight or label}.items():
            _check_returned(role, column, tft_output.transformed_feature_spec())
        sizes = _vocabulary_sizes(tft_output, declared or {})
        features = tuple(
            _with_number_names(
                _feature(name, spec, sizes, (declared or {}).get(name)),
                tft_output,
                declared or {},
                (label, weight),
            )
            for name, spec in sorted(tft_output.transformed_feature_spec().items())
            if name not in (label, weight, *SPLIT_KEYS)
        )
        target = as_task(task)
        is_class = target.label_kind.is_classification
        classes = read_classes(tft_output) if is_class else ()
        target.check_classes(label, classes)
        return cls(target, label, classes, features, weight)

    @property
    def bytes_per_example(self) -> int:
        """The memory in bytes of the features of one example."""
        return sum(feature.bytes_per_example for feature in self.features)

    def of_kind(self, kind: str) -> tuple[TransformedFeature, ...]:
        """Returns the features of a type; `kind` is the name of the type in `FEATURES`."""
        return tuple(feature for feature in self.features if feature.kind == kind)

    def layer_name(self, name: str) -> str:
        """Returns `name`, or a longer name if a feature, and so an input of Keras, has it."""
        return free_name(name, {feature.name for feature in self.features})

    def make_inputs(self) -> dict[str, tf.Tensor]:
        """Returns a new Keras input for each feature, by name."""
        return {
            feature.name: tf_keras.Input(feature.shape, name=feature.name, dtype=feature.dtype)
            for feature in self.features
        }

    def standardise(self, label: np.ndarray) -> np.ndarray:
        """Returns what a regression learns, [examples]: the standardised label or logarithm."""
        learnt = label if self.log_range is None else np.log(label)
        return np.asarray((learnt - self.label_mean) / self.label_deviation)

    def unstandardise(self, learnt: np.ndarray) -> np.ndarray:
        """Returns predictions in the label's unit, for predictions of `standardise`'s values."""
        values = learnt * self.label_deviation + self.label_mean
        return values if self.log_range is None else np.exp(np.clip(values, *self.log_range))

    @property
    def output_units(self) -> int:
        """The number of units of a model's last layer."""
        return len(self.target.outputs(self.classes))

    def make_activation(self) -> tf_keras.layers.Layer:
        """Returns a layer that maps a sum of parts to the output of the task, in float32 for any
        input.

        The layer is for models that sum up several parts. Other models end with the layer of
        `make_output_layer`.
        """
        return self.target.make_activation(self)

    def make_output_layer(self) -> tf_keras.layers.Layer:
        """Returns the last layer, with its activation."""
        return self.target.make_output_layer(self)

    def make_loss(self) -> tf_keras.losses.Loss:
        """Returns a new object of the task's default loss."""
        return self.target.make_loss(self)

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns new metrics: the task's default metrics and the metrics in `measures`."""
        measures = (make_measure(self.target, len(self.classes), name) for name in self.measures)
        return [*self.target.make_metrics(), *measures]


def _vocabulary_sizes(
    tft_output: tft.TFTransformOutput, declared: Mapping[str, BaseFeature]
) -> dict[str, int]:
    """Returns the number of indices of each categorical and text feature, by name.

    TFT stores the range of indices in the transformed schema, except for the terms of a bag, which
    are pairs of an index and a weight.
    """
    bag_sizes = {
        name: feature.hash_buckets + 1
        if feature.hash_buckets
        else tft_output.vocabulary_size_by_name(name)
        for name, feature in declared.items()
        if isinstance(feature, TextFeature)
        and feature.is_bag
        # A user's preprocessing function may have returned another kind of tensor.
        and (feature.hash_buckets or tft_output.vocabulary_file_by_name(name) is not None)
    }
    return bag_sizes | {
        feature.name: feature.int_domain.max + 1
        for feature in tft_output.transformed_metadata.schema.feature
        if feature.HasField("int_domain")
    }


def _feature(
    name: str, spec: object, vocabulary_sizes: dict[str, int], declared: BaseFeature | None
) -> TransformedFeature:
    if not isinstance(spec, tf.io.FixedLenFeature):
        raise TrainingError(
            f"transformed feature {name!r} is not dense; make it dense in the preprocessing_fn."
        )
    shape, dtype = tuple(spec.shape), spec.dtype.name
    indices = vocabulary_sizes.get(name, 0)
    for kind in [declared.type, *FEATURES] if declared else FEATURES:
        if feature_class(kind).matches(dtype, shape, indices):
            many, encoding = (getattr(declared, key, None) for key in ("many", "encoding"))
            indices_of = declared.indices_of if declared else ""
            return TransformedFeature(name, kind, shape, indices, bool(many), encoding, indices_of)
    if spec.dtype == tf.int64:
        raise TrainingError(
            f"transformed feature {name!r} is int64, with an unknown number of values: return the "
            "result of tft.compute_and_apply_vocabulary or tft.apply_vocabulary unchanged (reshape "
            "its input, not its output), or cast the feature to float32."
        )
    raise TrainingError(f"transformed feature {name!r} is {dtype}; a model takes float32 or int64.")


def _with_number_names(
    feature: TransformedFeature,
    tft_output: tft.TFTransformOutput,
    declared: Mapping[str, Any],
    excluded: Collection[str | None],
) -> TransformedFeature:
    """Returns the feature with the names of its numbers, if each number has a name.

    Args:
      feature: the feature without names.
      tft_output: the output of Transform.
      declared: the feature settings of the config.
      excluded: the columns that are not features.
    """
    name = feature.name
    if name in declared:
        places = declared[name].value_names(name)
    elif name.startswith(underscored(PACKED)):
        raw = tft_output.raw_feature_spec()
        places = _packed_names({n: raw[n] for n in raw if n not in excluded}, declared)
    else:
        places = _word_names(name, tft_output, declared)
    return replace(feature, places=places) if (len(places),) == feature.shape else feature


def _word_names(
    name: str, tft_output: tft.TFTransformOutput, declared: Mapping[str, Any]
) -> tuple[str, ...]:
    """Returns the name of each frequent word of a column, in the order of their frequency, so that
    a warm start finds them in another order; empty for other features.
    """
    if not name.rstrip("_").endswith(underscored(WORDS_SUFFIX)):
        return ()  # The search below is slow for tables with many columns.
    for column, settings in declared.items():
        size, vocabulary = getattr(settings, "words", 0), column + WORDS_SUFFIX
        if not size or name.rstrip("_") != underscored(vocabulary).rstrip("_"):
            continue
        if tft_output.vocabulary_file_by_name(vocabulary) is None:
            continue  # A user's preprocessing function returned another tensor.
        _, *words = tft_output.vocabulary_by_name(vocabulary)
        found = [word.decode(errors="surrogateescape") for word in words]
        found += [f"no word {number}" for number in range(len(words), size)]
        return tuple(f"{name}[{word}]" for word in found)
    return ()


def _packed_names(raw: Mapping[str, Any], declared: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the numbers in the packed vector.

    A column without settings is numeric unless its dtype is string.
    """
    numbers = {
        name: declared.get(name, NumericFeature(type="numeric"))
        for name, spec in raw.items()
        if name in declared or spec.dtype != tf.string
    }
    numbers = {name: f for name, f in numbers.items() if isinstance(f, NumericFeature)}
    is_dense = {n: isinstance(raw[n], tf.io.FixedLenFeature) for n in numbers}
    widths = {n: math.prod(raw[n].shape) if is_dense[n] else 1 for n in numbers}
    return packed_places(numbers, widths, [n for n in numbers if not is_dense[n]])


def _check_returned(role: str, column: str, spec: Iterable[str]) -> None:
    if column not in (names := sorted(spec)):
        raise TrainingError(
            f"preprocessing returned {', '.join(names)}, but not the {role} {column!r}; return the "
            f"{role} under this name."
        )
