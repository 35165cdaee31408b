"""The layers of `tabular`: vectors of numbers, and an ensemble whose members share most weights."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.losses import WrappedLoss, scale_reported
from trainer_module.plain_layer import PlainLayer
from trainer_module.settings import Task

register = tf_keras.saving.register_keras_serializable("scopeline")


@register
class NumberVectors(PlainLayer):
    """A layer that encodes each number as a vector: [batch, n] becomes [batch, n * size].

    The vector consists of the scaled number, and of a linear map of cosines with trained
    frequencies. Numbers are scaled robustly and clipped smoothly, as in RealMLP (arXiv:2407.04491,
    embedding PBLD). The layer computes in float32, as the cosine of a large number is imprecise in
    float16.
    """

    FREQUENCIES = 16
    """The number of frequencies per number."""
    DEVIATION = 0.1
    """The standard deviation of the initial frequencies; with it, most scaled numbers initially
    span less than one wave.
    """
    CLIP = 3.0
    """The limit that scaled numbers approach."""
    MAX_SCALED = 1e6
    """The limit of scaled numbers before smooth clipping; the square of this number is finite."""
    column_axes: ClassVar = {"frequencies": 0, "phases": 0, "kernel": 0, "bias": 0}
    """The axis of each weight that counts the inputs, by the weight's name."""

    def __init__(
        self, medians: Sequence[float], scales: Sequence[float], size: int = 4, **options: Any
    ) -> None:
        """Stores the medians and scales of the numbers, [n], and the length of their vectors."""
        super().__init__(dtype=tf.float32, **{k: v for k, v in options.items() if k != "dtype"})
        self._config: dict[str, Any] = {
            "medians": list(medians),
            "scales": list(scales),
            "size": size,
        }
        self.outputs_per_input = size

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the weights of each number."""
        count, waves = input_shape[-1], self.FREQUENCIES
        outputs = self._config["size"] - 1
        uniform = tf_keras.initializers.RandomUniform
        self.frequencies = self.add_weight(
            "frequencies",
            (count, waves),
            initializer=tf_keras.initializers.RandomNormal(stddev=self.DEVIATION),
        )
        self.phases = self.add_weight("phases", (count, waves), initializer=uniform(-0.5, 0.5))
        bound = 1 / math.sqrt(waves)
        self.kernel = self.add_weight(
            "kernel", (count, waves, outputs), initializer=uniform(-bound, bound)
        )
        self.bias = self.add_weight("bias", (count, outputs), initializer="zeros")

    def get_prunable_weights(self) -> list[tf.Variable]:
        """Returns no weights, as pruning the few weights of this layer would save little."""
        return []

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the vectors of all numbers; each vector begins with the scaled number."""
        # An infinite value times a scale of 0 would be NaN.
        finite = tf.clip_by_value(inputs, tf.float32.min / 2, tf.float32.max / 2)
        scaled = (finite - np.float32(self._config["medians"])) * np.float32(self._config["scales"])
        scaled = tf.clip_by_value(scaled, -self.MAX_SCALED, self.MAX_SCALED)
        scaled /= tf.sqrt(1 + tf.square(scaled / self.CLIP))
        turns = scaled[:, :, tf.newaxis] * self.frequencies + self.phases
        mapped = tf.einsum("bnw,nwe->bne", tf.cos(2 * math.pi * turns), self.kernel) + self.bias
        vectors = tf.concat([scaled[:, :, tf.newaxis], mapped], 2)
        return tf.reshape(vectors, [-1, vectors.shape[1] * vectors.shape[2]])

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._config}


@register
class MembersDense(PlainLayer):
    """A dense layer of an ensemble: [batch, members, inputs] becomes [batch, members, units].

    The members share the kernel, and each member has its own biases. The first layer, whose input
    is [batch, inputs], also multiplies the inputs by trained factors of each member, which are
    random signs at first. Each member thus has a different view of the inputs (TabM-mini,
    arXiv:2410.24210).
    """

    def __init__(self, members: int, units: int, **options: Any) -> None:
        """Stores the number of members and the number of their units."""
        super().__init__(**options)
        self._config = {"members": members, "units": units}

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the shared kernel and the weights of each member."""
        members, width = self._config["members"], input_shape[-1]
        self._is_first = len(input_shape) == 2
        if self._is_first:
            # Weight decay does not apply to `gamma`, the name of batch normalisation's factor.
            self.gamma = self.add_weight("gamma", (members, width), initializer=random_signs)
            self.column_axes = {"kernel": 0, "gamma": 1}
        self.kernel = self.add_weight(
            "kernel", (width, self._config["units"]), initializer="he_normal"
        )
        self.bias = self.add_weight(
            "bias",
            (members, self._config["units"]),
            initializer=tf_keras.initializers.RandomNormal(stddev=0.1),
        )

    def get_prunable_weights(self) -> list[tf.Variable]:
        """Returns the kernel that all members share."""
        return [self.kernel]

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns SiLU(inputs * kernel + bias) of each member."""
        if self._is_first:
            inputs = inputs[:, tf.newaxis] * self.gamma
        members, units = self._config["members"], self._config["units"]
        flat = tf.matmul(tf.reshape(inputs, [-1, inputs.shape[-1]]), self.kernel)
        return silu(tf.reshape(flat, [-1, members, units]) + self.bias)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._config}


