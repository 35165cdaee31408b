"""The tasks whose label is a class: `binary`, `multiclass` and `ordinal`."""

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
    """The base class of tasks whose label is a class; a model predicts probabilities."""

    needs_activation: ClassVar[bool] = True
    shown_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the index of each label among the train split's classes.

        Classes that are numbers are ordered by number, other classes by their bytes.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies import compute_and_apply_classes

        order = ClassOrder(label, numeric=column.dtype != tf.string)
        return compute_and_apply_classes(dense_strings(column), order)

    def has_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns whether each label is a class of the train split."""
        return labels >= 0

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """Raises TrainingError if the user's preprocessing has not indexed the classes."""
        if not classes:
            raise TrainingError(
                f"preprocessing returned the label {label!r} without an index of its classes; "
                "return the result of trainer_module.preprocessing.transform_label(inputs, "
                "settings)."
            )

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the output as `predictions`, clipped so that no score is 0 or 1.

        TFMA's log loss of a score of 0 or 1 would be NaN. Keras's losses clip scores in the same
        way.
        """
        import tensorflow as tf
        import tf_keras

        margin = tf_keras.backend.epsilon()
        return {"predictions": tf.clip_by_value(output, margin, 1 - margin)}

    def scores(self, output: tf.Tensor) -> tf.Tensor:
        """Returns the probability of each class, [batch, classes]."""
        return output

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """Returns the outputs in a response, for n classes.

        Returns:
          `class`, the most probable class, [batch] string; `classes`, the names of all classes,
          [batch, n] string; and `scores`, the probabilities of all classes, [batch, n] float32.
        """
        import tensorflow as tf

        scores, names = self.scores(output), tf.constant(problem.classes)
        return {
            "class": tf.gather(names, tf.argmax(scores, 1)),
            "classes": tf.tile(names[tf.newaxis], [tf.shape(scores)[0], 1]),
            "scores": scores,
        }


class ManyClassTask(ClassTask):
    """The base class of tasks whose model predicts a probability for each class."""

    label_kind: ClassVar[Task] = Task.MULTICLASS

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """Raises TrainingError if there are fewer than two classes."""
        super().check_classes(label, classes)
        if len(classes) < 2:
            content = describe_classes(label, classes)
            raise TrainingError(f"task: {self.kind} needs 2 classes or more, but {content}.")

    @property
    def output_description(self) -> str:
        """A description of the output for messages: the probability of each class."""
        return "the probability of each class"

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Returns the cross-entropy of class indices."""
        import tf_keras

        return tf_keras.losses.SparseCategoricalCrossentropy()

    def make_class_loss(
        self, problem: LabelStatistics, label_smoothing: float, gamma: float | None
    ) -> tf_keras.losses.Loss:
        """Returns a cross-entropy loss, or a focal loss, of the probabilities of all classes."""
        from trainer_module.families.supervised.losses import OneHotLoss

        return OneHotLoss(len(problem.classes), label_smoothing, gamma or 0.0)

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns the accuracy that training shows."""
        import tf_keras

        return [tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the scores with an additional class of probability 0.

        The additional class is the label of rows whose class the train split does not contain.
        """
        import tensorflow as tf

        return super().measured(tf.pad(output, [[0, 0], [0, 1]]))

    def measured_label(self, label: tf.Tensor, problem: LabelStatistics) -> tf.Tensor:
        """Returns the label; an unknown label has the index of the class that `measured` adds."""
        import tensorflow as tf

        return tf.where(label < 0, tf.cast(len(problem.classes), label.dtype), label)


def describe_classes(label: str, classes: tuple[str, ...]) -> str:
    """Returns the number and the names of a label's classes, for a message."""
    return f"the label {label!r} has {len(classes)} in the train split: {', '.join(classes[:10])}"


class BinaryTask(ClassTask):
    """The task of predicting one of two classes; the second class is the positive class."""

    kind: Literal["binary"]
    label_kind: ClassVar[Task] = Task.BINARY
    max_classes: ClassVar[int | None] = 2
    shown_metrics: ClassVar[tuple[str, ...]] = ("auc", "accuracy")

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics of two classes by name."""
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
        """Returns the main default metrics; the area under the ROC curve decides."""
        return ("auc", "accuracy", "log_loss")

    def reported_metrics(self) -> tuple[str, ...]:
        """Returns two metrics that are informative for imbalanced classes."""
        return ("f1", "average_precision")

    def make_class_loss(
        self, problem: LabelStatistics, label_smoothing: float, gamma: float | None
    ) -> tf_keras.losses.Loss:
        """Returns a cross-entropy loss, or a focal loss, of the positive class's probability."""
        import tf_keras

        if gamma is None:
            return tf_keras.losses.BinaryCrossentropy(label_smoothing=label_smoothing)
        return tf_keras.losses.BinaryFocalCrossentropy(gamma=gamma, label_smoothing=label_smoothing)

    def logit_shift(self, class_weights: Sequence[float]) -> list[float]:
        """Returns the shift of the only logit, in a list; an empty list without class weights."""
        shift = super().logit_shift(class_weights)
        return [shift[1] - shift[0]] if shift else []

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """Raises TrainingError if there are not exactly two classes."""
        super().check_classes(label, classes)
        if len(classes) != 2:
            content = describe_classes(label, classes)
            raise TrainingError(f"task: binary needs 2 classes, but {content}.")

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the name of the only unit, which depends on both classes."""
        return (json.dumps(classes),)

    @property
    def output_description(self) -> str:
        """A description of the output for messages: a probability."""
        return "the probability of the second class"

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a layer that maps a logit to a probability."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Activation("sigmoid", dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a dense layer that predicts a probability."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Dense(
            1, activation="sigmoid", dtype=tf.float32, name=problem.layer_name("output")
        )

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Returns the binary cross-entropy."""
        import tf_keras

        return tf_keras.losses.BinaryCrossentropy()

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns the accuracy and the area under the ROC curve that training shows."""
        import tf_keras

        return [
            tf_keras.metrics.BinaryAccuracy(name="accuracy"),
            tf_keras.metrics.AUC(name="auc"),
        ]

    def scores(self, output: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities of both classes, [batch, 2]."""
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
    # With this name, TFMA's results and views show the matrix and the curve. With another name, the
    # matrix would replace the curve.
    "confusion_matrix": Metric(
        "MultiClassConfusionMatrixPlot",
        options={"name": "confusion_matrix_plot"},
        is_number=False,
    ),
}
"""The metrics of tasks with a probability for each class, by name."""


