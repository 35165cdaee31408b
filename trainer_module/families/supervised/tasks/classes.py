"""The tasks whose label is a class: one of two, of several, or of several in an order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from trainer_module.errors import TrainingError
from trainer_module.features.number_format import as_text
from trainer_module.features.vocabulary_orders import ClassOrder, GivenOrder
from trainer_module.published import class_index, imagenet_classes
from trainer_module.settings.tasks import (
    CLASS_METRICS,
    NUMBER_METRICS,
    BaseTask,
    Metric,
    Task,
)

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.settings.tasks import LabelStatistics


class ClassTask(BaseTask):
    """Base of the tasks whose label is a class, of which a model gives probabilities."""

    needs_activation: ClassVar[bool] = True
    shown_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the index among the train split's classes: numbers sort as numbers, text
        bytewise.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies import compute_and_apply_classes

        order = ClassOrder(label, numeric=column.dtype != tf.string)
        return compute_and_apply_classes(dense_strings(column), order)

    def has_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Those of a class of the train split."""
        return labels >= 0

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """Classes are there: the preprocessing numbered them."""
        if not classes:
            raise TrainingError(
                f"preprocessing did not number the classes of the label {label!r}: return what "
                "trainer_module.preprocessing.transform_label(inputs, settings) gives."
            )

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores, none of exactly 0 or 1, whose logarithms TFMA makes NaN of.

        They are off by no more than Keras allows for in its own losses.
        """
        import tensorflow as tf
        import tf_keras

        margin = tf_keras.backend.epsilon()
        return {"predictions": tf.clip_by_value(output, margin, 1 - margin)}

    def scores(self, output: tf.Tensor) -> tf.Tensor:
        """Returns the probability of each class, [batch, classes]."""
        return output

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """What clients read, of n classes.

        Returns:
          class: [batch] string, the most probable one. classes: [batch, n] string. scores:
          [batch, n] float32, which add up to 1.
        """
        import tensorflow as tf

        scores, names = self.scores(output), tf.constant(problem.classes)
        return {
            "class": tf.gather(names, tf.argmax(scores, 1)),
            "classes": tf.tile(names[tf.newaxis], [tf.shape(scores)[0], 1]),
            "scores": scores,
        }


class ManyClassTask(ClassTask):
    """Base of the tasks of two classes or more, of each of which a model gives the probability."""

    label_kind: ClassVar[Task] = Task.MULTICLASS

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """They are two or more."""
        super().check_classes(label, classes)
        if len(classes) < 2:
            found = found_classes(label, classes)
            raise TrainingError(f"task: {self.kind} needs 2 classes or more, but {found}.")

    @property
    def output_description(self) -> str:
        """Probabilities."""
        return "the probability of each class"

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Cross-entropy of the index of a class."""
        import tf_keras

        return tf_keras.losses.SparseCategoricalCrossentropy()

    def make_class_loss(
        self, problem: LabelStatistics, label_smoothing: float, gamma: float | None
    ) -> tf_keras.losses.Loss:
        """Of the probabilities of all classes."""
        from trainer_module.families.supervised.losses import OneHotLoss

        return OneHotLoss(len(problem.classes), label_smoothing, gamma or 0.0)

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Accuracy."""
        import tf_keras

        return [tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns a class more, for labels that this model does not know, and never predicts."""
        import tensorflow as tf

        return super().measured(tf.pad(output, [[0, 0], [0, 1]]))

    def measured_label(self, label: tf.Tensor, problem: LabelStatistics) -> tf.Tensor:
        """Returns the index of the class more for one that this model does not know."""
        import tensorflow as tf

        return tf.where(label < 0, tf.cast(len(problem.classes), label.dtype), label)


def found_classes(label: str, classes: tuple[str, ...]) -> str:
    """Returns how many classes there are and which, for a message."""
    return f"label {label!r} has {len(classes)} in the train split: {', '.join(classes[:10])}"


