"""The layers of `tabular`: numbers as vectors, and networks that share most of their weights."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.losses import WrappedLoss, show_as
from trainer_module.settings import Task

register = tf_keras.saving.register_keras_serializable("scopeline")


@register
class NumberVectors(tf_keras.layers.Layer):
    """Each number as a vector: itself, and a linear map of cosines of it with learnt frequencies.

    Robustly scaled and smoothly clipped before, as RealMLP does it (arXiv:2407.04491, with the
    embedding it calls PBLD). Always in float32: the cosine of a large number needs the digits.

    [batch, n] to [batch, n * size].
    """

    FREQUENCIES = 16
    DEVIATION = 0.1
    """Of the frequencies at the start: most numbers begin with less than one wave."""
    CLIP = 3.0
    """What no scaled number goes beyond."""
    FARTHEST = 1e6
    """Of scaled numbers: the square of a number that a request makes up may be infinite."""
    column_axes: ClassVar = {"frequencies": 0, "phases": 0, "kernel": 0, "bias": 0}
    """By the names of its weights, the axis that counts the inputs."""

    def __init__(
        self, medians: Sequence[float], scales: Sequence[float], size: int = 4, **options: Any
    ) -> None:
        """Takes what the numbers are scaled by, [n] each, and the length of their vectors."""
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
        learnt = self._config["size"] - 1
        uniform = tf_keras.initializers.RandomUniform
        self.frequencies = self.add_weight(
            "frequencies",
            (count, waves),
            initializer=tf_keras.initializers.RandomNormal(stddev=self.DEVIATION),
        )
        self.phases = self.add_weight("phases", (count, waves), initializer=uniform(-0.5, 0.5))
        bound = 1 / math.sqrt(waves)
        self.kernel = self.add_weight(
            "kernel", (count, waves, learnt), initializer=uniform(-bound, bound)
        )
        self.bias = self.add_weight("bias", (count, learnt), initializer="zeros")

    def get_prunable_weights(self) -> list[tf.Variable]:
        """None: there are few, and each is a number's own."""
        return []

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Column by column, each with the scaled number first."""
        # What is infinite is no number any more once it is multiplied by a scale of 0.
        finite = tf.clip_by_value(inputs, tf.float32.min / 2, tf.float32.max / 2)
        scaled = (finite - np.float32(self._config["medians"])) * np.float32(self._config["scales"])
        scaled = tf.clip_by_value(scaled, -self.FARTHEST, self.FARTHEST)
        scaled /= tf.sqrt(1 + tf.square(scaled / self.CLIP))
        turns = scaled[:, :, tf.newaxis] * self.frequencies + self.phases
        learnt = tf.einsum("bnw,nwe->bne", tf.cos(2 * math.pi * turns), self.kernel) + self.bias
        vectors = tf.concat([scaled[:, :, tf.newaxis], learnt], 2)
        return tf.reshape(vectors, [-1, vectors.shape[1] * vectors.shape[2]])

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), **self._config}


@register
class MembersDense(tf_keras.layers.Layer):
    """A dense layer of several networks: one kernel for all, a bias and, if first, signs for each.

    The signs, learnt from a random start, let each member see the inputs in its own way (TabM-mini,
    arXiv:2410.24210). [batch, inputs], or [batch, members, inputs], to [batch, members, units].
    """

    def __init__(self, members: int, units: int, **options: Any) -> None:
        """Takes the number of members and that of their units."""
        super().__init__(**options)
        self._config = {"members": members, "units": units}

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the shared kernel and what is each member's own."""
        members, width = self._config["members"], input_shape[-1]
        self._splits = len(input_shape) == 2
        if self._splits:
            # Weight decay leaves it alone by its name, that of a factor in Keras's normalisation.
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
        """What all members share."""
        return [self.kernel]

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """SiLU of the products and biases."""
        if self._splits:
            inputs = inputs[:, tf.newaxis] * self.gamma
        members, units = self._config["members"], self._config["units"]
        flat = tf.matmul(tf.reshape(inputs, [-1, inputs.shape[-1]]), self.kernel)
        return tf.nn.silu(tf.reshape(flat, [-1, members, units]) + self.bias)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), **self._config}


