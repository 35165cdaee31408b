"""What every feature type declares and does: its settings, its part of Transform and of a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainer_module.sections import Settings

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.features.transformed import TransformedFeature


BESIDE = "\x1f"
"""Stands in such a name where `free_name` puts an underscore."""
MISSING_SUFFIX = f"{BESIDE}missing"
"""Ends the name of the 0/1 feature that flags a missing value of an optional column."""
LENGTH_SUFFIX = f"{BESIDE}length"
"""Ends the name of the feature that says how full a sequence is, 0 to 1."""
PACKED = f"all{BESIDE}numbers"
"""The name of the vector of very many numbers: scores in the order of the columns' names, then the
flags."""
GROUP = f"split{BESIDE}group"
"""The name of a tensor that no model sees: rows of which it is equal are on one side wherever the
train split is divided."""
TIME = f"split{BESIDE}time"
"""Likewise: what is chosen is chosen by later rows than are learnt from."""
ASIDE = (GROUP, TIME)


def underscored(name: str) -> str:
    """Returns a name with an underscore for `BESIDE`, as it is where no column is called so."""
    return name.replace(BESIDE, "_")


def free_name(name: str, taken: Collection[str]) -> str:
    """Returns a name with `BESIDE`, such as `age_missing`, as no column has it: with underscores
    after it.

    Args:
      name: of what a feature type gives.
      taken: the names of columns and of what other types gave.
    """
    if BESIDE not in name or name in taken:
        return name
    free = underscored(name)
    while free in taken:
        free += "_"
    return free


class BaseFeature(Settings):
    """The settings of a column, and what its type makes of it."""

    type: str
    is_input: ClassVar[bool] = True
    """Whether the model sees the column; if not, no request has to bring it."""
    is_column: ClassVar[bool] = True
    """Whether it has the name of a raw column; if not, it is made of others under a new name."""
    may_mix: ClassVar[bool] = False
    """Whether a column may hold both numbers and text, which is else taken for an error."""
    dtype: ClassVar[str] = "float32"
    """Of the transformed tensor."""

    def forms(self) -> dict[str, str]:
        """Patterns (RE2) by what people call them: all values of the column match one of them.

        None where any value will do.
        """
        return {}

    @property
    def is_list(self) -> bool:
        """Whether a row of the column holds several values, as a request has to bring them."""
        return False

    @property
    def indices_of(self) -> str:
        """What indices count, such as the buckets of a hash, where their number alone tells.

        Empty where they are those of a vocabulary, or there are none.
        """
        return ""

    def place_names(self, name: str) -> tuple[str, ...]:
        """What people call each number of a feature; none where they count up."""
        del name
        return ()

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Returns the raw columns that the feature of a name is made of."""
        return (name,)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Transforms all columns of the type, side by side: what Transform analyses costs by pass.

        Args:
          columns: raw, by name: `columns_of` each feature.
          features: their settings, of this class, by name.

        Returns:
          Dense tensors, [batch, ...] each: one by the name of each column, and others by names
          that begin with it and have `BESIDE` next, so that no column is called so.

        Raises:
          DataError: if a column holds what the type cannot use.
        """
        raise NotImplementedError(f"{cls.__name__} is not transformed")

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether a transformed tensor can be one of this type.

        Args:
          dtype: such as `float32`.
          shape: of one example.
          indices: how many values it can have, where they are indices in a vocabulary; else 0.
        """
        del dtype, shape, indices
        return False

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """What a model sees that has no layers of its own for the type: [batch, ...] float32.

        Args:
          feature: the transformed one.
          values: its Keras input.
          embedding_size: `model.embedding_size`.
        """
        del feature, embedding_size
        return values


class IgnoredFeature(BaseFeature):
    """A column that the model must not see: an identifier, or one that gives the answer away."""

    type: Literal["ignore"]
    is_input: ClassVar[bool] = False
    may_mix: ClassVar[bool] = True
