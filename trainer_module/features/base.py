"""The base class of feature types: the settings, the transformation and the encoding of a
column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainer_module.sections import Settings

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.features.transformed import TransformedFeature


BESIDE = "\x1f"
"""The separator in names of additional tensors; `free_name` replaces it with an underscore."""
MISSING_SUFFIX = f"{BESIDE}missing"
"""The suffix of the 0/1 feature that flags missing values of an optional column."""
LENGTH_SUFFIX = f"{BESIDE}length"
"""The suffix of the feature that holds the filled share of a sequence, 0 to 1."""
PACKED = f"all{BESIDE}numbers"
"""The name of the vector that combines very many numeric columns: the scores in the order of the
columns' names, then the flags."""
GROUP = f"split{BESIDE}group"
"""The name of a tensor, not seen by models, by whose equal values rows stay in one part wherever
the train split is divided."""
TIME = f"split{BESIDE}time"
"""The name of a tensor, not seen by models, by which the train split is divided in time: held-out
rows are later than the rows that the model learns from."""
SPLIT_KEYS = (GROUP, TIME)


def underscored(name: str) -> str:
    """Returns a name with an underscore for `BESIDE`."""
    return name.replace(BESIDE, "_")


def free_name(name: str, taken: Collection[str]) -> str:
    """Returns a name in which underscores replace `BESIDE`, such as `age_missing`, and that is
    free.

    Args:
      name: the name of a tensor that a feature type returns.
      taken: the names of columns, and of the tensors of other types.
    """
    if BESIDE not in name or name in taken:
        return name
    free = underscored(name)
    while free in taken:
        free += "_"
    return free


class BaseFeature(Settings):
    """The base class of feature types: the settings of a column, and the computations of its
    type.
    """

    type: str
    is_input: ClassVar[bool] = True
    """Whether the model sees the column; otherwise requests can omit it."""
    is_column: ClassVar[bool] = True
    """Whether the feature has the name of a raw column; otherwise it combines columns under a new
    name."""
    may_mix: ClassVar[bool] = False
    """Whether a column may hold both numbers and text; for other types a mixture is an error."""
    dtype: ClassVar[str] = "float32"
    """The data type of the transformed tensor."""

    def forms(self) -> dict[str, str]:
        """Returns patterns (RE2) by their description; all values of the column match one of them.

        Empty if any value is valid.
        """
        return {}

    @property
    def is_list(self) -> bool:
        """Whether a row of the column holds several values, which requests send as a list."""
        return False

    @property
    def indices_of(self) -> str:
        """A description of indices that have no vocabulary, such as the buckets of a hash.

        Empty if the indices have a vocabulary, or there are none.
        """
        return ""

    def place_names(self, name: str) -> tuple[str, ...]:
        """Returns the name of each number of a feature; empty if the numbers have no names."""
        del name
        return ()

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Returns the raw columns that a feature is computed from."""
        return (name,)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Transforms all columns of the type together, as each analysis of Transform is costly.

        Args:
          columns: the raw columns by name: `columns_of` each feature.
          features: their settings, of this class, by name.

        Returns:
          Dense tensors, [batch, ...] each: one by the name of each column, and others whose names
          start with a column's name and `BESIDE`, so that they cannot collide with columns.

        Raises:
          DataError: if a column holds values that are invalid for the type.
        """
        raise NotImplementedError(f"{cls.__name__} is not transformed")

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether a transformed tensor can be of this type.

        Args:
          dtype: such as `float32`.
          shape: the shape of one example.
          indices: the number of indices, if the values are indices in a vocabulary; else 0.
        """
        del dtype, shape, indices
        return False

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """Returns the encoding for models without layers for the type: [batch, ...] float32.

        Args:
          feature: the transformed feature.
          values: its Keras input.
          embedding_size: `model.embedding_size`.
        """
        del feature, embedding_size
        return values


class IgnoredFeature(BaseFeature):
    """A column that the model does not see: an identifier, or a column that leaks the label."""

    type: Literal["ignore"]
    is_input: ClassVar[bool] = False
    may_mix: ClassVar[bool] = True
