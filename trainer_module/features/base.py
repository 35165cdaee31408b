"""The base class of feature types: settings, transformation and encoding of a column."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainer_module.sections import Settings

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.features.transformed import TransformedFeature


BESIDE = "\x1f"
"""The separator between a column's name and the suffix of an additional tensor.

`free_name` replaces the separator with an underscore."""
MISSING_SUFFIX = f"{BESIDE}missing"
"""The suffix of the tensor that is 1 where the value of a column is missing, else 0."""
LENGTH_SUFFIX = f"{BESIDE}length"
"""The suffix of the tensor with the length of a sequence as a share of `length`, 0 to 1."""
WORDS_SUFFIX = f"{BESIDE}words"
"""The suffix of the tensor that flags the frequent words in the value of a column."""
MAX_WORDS = 30
"""The maximum number of words of a value that are compared with the frequent words; further words
are dropped."""
PACKED = f"all{BESIDE}numbers"
"""The name of the vector that combines more than `MAX_SEPARATE` numeric columns.

It contains the scaled numbers in the order of the columns' names, and then the flags of missing
values."""
GROUP = f"split{BESIDE}group"
"""The name of the tensor of `data.split_by`: rows with the same value are held out together or not
at all. Models do not read the tensor."""
TIME = f"split{BESIDE}time"
"""The name of the tensor of `data.order_by`: the held-out rows have the largest values. Models do
not read the tensor."""
SPLIT_KEYS = (GROUP, TIME)


def underscored(name: str) -> str:
    """Returns a name in which an underscore replaces `BESIDE`."""
    return name.replace(BESIDE, "_")


def free_name(name: str, taken: Collection[str]) -> str:
    """Replaces `BESIDE` by an underscore, and appends underscores until the name is unused.

    A tensor that has the name of a raw column keeps the name, even if it contains `BESIDE`; the
    name is then in `taken`.

    Args:
      name: the name of a tensor that a feature type returns.
      taken: the names of the columns, and of the tensors of other feature types.
    """
    if BESIDE not in name or name in taken:
        return name
    free = underscored(name)
    while free in taken:
        free += "_"
    return free


class BaseFeature(Settings):
    """The base class of feature types: the settings of a column, and its transformation."""

    type: str
    is_input: ClassVar[bool] = True
    """Whether the feature is an input of the model. If it is not, requests can omit the column."""
    is_column: ClassVar[bool] = True
    """Whether the feature has the name of a raw column; otherwise it combines columns under a new
    name."""
    may_mix: ClassVar[bool] = False
    """Whether a column may hold both numbers and text. If not, a mixture is an error."""
    dtype: ClassVar[str] = "float32"
    """The data type of the transformed tensor."""

    def forms(self) -> dict[str, str]:
        """Returns RE2 patterns by their description, or an empty dictionary if any value is valid.

        All values of a column must match the same pattern.
        """
        return {}

    @property
    def is_list(self) -> bool:
        """Whether a row of the column holds several values, which a request contains as a list."""
        return False

    @property
    def indices_of(self) -> str:
        """The origin of the indices if they are not from a vocabulary, such as "hash".

        It is empty if the indices have a vocabulary, or if the feature has no indices.
        """
        return ""

    def value_names(self, name: str) -> tuple[str, ...]:
        """Returns the names of the components of a feature's transformed vector, in order.

        The result is () if the components have no names.

        Args:
          name: the name of the feature.
        """
        del name
        return ()

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Returns the names of the raw columns from which the feature is computed.

        Args:
          name: the name of the feature.
        """
        return (name,)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the transformed tensors of all features of this type.

        All features are transformed together, as each analysis of Transform is costly.

        Args:
          columns: the raw columns by name: the columns in `columns_of` of each feature.
          features: the settings of the features, instances of this class, by name.

        Returns:
          Dense tensors by name, [batch, ...] each. Each feature has a tensor of its own name.
          Additional tensors have names that start with the feature's name and `BESIDE`, so that
          they differ from the names of columns.

        Raises:
          DataError: a column holds values that are invalid for the type.
        """
        raise NotImplementedError(f"{cls.__name__} is not transformed")

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether a transformed tensor can come from this type of feature.

        The declared type of a column is tried first, then all other types in order.

        Args:
          dtype: the name of the data type, such as `float32`.
          shape: the shape of one example.
          indices: the number of indices if the values are indices in a vocabulary, otherwise 0.
        """
        del dtype, shape, indices
        return False

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """Returns the feature as numbers, [batch, ...] float32.

        Models call the function if they have no layers of their own for this type of feature.

        Args:
          feature: the transformed feature.
          values: the Keras input of the feature.
          embedding_size: the value of `model.embedding_size`.
        """
        del feature, embedding_size
        return values


class IgnoredFeature(BaseFeature):
    """A column that is no input of the model, such as an identifier or a column that leaks the
    label.
    """

    type: Literal["ignore"]
    is_input: ClassVar[bool] = False
    may_mix: ClassVar[bool] = True
