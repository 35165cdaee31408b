"""Multiclass: one of several classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from trainer_module.families.supervised.tasks.classes import ManyClassTask
from trainer_module.settings.tasks import CALIBRATION_METRICS, CLASS_METRICS, Metric

if TYPE_CHECKING:
    import tf_keras

    from trainer_module.settings.tasks import LabelStatistics


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
        "TopLabelCalibrationError", higher_is_better=False, module=CALIBRATION_METRICS
    ),
    "calibration_curve": Metric(
        "TopLabelCalibrationPlot", module=CALIBRATION_METRICS, is_number=False
    ),
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

    def metrics(self) -> Mapping[str, Metric]:
        """Of several classes."""
        return METRICS

    def usual_metrics(self) -> tuple[str, ...]:
        """Accuracy decides."""
        return ("accuracy", "log_loss")

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """A probability per class."""
        return classes

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From logits to probabilities."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Activation("softmax", dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """A probability per class."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Dense(
            problem.output_units, activation="softmax", dtype=tf.float32, name="output"
        )
