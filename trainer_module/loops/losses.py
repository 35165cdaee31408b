"""The losses: what each is computed by."""

from __future__ import annotations

from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.own_code import load_own
from trainer_module.problem import Problem
from trainer_module.settings import LossSettings, Task

Loss: TypeAlias = tf_keras.losses.Loss


def make_loss(problem: Problem, settings: LossSettings | None) -> Any:
    """A new loss, as Keras compiles a model with it.

    Args:
      problem: what is to be learnt.
      settings: which loss; None is the task's usual one, cross-entropy or the mean squared error.

    Raises:
      TrainingError: if a loss of the user's is neither a function nor a `tf_keras.losses.Loss`.
    """
    if settings is None:
        return problem.make_loss()
    if settings.is_custom:
        return _own_loss(settings)
    smoothing = settings.label_smoothing
    match settings.kind, problem.task:
        case "cross_entropy", Task.BINARY:
            return tf_keras.losses.BinaryCrossentropy(label_smoothing=smoothing)
        case "cross_entropy", Task.MULTICLASS:
            return OneHotLoss(len(problem.classes), smoothing)
        case "focal", Task.BINARY:
            return tf_keras.losses.BinaryFocalCrossentropy(
                gamma=settings.gamma, label_smoothing=smoothing
            )
        case "focal", Task.MULTICLASS:
            return OneHotLoss(len(problem.classes), smoothing, settings.gamma)
        case "mse", _:
            return problem.target.whole_loss(tf_keras.losses.MeanSquaredError(), problem, degree=2)
        case "mae", _:
            return problem.target.whole_loss(tf_keras.losses.MeanAbsoluteError(), problem)
        case "huber", _:
            delta = settings.delta or problem.label_deviation
            loss = tf_keras.losses.Huber(delta / problem.target.loss_unit(problem))
            return problem.target.whole_loss(loss, problem, degree=2)
    return problem.make_loss()


@tf_keras.saving.register_keras_serializable("scopeline")
class OneHotLoss(Loss):
    """Cross-entropy or focal loss of classes by index, which Keras has for one-hot labels alone."""

    def __init__(
        self,
        classes: int,
        label_smoothing: float = 0.0,
        gamma: float = 0.0,
        name: str = "one_hot_loss",
        **options: Any,
    ) -> None:
        """Takes the number of classes; with a `gamma` of 0 it is cross-entropy."""
        super().__init__(name=name, **options)
        self._config = {"classes": classes, "label_smoothing": label_smoothing, "gamma": gamma}
        self._loss = tf_keras.losses.CategoricalFocalCrossentropy(
            alpha=1.0, gamma=gamma, label_smoothing=label_smoothing
        )

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Labels [batch, 1] and probabilities [batch, classes] to losses [batch]."""
        labels = tf.reshape(tf.cast(y_true, tf.int64), [-1])
        return self._loss.call(tf.one_hot(labels, self._config["classes"]), y_pred)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), **self._config}


def _own_loss(settings: LossSettings) -> Any:
    found = load_own("train.loss", settings.kind)
    if not isinstance(found, type):
        if settings.options:
            raise TrainingError(
                f"train.loss {settings.kind!r} is a function, which takes no options; make it a "
                "subclass of tf_keras.losses.Loss, or leave `options` out."
            )
        return found
    loss = found(**settings.options)
    if not isinstance(loss, tf_keras.losses.Loss):
        raise TrainingError(
            f"train.loss {settings.kind!r} is a {found.__module__}.{found.__qualname__}; right is "
            "a subclass of tf_keras.losses.Loss, or a function of labels and predictions."
        )
    return loss