def random_signs(shape: Sequence[int], dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
    """1 and -1, half of each."""
    return tf.sign(tf_keras.initializers.RandomUniform(-1.0, 1.0)(shape, dtype))


@register
class MembersMean(tf_keras.layers.Layer):
    """Logits of each member, from weights of its own, and their mean: [batch, units].

    While training it tells `MembersLoss` how far the members are apart: with that the loss of
    their mean becomes the mean of their losses, exactly where it is cross-entropy or the squared
    error. So each learns as if it were alone, which is what makes them differ.
    """

    def __init__(
        self,
        units: int,
        task: str,
        scale: float | None = 1.0,
        shift: Sequence[float] = (),
        **options: Any,
    ) -> None:
        """Takes the task, and by what the output is scaled; without a scale it tells nothing.

        Args:
          units: logits of each member.
          task: what they are for.
          scale: of the output.
          shift: what the loss adds to the logits: `Problem.class_shift`.
          **options: Keras's.
        """
        super().__init__(**options)
        self._config: dict[str, Any] = {
            "units": units, "task": str(task), "scale": scale, "shift": list(shift)
        }  # fmt: skip
        # Each replica of this machine calls the model and its loss in a thread of its own.
        self._told = threading.local()

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
        """What each member weighs its inputs by."""
        return [self.kernel]

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns the mean."""
        logits = tf.cast(tf.einsum("bkd,kdu->bku", inputs, self.kernel) + self.bias, tf.float32)
        mean = tf.reduce_mean(logits, 1)
        learns = training and self.tells
        self._told.distance = self._distance(logits, mean) if learns else None
        return mean

    @property
    def tells(self) -> bool:
        """Whether the loss is one that the members can learn alone by."""
        return self._config["scale"] is not None

    def take_distance(self) -> tf.Tensor | None:
        """Returns how far the members were apart in the latest call, [batch]; None outside
        training.

        Once: what a graph has told means nothing in another one.
        """
        distance = getattr(self._told, "distance", None)
        self._told.distance = None
        return distance

    # AutoGraph, which nothing here needs, warns of each `match`.
    @tf.autograph.experimental.do_not_convert
    def _distance(self, logits: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """By example, how much the mean of the members' losses exceeds the loss of their mean."""
        if shift := self._config["shift"]:
            logits, mean = logits + shift, mean + shift
        match self._config["task"]:
            case Task.REGRESSION:
                spread = tf.reduce_mean(tf.square(logits - mean[:, tf.newaxis]), [1, 2])
                return show_as(spread, self._config["scale"] ** 2)
            case Task.BINARY:
                of_members = tf.reduce_mean(tf.nn.softplus(logits), [1, 2])
                return of_members - tf.reduce_mean(tf.nn.softplus(mean), 1)
        of_members = tf.reduce_mean(tf.reduce_logsumexp(logits, -1), 1)
        return of_members - tf.reduce_logsumexp(mean, -1)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), **self._config}


@register
class MembersLoss(WrappedLoss):
    """A loss of the members' mean, and how far they are apart: weighed together by example.

    No layer is part of what is saved of it.
    """

    def __init__(
        self,
        loss: Any,
        layers: Sequence[MembersMean] = (),
        name: str = "members_loss",
        **options: Any,
    ) -> None:
        """Takes the loss of the mean, and the layers that it is the loss of."""
        super().__init__(loss, name, **options)
        self._layers = tuple(layers)

    @tf.autograph.experimental.do_not_convert
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Losses [batch]."""
        losses = self.wrapped(y_true, y_pred)
        told = [layer.take_distance() for layer in self._layers]
        return tf.add_n([losses, *(distance for distance in told if distance is not None)])


def with_members(loss: Any, model: tf_keras.Model) -> Any:
    """Returns a loss as a model is compiled with it: that of each member, where the model has
    members.
    """
    layers = [part for part in model.submodules if isinstance(part, MembersMean) and part.tells]
    return MembersLoss(loss, layers) if layers else loss
