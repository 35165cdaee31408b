"""Numbers, sequences of them, and yes and no: scaled, or as the config asks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AllowInfNan, Field, PositiveInt, model_validator

from trainer_module.errors import DataError
from trainer_module.features.base import (
    LENGTH_SUFFIX,
    MISSING_SUFFIX,
    PACKED,
    BaseFeature,
    underscored,
)
from trainer_module.features.number_format import SPACE, STYLES, Style, Writing

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor


class SequenceFeature(BaseFeature):
    """A list of numbers in order: scaled to mean 0 and variance 1, cut or filled up with 0.

    Another input says which share of the length it has.
    """

    type: Literal["sequence"]
    may_mix: ClassVar[bool] = True
    length: PositiveInt
    """How many numbers the model sees, from the first one on."""
    separator: str | None = Field(default=None, min_length=1)
    """Stands between the numbers of a text, such as `;`; what is no number counts as missing."""

    @property
    def is_list(self) -> bool:
        """Unless a text holds all of them."""
        return self.separator is None

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, length] float32 each, and their lengths, [batch, 1].

        Raises:
          DataError: if a column holds text, and its settings have no separator.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import list_numbers
        from trainer_module.features.scaling import z_scores

        longest = max(feature.length for feature in features.values())
        padded = []
        for name, feature in features.items():
            if (columns[name].dtype == tf.string) == (feature.separator is None):
                found = "numbers" if feature.separator else "text"
                change = "leave out" if feature.separator else "name what separates its numbers by"
                raise DataError(f"column {name!r} holds {found}: {change} its key separator.")
            numbers = list_numbers(columns[name], feature.length, feature.separator)
            gap = [[0, 0], [0, longest - feature.length]]
            padded.append(tf.pad(numbers, gap, constant_values=float("nan")))
        # All places of a column are scaled alike: they are rows of one analysis of all columns.
        stacked = tf.reshape(tf.stack(padded, 2), [-1, len(padded)])
        scores = tf.reshape(z_scores(stacked), [-1, longest, len(padded)])
        outputs = {}
        for place, (name, feature) in enumerate(features.items()):
            outputs[name] = scores[:, : feature.length, place]
            present = tf.cast(~tf.math.is_nan(padded[place]), tf.float32)
            share = tf.reduce_sum(present, 1, keepdims=True) / feature.length
            outputs[name + LENGTH_SUFFIX] = share
        return outputs


MOST_SEPARATE = 200
"""Of more columns of numbers one vector is made: TensorFlow Transform looks at each pair of what
goes in and what comes out, which takes hours for thousands of both."""

Finite = Annotated[float, AllowInfNan(False)]


def packed_places(
    features: Mapping[str, NumericFeature], widths: Mapping[str, int], with_gaps: Collection[str]
) -> tuple[str, ...]:
    """What the numbers of the vector `PACKED` are called.

    Args:
      features: all columns of numbers, by name.
      widths: how many numbers a row of each has.
      with_gaps: the columns that had gaps in the first data.
    """
    plain = [name for name in sorted(features) if features[name].is_plain]
    flagged = [n for n in sorted(features) if n in with_gaps and features[n].buckets is None]
    places = [*plain, *(name + MISSING_SUFFIX for name in flagged)]
    of = [*plain, *flagged]
    return tuple(
        underscored(label) + (f"[{i}]" if widths[name] > 1 else "")
        for label, name in zip(places, of, strict=True)
        for i in range(widths[name])
    )


class NumericFeature(BaseFeature):
    """A number: scaled to mean 0 and variance 1; a missing one becomes the mean.

    Where the first data had gaps, another input flags them.
    """

    type: Literal["numeric"]
    scaling: Literal["z_score", "min_max", "log", "robust", "quantiles", "none"] = "z_score"
    """To mean 0 and variance 1; to 0..1; the logarithm (with its sign, of 1 more) to mean 0 and
    variance 1; median and quartiles to 0, -0.5 and 0.5; the rank among the train split's values to
    mean 0 and variance 1; or not at all."""
    buckets: int | None = Field(default=None, ge=2, le=100)
    """Makes it a category: as many ranges, each of as many rows, and another for missing ones."""
    clip: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    """The lowest and the highest value; what is beyond becomes them, before it is scaled."""
    fill: Literal["mean", "median", "zero"] | Finite = "mean"
    """What a missing number becomes, before it is scaled."""
    written: Style | None = None
    """How numbers are written in text: `point` as in 1,234.5, `comma` as in 1.234,5, `clock` as in
    18:30:05, which are hours. Thousands may be apart by spaces, too, negative ones in parentheses,
    and k, m or b follow. What is not so written is missing."""
    unit: str | None = Field(default=None, min_length=1)
    """What may stand beside each number in text, such as $, % or kg; nothing else may."""

    @model_validator(mode="after")
    def _agrees(self) -> NumericFeature:
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            raise ValueError(f"clip: {self.clip[0]:g} is no lower than the highest value")
        if self.unit is not None and self.written in (None, "clock"):
            raise ValueError("unit: only of numbers in text, written: point or comma")
        if self.buckets is not None and (self.scaling, self.fill) != ("z_score", "mean"):
            raise ValueError(
                "buckets have no scale, and one for missing numbers; leave out the rest"
            )
        return self

    def forms(self) -> dict[str, str]:
        """Returns the way in which numbers are written as text."""
        if self.written is None:
            return {}
        beside = f" {self.unit}" if self.unit else ""
        return {f"{STYLES[self.written]}{beside}": Writing(self.written, self.unit or "").pattern}

    @property
    def is_plain(self) -> bool:
        """Whether it is a z-score, of its logarithm perhaps, with the mean where it is missing."""
        is_score = self.scaling in ("z_score", "log") and self.fill == "mean"
        return is_score and self.buckets is None

    @property
    def indices_of(self) -> str:
        """Ranges, if it is made a category."""
        return "ranges" if self.buckets else ""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, n] float32 each, and the flags of optional columns; [batch, n] int64 of buckets.

        More than `MOST_SEPARATE` columns of z-scores become one tensor, `PACKED`.

        Raises:
          DataError: if a column holds text.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import flag_missing
        from trainer_module.features.scaling import bend, scale, z_scores

        dense = {name: _read(name, columns[name], features[name]) for name in sorted(features)}
        flags = [
            flag_missing(name, columns[name], tf.math.is_nan(numbers))
            for name, numbers in dense.items()
            if features[name].buckets is None
        ]
        bent = {name: bend(numbers, features[name]) for name, numbers in dense.items()}
        plain = {name: numbers for name, numbers in bent.items() if features[name].is_plain}
        outputs = scale({n: bent[n] for n in bent.keys() - plain.keys()}, features)
        if plain:
            # One analysis of all columns side by side takes a fraction of that of one for each.
            scores = z_scores(tf.concat(list(plain.values()), 1))
            if len(plain) > MOST_SEPARATE:
                outputs[PACKED] = scores
            else:
                widths = [numbers.shape[1] for numbers in plain.values()]
                outputs |= dict(zip(plain, tf.split(scores, widths, axis=1), strict=True))
        named = {name: flag for by_name in flags for name, flag in by_name.items()}
        if PACKED in outputs:
            return outputs | {PACKED: tf.concat([outputs[PACKED], *named.values()], 1)}
        return outputs | named

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Whatever number is no image."""
        del indices
        return dtype == cls.dtype and len(shape) != 3


def _read(name: str, column: AnyTensor, feature: NumericFeature) -> tf.Tensor:
    """[batch, n] float32, NaN where missing."""
    import tensorflow as tf

    from trainer_module.features.raw_columns import dense_numbers, dense_strings, written_numbers

    if column.dtype != tf.string:
        return dense_numbers(column)
    if feature.written is None:
        raise DataError(
            f"column {name!r} holds text, or nothing at all, and cannot be numeric; use "
            "type: categorical or ignore, or written: point for numbers such as '$1,234.50'."
        )
    return written_numbers(dense_strings(column), Writing(feature.written, feature.unit or ""))


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
