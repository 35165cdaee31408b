"""The Keras model of an ensemble: the weighted mean of its members, with calibrated odds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.ensemble.member import MIN_PROBABILITY, Build
from trainer_module.families.supervised.trees.model import as_list
from trainer_module.plain_layer import PlainLayer
from trainer_module.problem import Problem


@tf_keras.saving.register_keras_serializable("scopeline")
class WeightedMean(PlainLayer):
    """Computes the weighted mean of the members' outputs, [batch, units]."""

    def __init__(self, weights: Sequence[float], **options: Any) -> None:
        """Stores the weight of each member."""
        super().__init__(**{"trainable": False, "dtype": tf.float32, **options})
        self._shares = [float(weight) for weight in weights]

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the mean of a list of outputs."""
        pairs = zip(self._shares, as_list(inputs), strict=True)
        return tf.add_n([weight * tf.cast(output, tf.float32) for weight, output in pairs])

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "weights": self._shares}


@tf_keras.saving.register_keras_serializable("scopeline")
class ChangedOdds(PlainLayer):
    """Divides the logits of probabilities by a temperature, [batch, units].

    One unit is the probability of the second of two classes.
    """

    def __init__(self, temperature: float, **options: Any) -> None:
        """Stores the divisor of the logits."""
        super().__init__(**{"trainable": False, "dtype": tf.float32, **options})
        self._temperature = float(temperature)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the changed probabilities."""
        values = tf.clip_by_value(inputs, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        logits = tf.math.log(values)
        is_binary = inputs.shape[-1] == 1
        if is_binary:
            logits -= tf.math.log(1 - values)
        logits /= self._temperature
        return tf.sigmoid(logits) if is_binary else tf.nn.softmax(logits)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "temperature": self._temperature}


def build_ensemble(
    problem: Problem,
    members: Mapping[str, Build],
    weights: Mapping[str, float],
    temperature: float,
) -> tf_keras.Model:
    """Returns the model of the members that have a weight; call it in the strategy's scope.

    Args:
      problem: the features and the label.
      members: a function for each member, which returns its outputs for Keras inputs.
      weights: the weights of members by name, which sum up to 1; with logarithms, times the
        factor that corrects each member's bias.
      temperature: the divisor of the mean's logits; 1 changes nothing.
    """
    inputs = problem.make_inputs()
    outputs = [members[name](inputs) for name in weights]
    output = WeightedMean(list(weights.values()), name=problem.layer_name("mean"))(outputs)
    if temperature != 1:
        output = ChangedOdds(temperature, name=problem.layer_name("calibration"))(output)
    return tf_keras.Model(inputs, output, name="ensemble")
