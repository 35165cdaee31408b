"""Layers that models share for transformed text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

if TYPE_CHECKING:
    from trainer_module.features.transformed import TransformedFeature

register = tf_keras.saving.register_keras_serializable("scopeline")


class Float32Layer(tf_keras.layers.Layer):
    """A layer that always computes in float32, whatever `train.precision` is."""

    def __init__(self, **options: Any) -> None:
        """Creates the layer from the options of a layer, except its dtype."""
        super().__init__(**{**options, "dtype": tf.float32})

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which Keras creates the layer again."""
        return {k: v for k, v in super().get_config().items() if k != "dtype"}


@register
class TermIndices(Float32Layer):
    """A layer from pairs, [batch, terms, 2], to the indices of the terms, [batch, terms] int32."""

    keeps_indices = True
    """Whether the outputs are indices in the vocabulary of the inputs."""

    def __init__(self, **options: Any) -> None:
        """Creates the layer without autocasting, as half precision cannot represent the indices."""
        super().__init__(**{**options, "autocast": False})

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the index of each pair."""
        return tf.cast(inputs[:, :, 0], tf.int32)


@register
class WeightedSum(Float32Layer):
    """A layer that sums the terms' vectors, [batch, terms, n], by the weights in [batch, terms, 2].

    It computes in float32, as sums of many terms need the precision.
    """

    SCALE = 6.0
    """The factor of the sum: a term occurs in few rows, so its weight needs larger steps than
    others.

    With it, gradient descent at a learning rate that is usual for dense layers learns a linear
    model of terms as well as logistic regression does, on reviews of 19 and of 214 words."""
    SCALE_FOR_ADAM = 1.0
    """The factor for optimizers such as Adam, whose steps are as long for rare terms as for others.

    With the factor of gradient descent, the terms' vectors beside other columns have memorised the
    train split after one epoch."""

    def __init__(self, scale: float = SCALE, **options: Any) -> None:
        """Creates the layer from the factor and the options of a layer."""
        super().__init__(**options)
        self.scale = scale

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Returns the weighted sum, [batch, n], from the vectors and the terms."""
        vectors, terms = inputs
        return tf.einsum("bt,btn->bn", self.scale * terms[:, :, 1], vectors)

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which Keras creates the layer again."""
        return {**super().get_config(), "scale": self.scale}


@register
class LargestInText(tf_keras.layers.Layer):
    """A layer from nonnegative values per token, [batch, tokens, n], to their maximum: [batch, n].

    Padding is excluded, by the indices of the tokens.
    """

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Returns the maximum, from the nonnegative values and the indices, of which 0 is
        padding.
        """
        values, indices = inputs
        is_token = tf.cast(indices > 0, values.dtype)
        return tf.reduce_max(values * is_token[:, :, tf.newaxis], 1)


def sum_of_terms(
    feature: TransformedFeature,
    values: tf.Tensor,
    size: int,
    role: str,
    initializer: str = "uniform",
    scale: float = WeightedSum.SCALE,
) -> tf.Tensor:
    """Returns the output of a dense layer without bias on the TF-IDF of a bag: [batch, size].

    The sparse vector is never expanded.

    Args:
      feature: the transformed feature.
      values: its Keras input.
      size: the number of units.
      role: the part of the layers' names after the feature's name.
      initializer: the initializer of the terms' vectors.
      scale: the factor of the sum, which determines the effect of an optimizer's step.
    """
    vectors = tf_keras.layers.Embedding(
        feature.vocabulary_size, size, initializer, name=feature.layer_name(role)
    )(TermIndices(name=feature.layer_name(f"{role}_terms"))(values))
    return WeightedSum(scale, name=feature.layer_name(f"{role}_sum"))([vectors, values])


@register
class TokensMean(Float32Layer):
    """A layer that averages the vectors of tokens, [batch, tokens, n], by their indices: [batch,
    n].

    The mean of a text without a token is 0.
    """

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Returns the mean, from the vectors and the indices, of which 0 is padding."""
        vectors, indices = inputs
        is_token = tf.cast(indices > 0, tf.float32)
        count = tf.maximum(tf.reduce_sum(is_token, 1, keepdims=True), 1.0)
        return tf.einsum("bt,btn->bn", is_token / count, vectors)


def mean_of_tokens(
    feature: TransformedFeature, values: tf.Tensor, size: int, role: str
) -> tf.Tensor:
    """Returns the mean of the embedded tokens of a sequence: [batch, size]."""
    vectors = tf_keras.layers.Embedding(
        feature.vocabulary_size, size, name=feature.layer_name(role)
    )(values)
    return TokensMean(name=feature.layer_name(f"{role}_mean"))([vectors, values])