@tf.custom_gradient
def silu(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns values * sigmoid(values). Unlike TensorFlow's, the gradient reuses the sigmoid."""
    gate = tf.sigmoid(values)
    product = values * gate

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * (gate + product * (1 - gate))

    return product, gradient


def random_signs(shape: Sequence[int], dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
    """Returns random signs, 1 or -1 with equal probability."""
    return tf.sign(tf_keras.initializers.RandomUniform(-1.0, 1.0)(shape, dtype))


@register
class MembersMean(PlainLayer):
    """The last layer of an ensemble, which returns the mean of the members' logits, [batch, units].

    Each member has its own weights. During training, the layer passes the spread to `MembersLoss`,
    which adds the spread to the loss of the mean. For cross-entropy and the squared error, the sum
    is exactly the mean of the members' losses. Each member then learns independently, so that the
    members differ.
    """

    def __init__(
        self,
        units: int,
        task: str,
        scale: float | None = 1.0,
        shift: Sequence[float] = (),
        **options: Any,
    ) -> None:
        """Stores the arguments of the layer.

        Args:
          units: the number of logits of each member.
          task: the kind of the label.
          scale: the factor between the logits and the label, or None for a layer without a spread.
          shift: the shift of the logits in the loss, `Problem.class_shift`.
          **options: the options of Keras's base layer.
        """
        super().__init__(**options)
        self._config: dict[str, Any] = {
            "units": units, "task": str(task), "scale": scale, "shift": list(shift)
        }  # fmt: skip
        # Each replica on this machine calls the model and its loss in its own thread.
        self._latest = threading.local()

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the weights of each member."""
        _, members, width = input_shape
        units = self._config["units"]
        self.kernel = self.add_weight(
            "kernel",
            (members, width, units),
            initializer=tf_keras.initializers.RandomNormal(stddev=1 / math.sqrt(width)),
        )
        self.bias = self.add_weight("bias", (members, units), initializer="zeros")

    def get_prunable_weights(self) -> list[tf.Variable]:
        """Returns the kernels of the members."""
        return [self.kernel]

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns the mean of the members' logits."""
        logits = tf.cast(tf.einsum("bkd,kdu->bku", inputs, self.kernel) + self.bias, tf.float32)
        mean = tf.reduce_mean(logits, 1)
        learns = training and self.computes_spread
        self._latest.spread = self._spread(logits, mean) if learns else None
        return mean

    @property
    def computes_spread(self) -> bool:
        """Whether the layer computes the spread, which is useful only for some losses."""
        return self._config["scale"] is not None

    def take_spread(self) -> tf.Tensor | None:
        """Returns the spread of the latest call, [batch], and deletes it; None outside of training.

        The spread is deleted, as a tensor of one graph cannot be used in another graph.
        """
        spread = getattr(self._latest, "spread", None)
        self._latest.spread = None
        return spread

    # AutoGraph is not needed, and would log a warning for each `match`.
    @tf.autograph.experimental.do_not_convert
    def _spread(self, logits: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """Returns the mean of the members' losses minus the loss of their mean, [batch]."""
        if shift := self._config["shift"]:
            logits, mean = logits + shift, mean + shift
        match self._config["task"]:
            case Task.REGRESSION:
                spread = tf.reduce_mean(tf.square(logits - mean[:, tf.newaxis]), [1, 2])
                return scale_reported(spread, self._config["scale"] ** 2)
            case Task.BINARY:
                member_losses = tf.reduce_mean(tf.nn.softplus(logits), [1, 2])
                return member_losses - tf.reduce_mean(tf.nn.softplus(mean), 1)
        member_losses = tf.reduce_mean(tf.reduce_logsumexp(logits, -1), 1)
        return member_losses - tf.reduce_logsumexp(mean, -1)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._config}


@register
class MembersLoss(WrappedLoss):
    """A loss of the members' mean, plus the members' spread.

    A saved loss does not contain the layers, and then adds no spread.
    """

    def __init__(
        self,
        loss: Any,
        layers: Sequence[MembersMean] = (),
        name: str = "members_loss",
        **options: Any,
    ) -> None:
        """Stores the loss of the mean, and the layers whose spread is added."""
        super().__init__(loss, name, **options)
        self._layers = tuple(layers)

    @tf.autograph.experimental.do_not_convert
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses with the spread, [batch]."""
        losses = self.wrapped(y_true, y_pred)
        spreads = [layer.take_spread() for layer in self._layers]
        return tf.add_n([losses, *(spread for spread in spreads if spread is not None)])


def wrap_ensemble_loss(loss: Any, model: tf_keras.Model) -> Any:
    """Returns the loss for compiling a model: with the members' spread if the model has members."""
    layers = [
        part for part in model.submodules if isinstance(part, MembersMean) and part.computes_spread
    ]
    return MembersLoss(loss, layers) if layers else loss
