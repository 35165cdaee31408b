"""Binary: one of two classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from trainer_module.errors import TrainingError
from trainer_module.families.supervised.tasks.classes import ClassTask, found_classes
from trainer_module.settings.tasks import CLASS_METRICS, Metric, Task

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.settings.tasks import LabelStatistics


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
        """The area under the curve decides."""
        return ("auc", "accuracy", "log_loss")

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
        """The probability of the second class against the first."""
        return (json.dumps(classes),)

    @property
    def gives(self) -> str:
        """A probability."""
        return "the probability of the second class"

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From a logit to a probability."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Activation("sigmoid", dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """A probability."""
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