class MulticlassTask(ManyClassTask):
    """The task of predicting one of two or more classes."""

    kind: Literal["multiclass"]
    classes: Literal["imagenet"] | None = None
    """`imagenet`: the 1,000 classes of ImageNet, including classes that do not occur in the data.
    Default: the classes of the train split.
    """

    @property
    def needs(self) -> str:
        """A description of valid labels for messages, or "" if `classes` is not set."""
        return f"the name of a class in {class_index()}" if self.classes else ""

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """Returns whether each label is valid; if `classes` is set, whether it is one of the
        classes.
        """
        if not self.classes or not class_index().exists():
            return super().valid_labels(labels)
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in labels]
        return np.isin(texts, imagenet_classes())

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the index of each label among the classes."""
        if not self.classes:
            return super().transform_label(column, label)
        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies import compute_and_apply_classes

        order = GivenOrder(label, imagenet_classes(), "task.classes")
        return compute_and_apply_classes(dense_strings(column), order)

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics of tasks with a probability for each class, by name."""
        return METRICS

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the main default metrics; the accuracy decides."""
        return ("accuracy", "log_loss")

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the classes, one for each probability in the output."""
        return classes

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a layer that maps logits to probabilities."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Activation("softmax", dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a dense layer that predicts a probability per class."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Dense(
            problem.output_units,
            activation="softmax",
            dtype=tf.float32,
            name=problem.layer_name("output"),
        )


def _check_classes(order: object) -> object:
    for value in order if isinstance(order, list) else []:
        if isinstance(value, bool):
            raise ValueError(
                f"the class {value} is a boolean: YAML reads yes, no, on and off as true and "
                "false; put these words in quotes"
            )
        # An integer may be a float after it was stored as JSON.
        is_whole = isinstance(value, int | float) and float(value).is_integer()
        if not (isinstance(value, str) or is_whole):
            raise ValueError(
                f"the class {value} is neither text nor a whole number; put fractions in quotes"
            )
    return order


def _check_order(order: list[str | int]) -> list[str | int]:
    if len(set(map(str, order))) < len(order):
        repeated = next(name for name in order if [*map(str, order)].count(str(name)) > 1)
        raise ValueError(f"the class {repeated} occurs more than once; list each class once")
    return order


class OrdinalTask(ManyClassTask):
    """The task of predicting one of several ordered classes, such as ratings."""

    kind: Literal["ordinal"]
    order: Annotated[
        list[str | int], BeforeValidator(_check_classes), AfterValidator(_check_order)
    ] = Field(min_length=3)
    """The classes from the lowest to the highest, such as `[low, mid, high]`."""
    alternatives: ClassVar[str] = "multiclass"

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as strings."""
        return tuple(map(str, self.order))

    @property
    def needs(self) -> str:
        """A description of valid labels for messages: the classes of the order."""
        return f"one of {', '.join(self.names)} (task.order)"

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """Returns whether each label is a class of the order."""
        values, indices = np.unique(labels, return_inverse=True)
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else as_text(v) for v in values]
        return np.isin(texts, self.names)[indices]

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics of tasks with a probability for each class, and the rank error."""
        rank_error = Metric("RankError", False, NUMBER_METRICS, has_unit=True)
        return METRICS | {"rank_error": rank_error}

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the main default metrics; the accuracy decides."""
        return ("accuracy", "rank_error", "log_loss")

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the index of each label in the order."""
        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies import compute_and_apply_classes

        order = GivenOrder(label, self.names)
        return compute_and_apply_classes(dense_strings(column), order)

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the name of the only unit, a number that is larger for higher classes."""
        return (json.dumps(classes),)

    def output_width(self, classes: tuple[str, ...]) -> int:
        """Returns the number of classes: the output has a probability for each class."""
        return len(classes)

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a layer that maps a number to class probabilities, by trained thresholds."""
        import tensorflow as tf

        from trainer_module.families.supervised.tasks.layers import CumulativeLogits

        return CumulativeLogits(len(problem.classes), dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a dense layer with one unit, followed by the layer of `make_activation`."""
        import tf_keras

        dense = tf_keras.layers.Dense(problem.output_units, use_bias=False)
        return tf_keras.Sequential(
            [dense, self.make_activation(problem)], name=problem.layer_name("output")
        )
