"""Multiclass: one of several classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from trainer_module.families.supervised.tasks.classes import ManyClassTask
from trainer_module.features.vocabularies.orders import GivenOrder
from trainer_module.published import class_index, imagenet_classes
from trainer_module.settings.tasks import CLASS_METRICS, Metric

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.features.raw_columns import AnyTensor
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

    def takes(self, labels: np.ndarray) -> np.ndarray:
        """ImageNet's, if those are the classes and their names have been fetched."""
        if not self.classes or not class_index().exists():
            return super().takes(labels)
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in labels]
        return np.isin(texts, imagenet_classes())

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """The index among the classes."""
        if not self.classes:
            return super().transform_label(column, label)
        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies.analysis import compute_and_apply_classes

        order = GivenOrder(label, imagenet_classes(), "task.classes")
        return compute_and_apply_classes(dense_strings(column), order)

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
