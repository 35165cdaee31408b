"""Crosses: what columns say together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from trainer_module.features.base import BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor

_BETWEEN = "\x1f"
"""Keeps the values of a row apart."""


class CrossFeature(BaseFeature):
    """The values of several columns as one category, under a name that no column has."""

    type: Literal["cross"]
    is_column: ClassVar[bool] = False
    dtype: ClassVar[str] = "int64"
    of: Annotated[list[str], Field(min_length=2)]
    """The columns: text, whole numbers or both. They may be ignored for themselves."""
    hash_buckets: PositiveInt = 1000
    """Combinations are hashed into this many indices."""

    @property
    def indices_of(self) -> str:
        """Those of the hash of these columns."""
        return f"hash of {', '.join(self.of)}"

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Those that are crossed."""
        del name
        return tuple(self.of)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, 1] int64 each."""
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
