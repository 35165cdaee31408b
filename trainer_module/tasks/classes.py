"""What the tasks have in common whose label is a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_module.errors import TrainingError
from trainer_module.tasks.base import BaseTask

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.problem import Problem


class ClassTask(BaseTask):
    """Base of the tasks whose label is a class, of which a model gives probabilities."""

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """The index among the train split's classes: numbers sort as numbers, text bytewise."""
        import tensorflow as tf

        from trainer_module import vocabulary
        from trainer_module.features.raw_columns import dense_strings

        return vocabulary.compute_and_apply_classes(
            dense_strings(column), label, numeric=column.dtype != tf.string
        )

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

    def served(self, output: tf.Tensor, problem: Problem) -> dict[str, tf.Tensor]:
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


def found_classes(label: str, classes: tuple[str, ...]) -> str:
    """How many classes there are and which, for a message."""
    return f"label {label!r} has {len(classes)} in the train split: {', '.join(classes[:10])}"
