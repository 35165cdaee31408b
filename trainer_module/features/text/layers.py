"""Keras layers for transformed text, which several models use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from trainer_module.plain_layer import PlainLayer

if TYPE_CHECKING:
    from trainer_module.features.transformed import TransformedFeature

register = tf_keras.saving.register_keras_serializable("scopeline")


class Float32Layer(PlainLayer):
    """A layer that always computes in float32, whatever `train.precision` is."""

    def __init__(self, **options: Any) -> None:
        """Creates the layer from the options of Keras's base layer, without `dtype`."""
        super().__init__(**{**options, "dtype": tf.float32})

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which Keras creates the layer again."""
        return {k: v for k, v in super().get_config().items() if k != "dtype"}


@register
class TermIndices(Float32Layer):
    """A layer that returns the indices of a bag's terms, [batch, terms] int32.

    Its input is the pairs of indices and weights, [batch, terms, 2].
    """

    keeps_indices = True
    """Whether the outputs are indices in the vocabulary of the inputs."""

    def __init__(self, **options: Any) -> None:
        """Creates the layer without autocast, as float16 cannot represent the indices."""
        super().__init__(**{**options, "autocast": False})

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the indices, the first numbers of the pairs."""
        return tf.cast(inputs[:, :, 0], tf.int32)


@register
class WeightedSum(Float32Layer):
    """A layer that returns the TF-IDF-weighted sum of a bag's vectors, multiplied by a scale.

    It computes in float32, as a sum of many terms would be imprecise in float16.
    """

    SCALE = 6.0
    """The scale for gradient descent, which makes the optimizer's steps for terms larger.

    A term occurs in few rows, so its vector needs larger steps than other weights. With this scale
    and a learning rate for dense layers, a linear model of terms is as good as logistic regression,
    on reviews of 19 and of 214 words."""
    SCALE_FOR_ADAM = 1.0
    """The scale for optimizers such as Adam, whose steps are as large for rare terms as for others.

    With `SCALE`, a model of terms and other columns memorises the train split in one epoch."""

    def __init__(self, scale: float = SCALE, **options: Any) -> None:
        """Creates the layer from the scale and the options of Keras's base layer."""
        super().__init__(**options)
        self.scale = scale

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Returns the weighted sum, [batch, n].

        Args:
          inputs: the vectors of the terms, [batch, terms, n], and the pairs of indices and weights,
            [batch, terms, 2].
        """
        vectors, terms = inputs
        return tf.einsum("bt,btn->bn", self.scale * terms[:, :, 1], vectors)

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which Keras creates the layer again."""
        return {**super().get_config(), "scale": self.scale}


@register
class LargestInText(PlainLayer):
    """A layer that returns the maximum of values over the tokens of a text, without padding."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Returns the maximum, [batch, n].

        Args:
          inputs: values that are not negative, [batch, tokens, n], and the indices of the tokens,
            [batch, tokens], which are 0 for padding.
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
    """Returns the output of a dense layer without bias on the TF-IDF of a bag, [batch, size].

    The TF-IDF remains sparse: only the vectors of the terms in a row are read.

    Args:
      feature: the transformed feature.
      values: the Keras input of the feature.
      size: the number of units.
      role: the suffix of the layers' names, after the name of the feature.
      initializer: the initializer of the terms' vectors.
      scale: the scale of `WeightedSum`.
    """
    vectors = tf_keras.layers.Embedding(
        feature.vocabulary_size, size, initializer, name=feature.layer_name(role)
    )(TermIndices(name=feature.layer_name(f"{role}_terms"))(values))
    return WeightedSum(scale, name=feature.layer_name(f"{role}_sum"))([vectors, values])


@register
class TokensMean(Float32Layer):
    """A layer that returns the mean of the vectors of a text's tokens, or 0 without tokens."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Returns the mean, [batch, n].

        Args:
          inputs: the vectors of the tokens, [batch, tokens, n], and the indices of the tokens,
            [batch, tokens], which are 0 for padding.
        """
        vectors, indices = inputs
        is_token = tf.cast(indices > 0, tf.float32)
        count = tf.maximum(tf.reduce_sum(is_token, 1, keepdims=True), 1.0)
        return tf.einsum("bt,btn->bn", is_token / count, vectors)


def mean_of_tokens(
    feature: TransformedFeature, values: tf.Tensor, size: int, role: str
) -> tf.Tensor:
    """Returns the mean of the embeddings of a sequence's tokens, [batch, size].

    Args:
      feature: the transformed feature.
      values: the Keras input of the feature.
      size: the length of an embedding.
      role: the suffix of the layers' names, after the name of the feature.
    """
    vectors = tf_keras.layers.Embedding(
        feature.vocabulary_size, size, name=feature.layer_name(role)
    )(values)
    return TokensMean(name=feature.layer_name(f"{role}_mean"))([vectors, values])
