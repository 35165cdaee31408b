"""The losses: what each is computed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import change_compared, logits_of
from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.sections import load_own
from trainer_module.settings import LossSettings

FARTHEST = 20.0
"""An exponent from which on no larger one is worth telling apart: half a billion times 1."""


def show_as(loss: tf.Tensor, factor: float) -> tf.Tensor:
    """So many times the loss, with the gradients of the loss itself.

    What is shown of a number's loss is in units of the label. Gradients in units of its deviation
    are neither too large for float16, whose largest number is 65,504, nor too small.
    """
    return tf.stop_gradient(loss * factor) + (loss - tf.stop_gradient(loss))


@tf_keras.saving.register_keras_serializable("scopeline")
def bounded_exponential(numbers: tf.Tensor) -> tf.Tensor:
    """Finite for every number: one row far from all others would make a metric infinite."""
    return tf.exp(tf.minimum(numbers, FARTHEST))


class WrappedLoss(tf_keras.losses.Loss):
    """A loss that makes something of another one, which is saved with it."""

    def __init__(self, loss: Any, name: str, **options: Any) -> None:
        """Takes the other loss: of Keras's classes, a function, or its configuration."""
        super().__init__(name=name, **options)
        self._loss = tf_keras.losses.get(loss)

    def wrapped(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses of the other one, [batch]."""
        is_class = isinstance(self._loss, tf_keras.losses.Loss)
        return (self._loss.call if is_class else self._loss)(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), "loss": tf_keras.losses.serialize(self._loss)}


@tf_keras.saving.register_keras_serializable("scopeline")
class ShownLoss(WrappedLoss):
    """A loss in the units of what it is given, with gradients as if it were divided by `factor`."""

    def __init__(self, loss: Any, factor: float, name: str = "shown_loss", **options: Any) -> None:
        """Takes what is computed, and how many of its units the loss learnt by has."""
        super().__init__(loss, name, **options)
        self._factor = factor

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Losses [batch], as those of `loss`."""
        return show_as(self.wrapped(y_true, y_pred) / self._factor, self._factor)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), "factor": self._factor}


Loss: TypeAlias = tf_keras.losses.Loss


def make_loss(problem: Problem, settings: LossSettings | None) -> Any:
    """Returns a new loss, as Keras compiles a model with it.

    Args:
      problem: what is to be learnt.
      settings: which loss; None is the task's usual one, cross-entropy or the mean squared error.

    Raises:
      TrainingError: if a loss of the user's is neither a function nor a `tf_keras.losses.Loss`.
    """
    loss = _make_plain_loss(problem, settings)
    return PriorLoss(loss, problem.class_shift) if problem.class_shift else loss


def _make_plain_loss(problem: Problem, settings: LossSettings | None) -> Any:
    """Returns the loss of the probabilities or the number that a model gives, as they are."""
    if settings is None:
        return problem.make_loss()
    if settings.is_custom:
        return _own_loss(settings)
    smoothing = settings.label_smoothing
    match settings.kind:
        case "cross_entropy":
            return problem.target.make_class_loss(problem, smoothing, gamma=None)
        case "focal":
            return problem.target.make_class_loss(problem, smoothing, settings.gamma)
        case "mse":
            return problem.target.whole_loss(tf_keras.losses.MeanSquaredError(), problem, degree=2)
        case "mae":
            return problem.target.whole_loss(tf_keras.losses.MeanAbsoluteError(), problem)
        case "huber":
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


@tf_keras.saving.register_keras_serializable("scopeline")
class PriorLoss(WrappedLoss):
    """The loss of a model's probabilities as they would be if classes were as frequent as weighed.

    Where examples count by their class, cross-entropy is least for the probabilities among examples
    that are as frequent as they count. The other loss is given those, and the model's own output is
    what they are in the data (Menon et al., 2021, "Long-tail learning via logit adjustment",
    arXiv:2007.07314).
    """

    def __init__(
        self, loss: Any, shift: Sequence[float], name: str = "prior_loss", **options: Any
    ) -> None:
        """Takes the loss, and what the weights of classes add to logits: `Problem.class_shift`."""
        super().__init__(loss, name, **options)
        self._shift = list(shift)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Losses [batch], of probabilities [batch, classes], or [batch, 1] of the second class."""
        logits = logits_of(y_pred)
        smallest = tf_keras.backend.epsilon()
        shift = tf.constant(self._shift, y_pred.dtype)
        if len(self._shift) == 1:
            if logits is None:
                kept = tf.clip_by_value(y_pred, smallest, 1 - smallest)
                logits = tf.math.log(kept) - tf.math.log1p(-kept)
            as_weighed = tf_keras.activations.sigmoid(logits + shift)
        else:
            if logits is None:
                logits = tf.math.log(tf.maximum(y_pred, smallest))
            as_weighed = tf_keras.activations.softmax(logits + shift)
        return self.wrapped(y_true, as_weighed)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), "shift": self._shift}


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


def _is_mixed(label: tf.Tensor) -> bool:
    """Returns whether a label is of two examples; those that are evaluated have one."""
    return bool(label.shape[-1] == 3)


@tf_keras.saving.register_keras_serializable("scopeline")
class MixedLoss(WrappedLoss):
    """The loss of labels, mixed or not, by a loss of labels that are not."""

    def __init__(self, loss: Any, name: str = "mixed_loss", **options: Any) -> None:
        """Takes the loss of one label."""
        super().__init__(loss, name, **options)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Losses [batch]."""
        if not _is_mixed(y_true):
            return self.wrapped(y_true, y_pred)
        share, first, second = y_true[:, 2], y_true[:, :1], y_true[:, 1:2]
        return share * self.wrapped(first, y_pred) + (1 - share) * self.wrapped(second, y_pred)


def of_larger_share(metric: tf_keras.metrics.Metric) -> tf_keras.metrics.Metric:
    """Returns the metric, which takes a mixed label for that of its larger share."""

    def larger(y_true: tf.Tensor, y_pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if _is_mixed(y_true):
            y_true = tf.where(y_true[:, 2:] < 0.5, y_true[:, 1:2], y_true[:, :1])
        return y_true, y_pred

    return change_compared(metric, larger)
