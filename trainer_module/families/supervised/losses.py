"""The losses of supervised tasks."""

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

MAX_EXPONENT = 20.0
"""The maximum exponent of `bounded_exponential`: exp(20) is about half a billion."""


def scale_reported(loss: tf.Tensor, factor: float) -> tf.Tensor:
    """Returns a tensor whose value is the loss times a factor, with the gradients of the loss.

    The loss of a number is reported in the label's unit. Its gradients are those of a label that is
    divided by its standard deviation, so they do not overflow or underflow in float16.
    """
    return tf.stop_gradient(loss * factor) + (loss - tf.stop_gradient(loss))


@tf_keras.saving.register_keras_serializable("scopeline")
def bounded_exponential(numbers: tf.Tensor) -> tf.Tensor:
    """Returns the exponential of numbers, limited to exp(MAX_EXPONENT).

    Without the limit, a single outlier would make a metric infinite.
    """
    return tf.exp(tf.minimum(numbers, MAX_EXPONENT))


class WrappedLoss(tf_keras.losses.Loss):
    """The base class of losses that change another loss."""

    def __init__(self, loss: Any, name: str, **options: Any) -> None:
        """Stores the wrapped loss: a Keras loss, a function, or a serialized loss."""
        super().__init__(name=name, **options)
        self._loss = tf_keras.losses.get(loss)

    def wrapped(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the values of the wrapped loss, [batch]."""
        is_class = isinstance(self._loss, tf_keras.losses.Loss)
        return (self._loss.call if is_class else self._loss)(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "loss": tf_keras.losses.serialize(self._loss)}


@tf_keras.saving.register_keras_serializable("scopeline")
class ShownLoss(WrappedLoss):
    """A loss with the value of another loss, and with gradients that are divided by a factor."""

    def __init__(self, loss: Any, factor: float, name: str = "shown_loss", **options: Any) -> None:
        """Stores the loss and the factor."""
        super().__init__(loss, name, **options)
        self._factor = factor

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the values of the wrapped loss, [batch], with divided gradients."""
        return scale_reported(self.wrapped(y_true, y_pred) / self._factor, self._factor)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "factor": self._factor}


Loss: TypeAlias = tf_keras.losses.Loss


def make_loss(problem: Problem, settings: LossSettings | None) -> Any:
    """Returns a new loss for compiling a Keras model.

    Args:
      problem: the features and the label.
      settings: the settings of the loss, or None for the task's default.

    Raises:
      TrainingError: a user's loss is neither a function nor a `tf_keras.losses.Loss`.
    """
    loss = _make_plain_loss(problem, settings)
    return PriorLoss(loss, problem.class_shift) if problem.class_shift else loss


def _make_plain_loss(problem: Problem, settings: LossSettings | None) -> Any:
    """Returns the loss without the adjustment of `PriorLoss`."""
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
    """A cross-entropy or focal loss of class indices.

    Keras's own losses with smoothing or focus need one-hot labels.
    """

    def __init__(
        self,
        classes: int,
        label_smoothing: float = 0.0,
        gamma: float = 0.0,
        name: str = "one_hot_loss",
        **options: Any,
    ) -> None:
        """Stores the options; with a `gamma` of 0, the loss is the cross-entropy."""
        super().__init__(name=name, **options)
        self._config = {"classes": classes, "label_smoothing": label_smoothing, "gamma": gamma}
        self._loss = tf_keras.losses.CategoricalFocalCrossentropy(
            alpha=1.0, gamma=gamma, label_smoothing=label_smoothing
        )

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch], for labels [batch, 1] and probabilities [batch, classes]."""
        labels = tf.reshape(tf.cast(y_true, tf.int64), [-1])
        return self._loss.call(tf.one_hot(labels, self._config["classes"]), y_pred)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._config}


@tf_keras.saving.register_keras_serializable("scopeline")
class PriorLoss(WrappedLoss):
    """A loss that adjusts the model's probabilities to the class weights.

    With class weights, cross-entropy is minimal for the probabilities of classes with weighted
    frequencies. The wrapped loss receives adjusted probabilities, so that the model's own output
    remains the probabilities in the data (Menon et al., 2021, "Long-tail learning via logit
    adjustment", arXiv:2007.07314).
    """

    def __init__(
        self, loss: Any, shift: Sequence[float], name: str = "prior_loss", **options: Any
    ) -> None:
        """Stores the loss, and the shift of the logits in `Problem.class_shift`."""
        super().__init__(loss, name, **options)
        self._shift = list(shift)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch].

        Args:
          y_true: the labels, [batch, 1].
          y_pred: the probabilities, [batch, classes], or for two classes [batch, 1].
        """
        logits = logits_of(y_pred)
        epsilon = tf_keras.backend.epsilon()
        shift = tf.constant(self._shift, y_pred.dtype)
        if len(self._shift) == 1:
            if logits is None:
                clipped = tf.clip_by_value(y_pred, epsilon, 1 - epsilon)
                logits = tf.math.log(clipped) - tf.math.log1p(-clipped)
            adjusted = tf_keras.activations.sigmoid(logits + shift)
        else:
            if logits is None:
                logits = tf.math.log(tf.maximum(y_pred, epsilon))
            adjusted = tf_keras.activations.softmax(logits + shift)
        return self.wrapped(y_true, adjusted)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "shift": self._shift}


def _own_loss(settings: LossSettings) -> Any:
    own = load_own("train.loss", settings.kind)
    if not isinstance(own, type):
        if settings.options:
            raise TrainingError(
                f"train.loss {settings.kind!r} is a function, which takes no options; remove "
                "`options`, or write a subclass of tf_keras.losses.Loss."
            )
        return own
    loss = own(**settings.options)
    if not isinstance(loss, tf_keras.losses.Loss):
        raise TrainingError(
            f"train.loss {settings.kind!r} is a {own.__module__}.{own.__qualname__}; give a "
            "subclass of tf_keras.losses.Loss, or a function of labels and predictions."
        )
    return loss


def _is_mixed(label: tf.Tensor) -> bool:
    """Returns whether labels are mixed: [batch, 3], two labels and the share of the first."""
    return bool(label.shape[-1] == 3)


@tf_keras.saving.register_keras_serializable("scopeline")
class MixedLoss(WrappedLoss):
    """A loss that also supports labels that mixup has mixed."""

    def __init__(self, loss: Any, name: str = "mixed_loss", **options: Any) -> None:
        """Stores the loss for labels that are not mixed."""
        super().__init__(loss, name, **options)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch]; for mixed labels, their means weighted by the shares."""
        if not _is_mixed(y_true):
            return self.wrapped(y_true, y_pred)
        share, first, second = y_true[:, 2], y_true[:, :1], y_true[:, 1:2]
        return share * self.wrapped(first, y_pred) + (1 - share) * self.wrapped(second, y_pred)


def with_larger_share(metric: tf_keras.metrics.Metric) -> tf_keras.metrics.Metric:
    """Returns the metric, for which the label with the larger share replaces a mixed label."""

    def replace_mixed(y_true: tf.Tensor, y_pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if _is_mixed(y_true):
            y_true = tf.where(y_true[:, 2:] < 0.5, y_true[:, 1:2], y_true[:, :1])
        return y_true, y_pred

    return change_compared(metric, replace_mixed)
