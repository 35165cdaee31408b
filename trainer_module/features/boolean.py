"""Yes or no, however it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainer_module.features.base import BaseFeature
from trainer_module.features.number_format import SPACE

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor

YES = ("true", "yes", "t", "y", "1", "on")
NO = ("false", "no", "f", "n", "0", "off")
"""What means either, in any case."""


class BooleanFeature(BaseFeature):
    """True or false, yes or no, t or f, y or n, 1 or 0, on or off, in any case: 1 or -1.

    A missing one is 0; where the first data had gaps, another input flags them.
    """

    type: Literal["boolean"]
    may_mix: ClassVar[bool] = True

    def forms(self) -> dict[str, str]:
        """Those words."""
        return {"true or false, yes or no, 1 or 0": _pattern((*YES, *NO))}

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, n] float32 each, and the flags of optional columns; other words are missing."""
        import tensorflow as tf

        from trainer_module.features.raw_columns import dense_strings, flag_missing

        del features
        outputs = {}
        for name, column in columns.items():
            text = dense_strings(column)
            yes = tf.cast(tf.strings.regex_full_match(text, _pattern(YES)), tf.float32)
            no = tf.cast(tf.strings.regex_full_match(text, _pattern(NO)), tf.float32)
            outputs[name] = yes - no
            outputs |= flag_missing(name, column, outputs[name] == 0)
        return outputs


def _pattern(words: tuple[str, ...]) -> str:
    return rf"(?i){SPACE}*(?:{'|'.join(words)}){SPACE}*"
