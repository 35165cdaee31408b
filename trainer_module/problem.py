"""What is to be learnt, read from Transform's output: all that a model builder needs to know."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module import vocabulary
from trainer_module.errors import TrainingError
from trainer_module.features import FEATURES, feature_class
from trainer_module.features.base import BaseFeature
from trainer_module.settings import Task


@dataclass(frozen=True)
class TransformedFeature:
    """One input of the model."""

    name: str
    kind: str
    """Its type, a name in `trainer_module.features.FEATURES`."""
    shape: tuple[int, ...]
    """Of one example, without the batch."""
    vocabulary_size: int = 0
    """How many indices there are, out-of-vocabulary buckets included; 0 without a vocabulary."""
    many: bool = False
    """Whether its places are several values of a row rather than one each; index 0 is none."""
    encoding: str | None = None
    """How the config wants indices encoded: embedding or one_hot; None: as the model has it."""

    @property
    def dtype(self) -> tf.DType:
        """int64 for categorical, float32 for numeric and image."""
        return tf.as_dtype(feature_class(self.kind).dtype)

    def layer_name(self, role: str) -> str:
        """A name that TensorFlow allows for a layer, whatever the column is called."""
        name = self.name
        if not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.-]*", name):
            safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
            # The hash keeps columns apart that differ in the replaced characters alone.
            name = f"column_{safe}_{zlib.crc32(name.encode()):08x}"
        return f"{name}_{role}"

    @property
    def bytes_per_example(self) -> int:
        """Memory that one example takes as a dense tensor."""
        return self.dtype.size * math.prod(self.shape)


@dataclass(frozen=True)
class Problem:
    """The task, its classes and the inputs."""

    task: Task
    label: str
    classes: tuple[str, ...]
    """Names of the classes by index; empty for regression."""
    features: tuple[TransformedFeature, ...]
    weight: str | None = None
    """The column of the examples' weights; None where all count alike."""
    label_mean: float = 0.0
    """Of the train split, for regression."""
    label_deviation: float = 1.0
    """The standard deviation of the train split, for regression."""

    @classmethod
    def from_transform(
        cls,
        tft_output: tft.TFTransformOutput,
        task: Task,
        label: str,
        declared: Mapping[str, BaseFeature] | None = None,
        weight: str | None = None,
    ) -> Problem:
        """Reads the transformed features and, for classification, the classes.

        Args:
          tft_output: what Transform gave.
          task: what is predicted.
          label: its column.
          declared: what the config says of columns; a transformed tensor is of the type that is
              declared for its name if it can be, otherwise of the first that it can be.
          weight: the column of the examples' weights, if there is one.

        Raises:
          TrainingError: if the label is not among the transformed features, one of which is not
              dense or has an unknown vocabulary or dtype, or if the number of classes does not
              suit the task.
        """
        for role, column in {"label": label, "weight": weight or label}.items():
            _check_returned(role, column, tft_output.transformed_feature_spec())
        sizes = _vocabulary_sizes(tft_output)
        features = tuple(
            _feature(name, spec, sizes, (declared or {}).get(name))
            for name, spec in sorted(tft_output.transformed_feature_spec().items())
            if name not in (label, weight)
        )
        classes = vocabulary.read_classes(tft_output) if task.is_classification else ()
        _check_classes(task, label, classes)
        return cls(task, label, classes, features, weight)

    def of_kind(self, kind: str) -> tuple[TransformedFeature, ...]:
        """The features of one kind, by name."""
        return tuple(feature for feature in self.features if feature.kind == kind)

    def make_inputs(self) -> dict[str, tf.Tensor]:
        """A new Keras input for each feature, by name."""
        return {
            feature.name: tf_keras.Input(feature.shape, name=feature.name, dtype=feature.dtype)
            for feature in self.features
        }

    @property
    def output_units(self) -> int:
        """1 for binary and regression, the number of classes for multiclass."""
        return len(self.classes) if self.task is Task.MULTICLASS else 1

    @property
    def output_activation(self) -> str:
        """Sigmoid or softmax, for classification."""
        return {Task.BINARY: "sigmoid", Task.MULTICLASS: "softmax"}[self.task]

    def make_activation(self) -> tf_keras.layers.Layer:
        """From logits to a probability, a probability per class, or a number.

        In float32, under mixed precision too. A number is brought from the scale of a fresh model,
        about -1 to 1, to that of the label: otherwise a label in the thousands would take
        thousands of steps to come near.
        """
        if self.task is Task.REGRESSION:
            return tf_keras.layers.Rescaling(
                self.label_deviation, self.label_mean, dtype=tf.float32
            )
        return tf_keras.layers.Activation(self.output_activation, dtype=tf.float32)

    def make_output_layer(self) -> tf_keras.layers.Layer:
        """The last layer: a probability, a probability per class, or a number."""
        if self.task is Task.REGRESSION:
            return tf_keras.Sequential(
                [tf_keras.layers.Dense(self.output_units), self.make_activation()], name="output"
            )
        return tf_keras.layers.Dense(
            self.output_units, activation=self.output_activation, dtype=tf.float32, name="output"
        )

    def make_loss(self) -> tf_keras.losses.Loss:
        """Cross-entropy for classification, the mean squared error for regression."""
        return {
            Task.BINARY: tf_keras.losses.BinaryCrossentropy,
            Task.MULTICLASS: tf_keras.losses.SparseCategoricalCrossentropy,
            Task.REGRESSION: tf_keras.losses.MeanSquaredError,
        }[self.task]()

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """New metrics: accuracy (binary: and auc), or mae and rmse."""
        match self.task:
            case Task.BINARY:
                return [
                    tf_keras.metrics.BinaryAccuracy(name="accuracy"),
                    tf_keras.metrics.AUC(name="auc"),
                ]
            case Task.MULTICLASS:
                return [tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
            case Task.REGRESSION:
                return [
                    tf_keras.metrics.MeanAbsoluteError(name="mae"),
                    tf_keras.metrics.RootMeanSquaredError(name="rmse"),
                ]


def _vocabulary_sizes(tft_output: tft.TFTransformOutput) -> dict[str, int]:
    """TFT notes the range of the indices of each vocabulary in the transformed schema."""
    return {
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
    indices = vocabulary_sizes.get(name, 0) if spec.dtype == tf.int64 else 0
    for kind in [declared.type, *FEATURES] if declared else FEATURES:
        if feature_class(kind).matches(dtype, shape, indices):
            many, encoding = (getattr(declared, key, None) for key in ("many", "encoding"))
            return TransformedFeature(name, kind, shape, indices, bool(many), encoding)
    if spec.dtype == tf.int64:
        raise TrainingError(
            f"transformed feature {name!r} is int64, and it is not known how many values it has: "
            "return what tft.compute_and_apply_vocabulary or tft.apply_vocabulary gives as it is "
            "(reshape or change what goes in, not what comes out), or cast it to float32."
        )
    raise TrainingError(f"transformed feature {name!r} is {dtype}; a model takes float32 or int64.")


def _check_returned(role: str, column: str, spec: Iterable[str]) -> None:
    if column not in (names := sorted(spec)):
        raise TrainingError(
            f"preprocessing returned {', '.join(names)}, but not the {role} {column!r}: it has to "
            "be returned under its own name."
        )


def _check_classes(task: Task, label: str, classes: tuple[str, ...]) -> None:
    if task.is_classification and not classes:
        raise TrainingError(
            f"preprocessing did not number the classes of the label {label!r}: return what "
            "trainer_module.preprocessing.transform_label(inputs, settings) gives."
        )
    found = f"label {label!r} has {len(classes)} in the train split: {', '.join(classes[:10])}"
    if task is Task.BINARY and len(classes) != 2:
        raise TrainingError(f"task: binary needs 2 classes, but {found}.")
    if task is Task.MULTICLASS and len(classes) < 2:
        raise TrainingError(f"task: multiclass needs 2 classes or more, but {found}.")
