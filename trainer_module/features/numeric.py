"""Feature types of numbers, sequences of numbers, and booleans."""

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
from trainer_module.features.number_format import SPACE, STYLES, NumberFormat, Style

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor


class SequenceFeature(BaseFeature):
    """A list of numbers in order, scaled to mean 0 and variance 1, truncated or padded with 0.

    An additional input holds the filled share of the length.
    """

    type: Literal["sequence"]
    may_mix: ClassVar[bool] = True
    length: PositiveInt
    """The number of values that the model sees, from the first one on."""
    separator: str | None = Field(default=None, min_length=1)
    """The separator of numbers in a text, such as `;`; parts that are not numbers count as missing.
    """

    @property
    def is_list(self) -> bool:
        """Whether requests send a list: they do, unless a text holds all numbers."""
        return self.separator is None

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the scaled numbers, [batch, length] float32 each, and their lengths, [batch, 1].

        Raises:
          DataError: if a column holds text, and its settings have no separator, or the reverse.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import list_numbers
        from trainer_module.features.scaling import z_scores

        longest = max(feature.length for feature in features.values())
        padded = []
        for name, feature in features.items():
            if (columns[name].dtype == tf.string) == (feature.separator is None):
                found = "numbers" if feature.separator else "text"
                change = "remove" if feature.separator else "set"
                key = f"features.{name}.separator"
                raise DataError(f"column {name!r} holds {found}: {change} {key}.")
            numbers = list_numbers(columns[name], feature.length, feature.separator)
            gap = [[0, 0], [0, longest - feature.length]]
            padded.append(tf.pad(numbers, gap, constant_values=float("nan")))
        # One analysis scales all columns; the positions of a column are rows, with equal scaling.
        stacked = tf.reshape(tf.stack(padded, 2), [-1, len(padded)])
        scores = tf.reshape(z_scores(stacked), [-1, longest, len(padded)])
        outputs = {}
        for place, (name, feature) in enumerate(features.items()):
            outputs[name] = scores[:, : feature.length, place]
            present = tf.cast(~tf.math.is_nan(padded[place]), tf.float32)
            share = tf.reduce_sum(present, 1, keepdims=True) / feature.length
            outputs[name + LENGTH_SUFFIX] = share
        return outputs


MAX_SEPARATE = 200
"""The most numeric columns that stay separate tensors; more are combined into one vector.

TensorFlow Transform traverses each pair of an input and an output, which takes hours for thousands
of both."""

Finite = Annotated[float, AllowInfNan(False)]