class BinaryTask(ClassTask):
    """One of two classes; the one that sorts last is the positive one."""

    kind: Literal["binary"]
    label_kind: ClassVar[Task] = Task.BINARY
    most_classes: ClassVar[int | None] = 2
    shown_metrics: ClassVar[tuple[str, ...]] = ("auc", "accuracy")

    def metrics(self) -> Mapping[str, Metric]:
        """Of two classes."""
        return {
            "accuracy": Metric("BinaryAccuracy"),
            "balanced_accuracy": Metric("BalancedAccuracy"),
            "auc": Metric("AUC"),
            "auc_precision_recall": Metric("AUCPrecisionRecall"),
            "average_precision": Metric("AveragePrecision", module=CLASS_METRICS),
            "precision": Metric("Precision", is_half=True),
            "recall": Metric("Recall", is_half=True),
            "f1": Metric("F1Score"),
            "log_loss": Metric("BinaryCrossEntropy", higher_is_better=False),
            "calibration_error": Metric(
                "CalibrationError", higher_is_better=False, module=CLASS_METRICS
            ),
            "calibration_curve": Metric(
                "CalibrationPlot", options={"num_buckets": 10}, is_number=False
            ),
            "confusion_matrix": Metric(
                "ConfusionMatrixPlot", options={"num_thresholds": 100}, is_number=False
            ),
        }

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the area under the curve decides."""
        return ("auc", "accuracy", "log_loss")

    def reported_metrics(self) -> tuple[str, ...]:
        """Returns metrics that users of imbalanced classes look for."""
        return ("f1", "average_precision")

    def make_class_loss(
        self, problem: LabelStatistics, label_smoothing: float, gamma: float | None
    ) -> tf_keras.losses.Loss:
        """Of the probability of the positive class."""
        import tf_keras

        if gamma is None:
            return tf_keras.losses.BinaryCrossentropy(label_smoothing=label_smoothing)
        return tf_keras.losses.BinaryFocalCrossentropy(gamma=gamma, label_smoothing=label_smoothing)

    def logit_shift(self, class_weights: Sequence[float]) -> list[float]:
        """One number, of the second class against the first."""
        shift = super().logit_shift(class_weights)
        return [shift[1] - shift[0]] if shift else []

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """They are two."""
        super().check_classes(label, classes)
        if len(classes) != 2:
            found = found_classes(label, classes)
            raise TrainingError(f"task: binary needs 2 classes, but {found}.")

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the probability of the second class against the first."""
        return (json.dumps(classes),)

    @property
    def output_description(self) -> str:
        """A probability."""
        return "the probability of the second class"

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From a logit to a probability."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Activation("sigmoid", dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a probability."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Dense(1, activation="sigmoid", dtype=tf.float32, name="output")

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Cross-entropy."""
        import tf_keras

        return tf_keras.losses.BinaryCrossentropy()

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Accuracy, and the area under the ROC curve."""
        import tf_keras

        return [
            tf_keras.metrics.BinaryAccuracy(name="accuracy"),
            tf_keras.metrics.AUC(name="auc"),
        ]

    def scores(self, output: tf.Tensor) -> tf.Tensor:
        """Of both classes."""
        import tensorflow as tf

        return tf.concat([1 - output, output], 1)


METRICS = {
    "accuracy": Metric("SparseCategoricalAccuracy"),
    "balanced_accuracy": Metric("MulticlassBalancedAccuracy", module=CLASS_METRICS),
    "top_2_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 2}),
    "top_3_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 3}),
    "top_5_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 5}),
    "macro_precision": Metric("MacroPrecision", is_half=True, module=CLASS_METRICS),
    "macro_recall": Metric("MacroRecall", is_half=True, module=CLASS_METRICS),
    "macro_f1": Metric("MacroF1", module=CLASS_METRICS),
    "log_loss": Metric("SparseCategoricalCrossentropy", higher_is_better=False),
    "calibration_error": Metric(
        "TopLabelCalibrationError", higher_is_better=False, module=CLASS_METRICS
    ),
    "calibration_curve": Metric("TopLabelCalibrationPlot", module=CLASS_METRICS, is_number=False),
    # By this name TFMA's results and views have it beside the curve; by its own, in its place.
    "confusion_matrix": Metric(
        "MultiClassConfusionMatrixPlot",
        options={"name": "confusion_matrix_plot"},
        is_number=False,
    ),
}
"""Of the most probable class, and of the probabilities."""


