"""What the tasks have in common whose label is a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_module.errors import TrainingError
from trainer_module.features.vocabularies.orders import ClassOrder
from trainer_module.settings.tasks import BaseTask, Task

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
        """The index among the train split's classes: numbers sort as numbers, text bytewise."""
        import tensorflow as tf

        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies.analysis import compute_and_apply_classes

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
        """The probability of each class, [batch, classes]."""
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
    def gives(self) -> str:
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
        """A class more, for labels that this model does not know, and never predicts."""
        import tensorflow as tf

        return super().measured(tf.pad(output, [[0, 0], [0, 1]]))

    def measured_label(self, label: tf.Tensor, problem: LabelStatistics) -> tf.Tensor:
        """The index of the class more for one that this model does not know."""
        import tensorflow as tf

        return tf.where(label < 0, tf.cast(len(problem.classes), label.dtype), label)


def found_classes(label: str, classes: tuple[str, ...]) -> str:
    """How many classes there are and which, for a message."""
    return f"label {label!r} has {len(classes)} in the train split: {', '.join(classes[:10])}"
