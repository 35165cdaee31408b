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
"""The largest exponent of `bounded_exponential`: exp(20) is about half a billion."""


def scale_reported(loss: tf.Tensor, factor: float) -> tf.Tensor:
    """Returns the loss times a factor, with the gradients of the loss itself.

    The reported loss of a number is in units of the label. Gradients in units of its standard
    deviation neither overflow nor underflow in float16, whose largest number is 65,504.
    """
    return tf.stop_gradient(loss * factor) + (loss - tf.stop_gradient(loss))


@tf_keras.saving.register_keras_serializable("scopeline")
def bounded_exponential(numbers: tf.Tensor) -> tf.Tensor:
    """Returns the exponential of limited numbers, as one outlier would make a metric infinite."""
    return tf.exp(tf.minimum(numbers, MAX_EXPONENT))


class WrappedLoss(tf_keras.losses.Loss):
    """A loss that wraps another loss, and is saved with it."""

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
    """A loss whose value is that of another loss, with gradients divided by `factor`."""

    def __init__(self, loss: Any, factor: float, name: str = "shown_loss", **options: Any) -> None:
        """Stores the loss, and the factor that its gradients are divided by."""
        super().__init__(loss, name, **options)
        self._factor = factor

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch], with the values of the wrapped loss."""
        return scale_reported(self.wrapped(y_true, y_pred) / self._factor, self._factor)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "factor": self._factor}


Loss: TypeAlias = tf_keras.losses.Loss


def make_loss(problem: Problem, settings: LossSettings | None) -> Any:
    """Returns a new loss for compiling a Keras model.

    Args:
      problem: the features and the label.
      settings: the settings of the loss; None for the task's default, cross-entropy or the mean
        squared error.

    Raises:
      TrainingError: a user's loss is neither a function nor a `tf_keras.losses.Loss`.
    """
    loss = _make_plain_loss(problem, settings)
    return PriorLoss(loss, problem.class_shift) if problem.class_shift else loss


def _make_plain_loss(problem: Problem, settings: LossSettings | None) -> Any:
    """Returns the loss of the model's output without a correction for class weights."""
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
    """Cross-entropy or focal loss of class indices, which Keras only has for one-hot labels."""

    def __init__(
        self,
        classes: int,
        label_smoothing: float = 0.0,
        gamma: float = 0.0,
        name: str = "one_hot_loss",
        **options: Any,
    ) -> None:
        """Stores the number of classes; a `gamma` of 0 is cross-entropy."""
        super().__init__(name=name, **options)
        self._config = {"classes": classes, "label_smoothing": label_smoothing, "gamma": gamma}
        self._loss = tf_keras.losses.CategoricalFocalCrossentropy(
            alpha=1.0, gamma=gamma, label_smoothing=label_smoothing
        )

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch], of labels [batch, 1] and probabilities [batch, classes]."""
        labels = tf.reshape(tf.cast(y_true, tf.int64), [-1])
        return self._loss.call(tf.one_hot(labels, self._config["classes"]), y_pred)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._config}


@tf_keras.saving.register_keras_serializable("scopeline")
class PriorLoss(WrappedLoss):
    """The loss of probabilities that are adjusted to the class weights.

    With class weights, cross-entropy is minimal for the probabilities under weighted class
    frequencies. The wrapped loss receives these, so that the model's own output are the
    probabilities in the data (Menon et al., 2021, "Long-tail learning via logit adjustment",
    arXiv:2007.07314).
    """

    def __init__(
        self, loss: Any, shift: Sequence[float], name: str = "prior_loss", **options: Any
    ) -> None:
        """Stores the loss, and the class weights' shift of the logits: `Problem.class_shift`."""
        super().__init__(loss, name, **options)
        self._shift = list(shift)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch], of probabilities [batch, classes], or [batch, 1] for two
        classes.
        """
        logits = logits_of(y_pred)
        smallest = tf_keras.backend.epsilon()
        shift = tf.constant(self._shift, y_pred.dtype)
        if len(self._shift) == 1:
            if logits is None:
                clipped = tf.clip_by_value(y_pred, smallest, 1 - smallest)
                logits = tf.math.log(clipped) - tf.math.log1p(-clipped)
            weighted = tf_keras.activations.sigmoid(logits + shift)
        else:
            if logits is None:
                logits = tf.math.log(tf.maximum(y_pred, smallest))
            weighted = tf_keras.activations.softmax(logits + shift)
        return self.wrapped(y_true, weighted)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
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
    """Returns whether a label mixes two examples; labels in evaluation are not mixed."""
    return bool(label.shape[-1] == 3)


@tf_keras.saving.register_keras_serializable("scopeline")
class MixedLoss(WrappedLoss):
    """A loss of labels that mixup may have mixed."""

    def __init__(self, loss: Any, name: str = "mixed_loss", **options: Any) -> None:
        """Stores the loss of labels that are not mixed."""
        super().__init__(loss, name, **options)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses, [batch], weighted by the shares of a mixed label."""
        if not _is_mixed(y_true):
            return self.wrapped(y_true, y_pred)
        share, first, second = y_true[:, 2], y_true[:, :1], y_true[:, 1:2]
        return share * self.wrapped(first, y_pred) + (1 - share) * self.wrapped(second, y_pred)


def with_larger_share(metric: tf_keras.metrics.Metric) -> tf_keras.metrics.Metric:
    """Returns the metric with mixed labels replaced by the label of the larger share."""

    def replace_mixed(y_true: tf.Tensor, y_pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if _is_mixed(y_true):
            y_true = tf.where(y_true[:, 2:] < 0.5, y_true[:, 1:2], y_true[:, :1])
        return y_true, y_pred

    return change_compared(metric, replace_mixed)
