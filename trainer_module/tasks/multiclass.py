"""Multiclass: one of several classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from trainer_module.errors import TrainingError
from trainer_module.tasks.base import OWN_METRICS, Metric, Task
from trainer_module.tasks.classes import ClassTask, found_classes

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.problem import Problem


class MulticlassTask(ClassTask):
    """One of two classes or more."""

    kind: Literal["multiclass"]
    family: ClassVar[Task] = Task.MULTICLASS

    def metrics(self) -> Mapping[str, Metric]:
        """Of the most probable class, and of the probabilities."""
        return {
            "accuracy": Metric("SparseCategoricalAccuracy"),
            "balanced_accuracy": Metric("MulticlassBalancedAccuracy", module=OWN_METRICS),
            "top_2_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 2}),
            "top_3_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 3}),
            "top_5_accuracy": Metric("SparseTopKCategoricalAccuracy", options={"k": 5}),
            "macro_precision": Metric("MacroPrecision", module=OWN_METRICS),
            "macro_recall": Metric("MacroRecall", module=OWN_METRICS),
            "macro_f1": Metric("MacroF1", module=OWN_METRICS),
            "log_loss": Metric("SparseCategoricalCrossentropy", higher_is_better=False),
        }

    def usual_metrics(self) -> tuple[str, ...]:
        """Accuracy decides."""
        return ("accuracy", "log_loss")

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """They are two or more."""
        super().check_classes(label, classes)
        if len(classes) < 2:
            found = found_classes(label, classes)
            raise TrainingError(f"task: {self.kind} needs 2 classes or more, but {found}.")

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """A probability per class."""
        return classes

    def make_activation(self, problem: Problem) -> tf_keras.layers.Layer:
        """From logits to probabilities."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Activation("softmax", dtype=tf.float32)

    def make_output_layer(self, problem: Problem) -> tf_keras.layers.Layer:
        """A probability per class."""
        import tensorflow as tf
        import tf_keras

        return tf_keras.layers.Dense(
            problem.output_units, activation="softmax", dtype=tf.float32, name="output"
        )

    def make_loss(self, problem: Problem) -> tf_keras.losses.Loss:
        """Cross-entropy of the index of a class."""
        import tf_keras

        return tf_keras.losses.SparseCategoricalCrossentropy()

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Accuracy."""
        import tf_keras

        return [tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """A class more, for labels that this model does not know, and never predicts."""
        import tensorflow as tf

        return super().measured(tf.pad(output, [[0, 0], [0, 1]]))

    def measured_label(self, label: tf.Tensor, problem: Problem) -> tf.Tensor:
        """The index of the class more for one that this model does not know."""
        import tensorflow as tf

        return tf.where(label < 0, tf.cast(len(problem.classes), label.dtype), label)
