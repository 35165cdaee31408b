"""Categories: indices in a vocabulary, embedded by models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PositiveInt

from trainer_module.features.base import BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.problem import TransformedFeature

MISSING_VALUE = "<missing>"
"""The vocabulary's entry for a missing value of a categorical feature."""


class CategoricalFeature(BaseFeature):
    """One of a set of values (text or integers): its index in the vocabulary of the train split."""

    type: Literal["categorical"]
    may_mix: ClassVar[bool] = True
    dtype: ClassVar[str] = "int64"
    vocabulary_size: PositiveInt = 1000
    """At most this many values, the most frequent ones, get an index of their own."""
    oov_buckets: PositiveInt = 1
    """Values outside the vocabulary are hashed into this many further indices."""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, n] int64 each."""
        return index_categories(columns, features)

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Whatever has a vocabulary."""
        del shape
        return dtype == cls.dtype and indices > 0

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """A learnt vector of each value: [batch, n, embedding_size] float32."""
        import tf_keras

        return tf_keras.layers.Embedding(
            feature.vocabulary_size, embedding_size, name=feature.layer_name("embedding")
        )(values)


def index_categories(
    columns: Mapping[str, AnyTensor], features: Mapping[str, CategoricalFeature]
) -> dict[str, tf.Tensor]:
    """Indices in the vocabularies, [batch, n] int64 each; missing is a value of its own."""
    import tensorflow as tf
    import tensorflow_transform as tft

    from trainer_module import vocabulary
    from trainer_module.features.raw_columns import dense_strings

    if not columns:
        return {}
    values = {name: dense_strings(column) for name, column in columns.items()}
    values = {name: tf.where(value == "", MISSING_VALUE, value) for name, value in values.items()}
    paths = vocabulary.compute_vocabularies(
        values, {name: vocabulary.ByFrequency(features[name].vocabulary_size) for name in values}
    )
    return {
        name: tft.apply_vocabulary(value, paths[name], num_oov_buckets=features[name].oov_buckets)
        for name, value in values.items()
    }
