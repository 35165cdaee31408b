"""Feature types of categories: indices in a vocabulary, which models embed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from trainer_module.features.base import BaseFeature
from trainer_module.features.vocabulary_orders import ByFrequency

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.features.transformed import TransformedFeature


_BETWEEN = "\x1f"
"""The separator of the joined values of a row."""


class CrossFeature(BaseFeature):
    """The combination of several columns' values as one category, under a name that no column
    has.
    """

    type: Literal["cross"]
    is_column: ClassVar[bool] = False
    dtype: ClassVar[str] = "int64"
    of: Annotated[list[str], Field(min_length=2)]
    """The columns: text, whole numbers or both. They may be of type `ignore` themselves."""
    hash_buckets: PositiveInt = 1000
    """The number of hash buckets of the combinations."""

    @property
    def indices_of(self) -> str:
        """A description of the indices: the hash of these columns."""
        return f"hash of {', '.join(self.of)}"

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Returns the columns that are crossed."""
        del name
        return tuple(self.of)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the hash buckets of the combinations, [batch, 1] int64 each."""
        import tensorflow as tf

        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.scaling import hash_values

        texts = {name: dense_strings(column)[:, :1] for name, column in columns.items()}
        return {
            name: hash_values(
                tf.strings.join([texts[column] for column in cross.of], _BETWEEN),
                cross.hash_buckets,
            )
            for name, cross in features.items()
        }


MISSING_VALUE = "<missing>"
"""The vocabulary's entry for a missing value of a categorical feature."""
MAX_TABLES = 50
"""The most columns with a lookup table each; more columns share one table."""
PADDING = "<padding>"
"""The vocabulary's entry of index 0, which pads rows with fewer values than the widest."""


class CategoricalFeature(BaseFeature):
    """A category (text or integer): its index in the vocabulary of the train split."""

    type: Literal["categorical"]
    may_mix: ClassVar[bool] = True
    dtype: ClassVar[str] = "int64"
    vocabulary_size: PositiveInt = 1000
    """The most values in the vocabulary; the most frequent ones are kept."""
    oov_buckets: PositiveInt = 1
    """The number of buckets into which values outside the vocabulary are hashed."""
    hash_buckets: PositiveInt | None = None
    """The number of hash buckets of all values, in place of a vocabulary, for very many values."""
    encoding: Literal["embedding", "one_hot"] | None = None
    """The encoding: a learnt vector for each value, or an input for each; default: depends on the
    model."""
    many: bool = False
    """Whether a row has several values: a list, or text with a `separator`."""
    separator: str | None = Field(default=None, min_length=1)
    """The separator of the values in a text, such as `;`."""
    max_values: PositiveInt = 10
    """The most values per row with `many`; further values are dropped."""

    @model_validator(mode="after")
    def _agrees(self) -> CategoricalFeature:
        if self.separator is not None and not self.many:
            raise ValueError("separator: it stands between several values; add many: true")
        return self

    @property
    def is_list(self) -> bool:
        """Whether requests send a list: true with `many` and without a `separator`."""
        return self.many and self.separator is None

    @property
    def indices_of(self) -> str:
        """A description of the indices: a hash, if there is one."""
        return "hash" if self.hash_buckets else ""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the indices of the values, [batch, n] int64 each; rows of many values are padded
        with 0.
        """
        return index_categories(columns, features)

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether a tensor holds indices in a vocabulary."""
        del shape
        return dtype == cls.dtype and indices > 0

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """Returns embeddings or one-hot vectors, [batch, n, size], or [batch, size] for many
        values.

        The embeddings of many values are averaged.
        """
        import tf_keras

        if feature.encoding == "one_hot":
            places = tf_keras.layers.CategoryEncoding(
                feature.vocabulary_size,
                "multi_hot" if feature.many else "one_hot",
                name=feature.layer_name("one_hot"),
            )(values)
            return places[:, 1:] if feature.many else places
        vectors = tf_keras.layers.Embedding(
            feature.vocabulary_size,
            embedding_size,
            mask_zero=feature.many,
            name=feature.layer_name("embedding"),
        )(values)
        if not feature.many:
            return vectors
        # The mask of the embedding keeps padding out of the mean.
        return tf_keras.layers.GlobalAveragePooling1D(name=feature.layer_name("mean"))(vectors)


def index_categories(
    columns: Mapping[str, AnyTensor], features: Mapping[str, CategoricalFeature]
) -> dict[str, tf.Tensor]:
    """Returns the indices in the vocabularies, [batch, n] int64 each; missing has an index of its
    own.
    """
    import tensorflow_transform as tft

    from trainer_module.features.scaling import hash_values
    from trainer_module.features.vocabularies import compute_vocabularies

    values = {name: _read(column, features[name]) for name, column in columns.items()}
    outputs = {
        name: hash_values(value, feature.hash_buckets, PADDING if feature.many else MISSING_VALUE)
        for name, value in values.items()
        if (feature := features[name]).hash_buckets is not None
    }
    counted = {name: value for name, value in values.items() if name not in outputs}
    orders = {
        name: ByFrequency(
            features[name].vocabulary_size, (PADDING,) if features[name].many else (), name
        )
        for name in counted
    }
    alike = {name: value for name, value in counted.items() if features[name].oov_buckets == 1}
    if len(alike) > MAX_TABLES:
        outputs |= _look_up_jointly(alike, orders)
        counted = {name: value for name, value in counted.items() if name not in outputs}
    if counted:
        paths = compute_vocabularies(counted, orders)
        outputs |= {
            name: tft.apply_vocabulary(
                value, paths[name], num_oov_buckets=features[name].oov_buckets
            )
            for name, value in counted.items()
        }
    return outputs


def _look_up_jointly(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, ByFrequency]
) -> dict[str, tf.Tensor]:
    """Returns the indices in the vocabularies, with one out-of-vocabulary index per column."""
    import tensorflow as tf
    from tensorflow_transform import schema_inference, tf_utils

    from trainer_module.features.vocabularies import (
        JoinedTable,
        compute_joined_vocabularies,
        joined_key,
    )

    path, sizes = compute_joined_vocabularies(columns, orders)
    table = JoinedTable()
    starts = tf.unstack(tf.cumsum(sizes, exclusive=True), len(columns))
    ends = tf.unstack(sizes, len(columns))
    outputs = {}
    # Separately: one tensor of all columns would make each output depend on each input.
    for place, (name, values) in enumerate(columns.items()):
        keys = tf.strings.join([joined_key(place), values])
        lines, _ = tf_utils.construct_and_lookup_table(table, path, keys)
        outputs[name] = tf.where(lines < 0, ends[place], lines - starts[place])
        # Readers of Transform's output take the number of indices from the schema.
        schema_inference.set_tensor_schema_override(
            outputs[name], tf.constant(0, tf.int64), ends[place]
        )
    return outputs


def _read(column: AnyTensor, feature: CategoricalFeature) -> tf.Tensor:
    """Returns the values of a column, [batch, n] string, without empty strings."""
    import tensorflow as tf

    from trainer_module.features.raw_columns import dense_strings, list_strings

    if not feature.many:
        values = dense_strings(column)
        return tf.where(values == "", MISSING_VALUE, values)
    values = list_strings(column, feature.max_values, feature.separator)
    is_missing = tf.concat([values[:, :1] == "", tf.zeros_like(values[:, 1:], tf.bool)], 1)
    return tf.where(values == "", tf.where(is_missing, MISSING_VALUE, PADDING), values)