class MulticlassTask(ManyClassTask):
    """One of two classes or more."""

    kind: Literal["multiclass"]
    classes: Literal["imagenet"] | None = None
    """`imagenet`: its 1,000 classes by their names, whether they occur or not; default: those of
    the train split."""

    @property
    def needs(self) -> str:
        """One of ImageNet's, if those are the classes."""
        return f"the name of a class in {class_index()}" if self.classes else ""

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """ImageNet's, if those are the classes and their names have been fetched."""
        if not self.classes or not class_index().exists():
            return super().valid_labels(labels)
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in labels]
        return np.isin(texts, imagenet_classes())

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the index among the classes."""
        if not self.classes:
            return super().transform_label(column, label)
        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies import compute_and_apply_classes

        order = GivenOrder(label, imagenet_classes(), "task.classes")
        return compute_and_apply_classes(dense_strings(column), order)

    def metrics(self) -> Mapping[str, Metric]:
        """Of several classes."""
        return METRICS

    def usual_metrics(self) -> tuple[str, ...]:
        """Accuracy decides."""
        return ("accuracy", "log_loss")

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns a probability per class."""
        return classes

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From logits to probabilities."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Activation("softmax", dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a probability per class."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Dense(
            problem.output_units, activation="softmax", dtype=tf.float32, name="output"
        )


def _check_classes(order: object) -> object:
    for value in order if isinstance(order, list) else []:
        if isinstance(value, bool):
            raise ValueError(
                "YAML reads yes, no, on and off as true and false; put such words in quotes"
            )
        # A whole number may have come by way of JSON, as a float.
        is_whole = isinstance(value, int | float) and float(value).is_integer()
        if not (isinstance(value, str) or is_whole):
            raise ValueError(
                f"{value} is neither text nor a whole number; put a fraction in quotes"
            )
    return order


def _check_order(order: list[str | int]) -> list[str | int]:
    if len(set(map(str, order))) < len(order):
        raise ValueError("each class is named once")
    return order


class OrdinalTask(ManyClassTask):
    """One of several classes that have an order: to be off by two is worse than by one."""

    kind: Literal["ordinal"]
    order: Annotated[
        list[str | int], BeforeValidator(_check_classes), AfterValidator(_check_order)
    ] = Field(min_length=3)
    """The classes from the lowest to the highest, such as `[low, mid, high]`."""
    alternatives: ClassVar[str] = "multiclass"

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as text."""
        return tuple(map(str, self.order))

    @property
    def needs(self) -> str:
        """One of the order."""
        return f"one of {', '.join(self.names)} (task.order)"

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """Those of the order."""
        values, places = np.unique(labels, return_inverse=True)
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else as_text(v) for v in values]
        return np.isin(texts, self.names)[places]

    def metrics(self) -> Mapping[str, Metric]:
        """Of several classes, and by how many ranks the most probable one is off."""
        rank_error = Metric("RankError", False, NUMBER_METRICS, has_unit=True)
        return METRICS | {"rank_error": rank_error}

    def usual_metrics(self) -> tuple[str, ...]:
        """Accuracy decides."""
        return ("accuracy", "rank_error", "log_loss")

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the index in the order."""
        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies import compute_and_apply_classes

        order = GivenOrder(label, self.names)
        return compute_and_apply_classes(dense_strings(column), order)

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """One number, which is higher the higher the class."""
        return (json.dumps(classes),)

    def output_width(self, classes: tuple[str, ...]) -> int:
        """Returns a probability per class."""
        return len(classes)

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From a number to the probabilities of the classes between learnt thresholds."""
        import tensorflow as tf

        from trainer_module.families.supervised.tasks.layers import CumulativeLogits

        return CumulativeLogits(len(problem.classes), dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a dense layer of one number, and the thresholds."""
        import tf_keras

        dense = tf_keras.layers.Dense(problem.output_units, use_bias=False)
        return tf_keras.Sequential([dense, self.make_activation(problem)], name="output")
