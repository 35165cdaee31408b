"""The feature types `categorical` and `cross`: indices in a vocabulary or of hash buckets."""

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


_SEPARATOR = "\x1f"
"""The separator of the combined values of a row."""


class CrossFeature(BaseFeature):
    """A category that combines the values of several columns; no column may have its name."""

    type: Literal["cross"]
    is_column: ClassVar[bool] = False
    dtype: ClassVar[str] = "int64"
    of: Annotated[list[str], Field(min_length=2)]
    """The names of the columns, which contain text or whole numbers. They may have type `ignore`.
    """
    hash_buckets: PositiveInt = 1000
    """The number of hash buckets of the combinations."""

    @property
    def indices_of(self) -> str:
        """The description of the indices, such as "hash of city, day"."""
        return f"hash of {', '.join(self.of)}"

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Returns the names of the combined columns."""
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
                tf.strings.join([texts[column] for column in cross.of], _SEPARATOR),
                cross.hash_buckets,
            )
            for name, cross in features.items()
        }


MISSING_VALUE = "<missing>"
"""The vocabulary's entry for a missing value of a categorical feature."""
_LINE_BREAKS = r"[\r\n]+"
MAX_TABLES = 50
"""The maximum number of columns with a lookup table each; more columns share one table."""
PADDING = "<padding>"
"""The vocabulary's entry of index 0, which pads rows with fewer values than other rows."""


class CategoricalFeature(BaseFeature):
    """A category (text or integer), which becomes an index in the train split's vocabulary."""

    type: Literal["categorical"]
    may_mix: ClassVar[bool] = True
    dtype: ClassVar[str] = "int64"
    vocabulary_size: PositiveInt = 1000
    """The maximum number of values in the vocabulary, which has the most frequent values."""
    oov_buckets: PositiveInt = 1
    """The number of buckets into which values outside the vocabulary are hashed."""
    hash_buckets: PositiveInt | None = None
    """The number of hash buckets of all values, which replace the vocabulary if a column has very
    many values. Default: a vocabulary."""
    encoding: Literal["embedding", "one_hot"] | None = None
    """`embedding`: a trained vector for each value. `one_hot`: an input for each value. Default:
    depends on the model."""
    many: bool = False
    """Whether a row has several values: a list, or text with a `separator`."""
    separator: str | None = Field(default=None, min_length=1)
    """The separator, such as `;`, if a row has several values in one text."""
    max_values: PositiveInt = 10
    """The maximum number of values per row if `many` is true; further values are dropped."""
    words: int = Field(default=0, ge=0, le=1000)
    """The number of frequent words, each with an input of its own beside the category: 1 if the
    value contains the word, else 0. For values of several words that rarely occur twice, such as
    `2.0L V6 Turbo`. Default: 64 where a run finds that the words help to predict the label,
    otherwise none."""

    @model_validator(mode="after")
    def _check_words(self) -> CategoricalFeature:
        if self.words and self.many:
            raise ValueError("words: a row has one value; remove many: true, or remove words")
        return self

    @model_validator(mode="after")
    def _check_separator(self) -> CategoricalFeature:
        if self.separator is not None and not self.many:
            raise ValueError("separator: a row has one value; add many: true, or remove separator")
        return self

    @property
    def is_list(self) -> bool:
        """Whether a request contains a list: true if `many` is true and there is no `separator`."""
        return self.many and self.separator is None

    @property
    def indices_of(self) -> str:
        """The description "hash" if the values are hashed, otherwise an empty string."""
        return "hash" if self.hash_buckets else ""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the indices of the values, [batch, n] int64 each, padded with 0 if `many` is
        true; and for `words`, [batch, words] float32 each.
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
        """Returns embeddings or one-hot vectors, [batch, n, size].

        If a row has several values, the result is [batch, size]: the mean of the embeddings, or a
        multi-hot vector.
        """
        import tf_keras

        if feature.encoding == "one_hot":
            encoded = tf_keras.layers.CategoryEncoding(
                feature.vocabulary_size,
                "multi_hot" if feature.many else "one_hot",
                name=feature.layer_name("one_hot"),
            )(values)
            return encoded[:, 1:] if feature.many else encoded
        vectors = tf_keras.layers.Embedding(
            feature.vocabulary_size,
            embedding_size,
            mask_zero=feature.many,
            name=feature.layer_name("embedding"),
        )(values)
        if not feature.many:
            return vectors
        # The mask of the embedding excludes padding from the mean.
        return tf_keras.layers.GlobalAveragePooling1D(name=feature.layer_name("mean"))(vectors)


