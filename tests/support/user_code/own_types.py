"""Feature types as a user writes them: one that is right, and some that are not."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.features.base import BaseFeature
from trainer_module.features.raw_columns import dense_strings


class Money(BaseFeature):
    """Text such as $12, in thousands."""

    rate: float = 1.0

    @classmethod
    def transform(cls, columns, features):
        """[batch, 1] float32."""
        numbers = {
            name: tf.strings.regex_replace(dense_strings(column), r"[^\d]", "")
            for name, column in columns.items()
        }
        return {
            name: tf.strings.to_number(tf.where(text == "", "0", text)) * features[name].rate / 1000
            for name, text in numbers.items()
        }


class Raising(Money):
    @classmethod
    def transform(cls, columns, features):
        raise KeyError("rates.csv")


class Worded(Money):
    @classmethod
    def transform(cls, columns, features):
        return {name: dense_strings(column) for name, column in columns.items()}


class Elsewhere(Money):
    @classmethod
    def transform(cls, columns, features):
        outputs = super().transform(columns, features)
        return {**outputs, "y": outputs["price"]}


NotAType = dict