def packed_places(
    features: Mapping[str, NumericFeature], widths: Mapping[str, int], with_gaps: Collection[str]
) -> tuple[str, ...]:
    """Returns the names of the numbers in the vector `PACKED`.

    Args:
      features: all numeric columns by name.
      widths: the number of values per row of each column.
      with_gaps: the columns that had missing values in the first data.
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
    """A number, scaled to mean 0 and variance 1; missing values become the mean.

    If the first data had missing values, an additional input flags them.
    """

    type: Literal["numeric"]
    scaling: Literal["z_score", "min_max", "log", "robust", "quantiles", "none"] = "z_score"
    """The scaling. `z_score`: to mean 0 and variance 1; `min_max`: to 0..1; `log`: the logarithm of
    1 plus the magnitude, with the number's sign, then to mean 0 and variance 1; `robust`: median
    and quartiles to 0, -0.5 and 0.5; `quantiles`: the rank among the train split's values, to mean
    0 and variance 1; `none`: no scaling."""
    buckets: int | None = Field(default=None, ge=2, le=100)
    """The number of quantile buckets, which make the number a category, with another one for
    missing values. Default: none."""
    clip: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    """The lowest and the highest value; values beyond are clipped before scaling."""
    fill: Literal["mean", "median", "zero"] | Finite = "mean"
    """The value that replaces missing ones, before scaling."""
    written: Style | None = None
    """The number format of text: `point` as in 1,234.5, `comma` as in 1.234,5, `clock` as in
    18:30:05, in hours. Spaces may separate thousands, too, parentheses mark negative numbers, and
    k, m or b may follow. Other texts count as missing."""
    unit: str | None = Field(default=None, min_length=1)
    """The only text that may stand beside each number, such as $, % or kg."""

    @model_validator(mode="after")
    def _agrees(self) -> NumericFeature:
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            raise ValueError(f"clip: {self.clip[0]:g} is no lower than the highest value")
        if self.unit is not None and self.written in (None, "clock"):
            raise ValueError("unit needs numbers in text, with `written: point` or `comma`")
        if self.buckets is not None and (self.scaling, self.fill) != ("z_score", "mean"):
            raise ValueError(
                "buckets exclude scaling and fill, as missing numbers have their own bucket; "
                "remove those"
            )
        return self

    def forms(self) -> dict[str, str]:
        """Returns the pattern of the number format, if the column is text."""
        if self.written is None:
            return {}
        beside = f" {self.unit}" if self.unit else ""
        return {
            f"{STYLES[self.written]}{beside}": NumberFormat(self.written, self.unit or "").pattern
        }

    @property
    def is_plain(self) -> bool:
        """Whether the feature is a z-score, possibly of the logarithm, whose missing values become
        the mean.
        """
        is_score = self.scaling in ("z_score", "log") and self.fill == "mean"
        return is_score and self.buckets is None

    @property
    def indices_of(self) -> str:
        """A description of the indices: ranges, if the feature has buckets."""
        return "ranges" if self.buckets else ""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the numbers, [batch, n] float32 each, with flags of optional columns; int64 for
        buckets.

        More than `MAX_SEPARATE` columns of z-scores become one tensor, `PACKED`.

        Raises:
          DataError: if a column holds text.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import flag_missing
        from trainer_module.features.scaling import clip_and_log, scale, z_scores

        dense = {name: _read(name, columns[name], features[name]) for name in sorted(features)}
        flags = [
            flag_missing(name, columns[name], tf.math.is_nan(numbers))
            for name, numbers in dense.items()
            if features[name].buckets is None
        ]
        clipped = {name: clip_and_log(numbers, features[name]) for name, numbers in dense.items()}
        plain = {name: numbers for name, numbers in clipped.items() if features[name].is_plain}
        outputs = scale({n: clipped[n] for n in clipped.keys() - plain.keys()}, features)
        if plain:
            # One joint analysis of all columns takes a fraction of the time of one per column.
            scores = z_scores(tf.concat(list(plain.values()), 1))
            if len(plain) > MAX_SEPARATE:
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
        """Returns whether a tensor is float32 and no image."""
        del indices
        return dtype == cls.dtype and len(shape) != 3


def _read(name: str, column: AnyTensor, feature: NumericFeature) -> tf.Tensor:
    """Returns the numbers of a column, [batch, n] float32, NaN where missing."""
    import tensorflow as tf

    from trainer_module.features.raw_columns import dense_numbers, dense_strings, parse_numbers

    if column.dtype != tf.string:
        return dense_numbers(column)
    if feature.written is None:
        raise DataError(
            f"column {name!r} holds text or no value, and cannot be numeric; use "
            "type: categorical or ignore, or written: point for numbers such as '$1,234.50'."
        )
    return parse_numbers(dense_strings(column), NumberFormat(feature.written, feature.unit or ""))


YES = ("true", "yes", "t", "y", "1", "on")
NO = ("false", "no", "f", "n", "0", "off")
"""The words for true and for false, in lower case."""


class BooleanFeature(BaseFeature):
    """True or false, yes or no, t or f, y or n, 1 or 0, on or off, in upper or lower case: 1 or -1.

    Missing values are 0; if the first data had missing values, an additional input flags them.
    """

    type: Literal["boolean"]
    may_mix: ClassVar[bool] = True

    def forms(self) -> dict[str, str]:
        """Returns the pattern of the words for true and false."""
        return {"true or false, yes or no, 1 or 0": _pattern((*YES, *NO))}

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns 1, -1 or 0, [batch, n] float32, and flags of optional columns; other words count
        as missing.
        """
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