def index_categories(
    columns: Mapping[str, AnyTensor], features: Mapping[str, CategoricalFeature]
) -> dict[str, tf.Tensor]:
    """Returns the indices of the values, [batch, n] int64 each; a missing value is a category, too.

    For columns with `words` it also returns the words of the values, [batch, words] float32 each.

    Args:
      columns: the raw columns by name.
      features: the settings of the columns by name.
    """
    import tensorflow_transform as tft

    from trainer_module.features.scaling import hash_values
    from trainer_module.features.vocabularies import compute_vocabularies
    from trainer_module.features.words import word_flags

    values = {name: _read(column, features[name]) for name, column in columns.items()}
    outputs = {
        name: hash_values(value, feature.hash_buckets, PADDING if feature.many else MISSING_VALUE)
        for name, value in values.items()
        if (feature := features[name]).hash_buckets is not None
    }
    to_count = {name: value for name, value in values.items() if name not in outputs}
    orders = {
        name: ByFrequency(
            features[name].vocabulary_size, (PADDING,) if features[name].many else (), name
        )
        for name in to_count
    }
    joinable = {name: value for name, value in to_count.items() if features[name].oov_buckets == 1}
    if len(joinable) > MAX_TABLES:
        outputs |= _look_up_jointly(joinable, orders)
        to_count = {name: value for name, value in to_count.items() if name not in outputs}
    if to_count:
        paths = compute_vocabularies(to_count, orders)
        outputs |= {
            name: tft.apply_vocabulary(
                value, paths[name], num_oov_buckets=features[name].oov_buckets
            )
            for name, value in to_count.items()
        }
    return outputs | word_flags(columns, features)


def _look_up_jointly(
    columns: Mapping[str, tf.Tensor], orders: Mapping[str, ByFrequency]
) -> dict[str, tf.Tensor]:
    """Returns the indices in the vocabularies by a single lookup table of all columns.

    Each column has one out-of-vocabulary index.
    """
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
    maxima = tf.unstack(sizes, len(columns))
    outputs = {}
    # Each column has its own lookup: if all columns were one tensor, each output would depend on
    # each input.
    for index, (name, values) in enumerate(columns.items()):
        keys = tf.strings.join([joined_key(index), values])
        lines, _ = tf_utils.construct_and_lookup_table(table, path, keys)
        outputs[name] = tf.where(lines < 0, maxima[index], lines - starts[index])
        # The number of indices is read from the schema of Transform's output.
        schema_inference.set_tensor_schema_override(
            outputs[name], tf.constant(0, tf.int64), maxima[index]
        )
    return outputs


def _read(column: AnyTensor, feature: CategoricalFeature) -> tf.Tensor:
    """Returns the values of a column, [batch, n] string.

    `MISSING_VALUE` and `PADDING` replace empty strings. A space replaces line breaks, as a
    vocabulary is a file with a value in each line.
    """
    import tensorflow as tf

    from trainer_module.features.raw_columns import dense_strings, list_strings

    if not feature.many:
        values = tf.strings.regex_replace(dense_strings(column), _LINE_BREAKS, " ")
        return tf.where(values == "", MISSING_VALUE, values)
    values = list_strings(column, feature.max_values, feature.separator)
    values = tf.strings.regex_replace(values, _LINE_BREAKS, " ")
    is_missing = tf.concat([values[:, :1] == "", tf.zeros_like(values[:, 1:], tf.bool)], 1)
    return tf.where(values == "", tf.where(is_missing, MISSING_VALUE, PADDING), values)
