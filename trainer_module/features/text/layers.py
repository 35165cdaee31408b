"""What models make of transformed text before their own layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

if TYPE_CHECKING:
    from trainer_module.features.transformed import TransformedFeature

register = tf_keras.saving.register_keras_serializable("scopeline")


class Float32Layer(tf_keras.layers.Layer):
    """A layer that computes in float32 whatever `train.precision` is."""

    def __init__(self, **options: Any) -> None:
        """Takes the options of a layer, but for its dtype."""
        super().__init__(**{**options, "dtype": tf.float32})

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {k: v for k, v in super().get_config().items() if k != "dtype"}


@register
class TermIndices(Float32Layer):
    """[batch, terms, 2] to the indices of the terms, [batch, terms] int32."""

    keeps_indices = True
    """What comes out counts in the vocabulary of what goes in."""

    def __init__(self, **options: Any) -> None:
        """Takes the options of a layer; an index has more digits than half precision has."""
        super().__init__(**{**options, "autocast": False})

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the first of each pair."""
        return tf.cast(inputs[:, :, 0], tf.int32)


@register
class WeightedSum(Float32Layer):
    """The vectors of terms, [batch, terms, n], by the weights in [batch, terms, 2]: [batch, n].

    Sums of many terms need the digits.
    """

    SCALE = 6.0
    """Of the sum: a term is in few rows, and its weight has to go further in a step than others.

    With it, gradient descent at a rate that is usual for dense layers learns a linear model of
    terms as well as logistic regression does, on reviews of 19 and of 214 words.
    """
    SCALE_FOR_ADAM = 1.0
    """Where steps are as long for rare terms as for others, as Adam's are.

    With that of gradient descent, the vectors of terms beside other columns have learnt the train
    split by heart after one epoch.
    """

    def __init__(self, scale: float = SCALE, **options: Any) -> None:
        """Takes the factor, and the options of a layer."""
        super().__init__(**options)
        self.scale = scale

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Takes the vectors and the terms."""
        vectors, terms = inputs
        return tf.einsum("bt,btn->bn", self.scale * terms[:, :, 1], vectors)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes it of again."""
        return {**super().get_config(), "scale": self.scale}


@register
class LargestInText(tf_keras.layers.Layer):
    """Of what is above 0 at each token, [batch, tokens, n], the largest: [batch, n].

    What is behind the end of a text does not count, by the indices of its tokens.
    """

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Takes the numbers, none of them negative, and the indices, of which 0 is none."""
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
    """[batch, size]: a dense layer without bias on the TF-IDF of a bag, which is never written out.

    Args:
      feature: the transformed one.
      values: its Keras input.
      size: units.
      role: what the layer is called after, beside the feature's name.
      initializer: of the vectors of the terms.
      scale: of the sum, which says how far a step of the optimizer goes.
    """
    vectors = tf_keras.layers.Embedding(
        feature.vocabulary_size, size, initializer, name=feature.layer_name(role)
    )(TermIndices(name=feature.layer_name(f"{role}_terms"))(values))
    return WeightedSum(scale, name=feature.layer_name(f"{role}_sum"))([vectors, values])


@register
class TokensMean(Float32Layer):
    """The vectors of tokens, [batch, tokens, n], and their indices, to the mean: [batch, n].

    That of a text without a token is 0.
    """

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """Takes the vectors and the indices, of which 0 is none."""
        vectors, indices = inputs
        is_token = tf.cast(indices > 0, tf.float32)
        count = tf.maximum(tf.reduce_sum(is_token, 1, keepdims=True), 1.0)
        return tf.einsum("bt,btn->bn", is_token / count, vectors)


def mean_of_tokens(
    feature: TransformedFeature, values: tf.Tensor, size: int, role: str
) -> tf.Tensor:
    """[batch, size]: the mean of the vectors of the tokens of a sequence."""
    vectors = tf_keras.layers.Embedding(
        feature.vocabulary_size, size, name=feature.layer_name(role)
    )(values)
    return TokensMean(name=feature.layer_name(f"{role}_mean"))([vectors, values])
