"""The feature types `numeric`, `sequence` and `boolean`."""

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
    """An ordered list of numbers, scaled to mean 0 and variance 1, and truncated or padded with 0.

    An additional input is the length of the list as a share of `length`.
    """

    type: Literal["sequence"]
    may_mix: ClassVar[bool] = True
    length: PositiveInt
    """The length of the model's input: longer lists are truncated after this number of values."""
    separator: str | None = Field(default=None, min_length=1)
    """The separator if the numbers of a row are one string, such as `;` for `1;2;3`. Parts of the
    string that are not numbers count as missing. Default: the column contains lists."""

    @property
    def is_list(self) -> bool:
        """Whether a request contains a list: true without a `separator`."""
        return self.separator is None

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the scaled numbers, [batch, length] float32 each, and the filled shares, [batch,
        1] each.

        Raises:
          DataError: a column of strings has no `separator`, or a column of numbers has one.
        """
        import tensorflow as tf

        from trainer_module.features.raw_columns import list_numbers
        from trainer_module.features.scaling import z_scores

        longest = max(feature.length for feature in features.values())
        padded = []
        for name, feature in features.items():
            if (columns[name].dtype == tf.string) == (feature.separator is None):
                content = "numbers" if feature.separator else "text"
                change = "remove" if feature.separator else "set"
                key = f"features.{name}.separator"
                raise DataError(f"column {name!r} holds {content}: {change} {key}.")
            numbers = list_numbers(columns[name], feature.length, feature.separator)
            gap = [[0, 0], [0, longest - feature.length]]
            padded.append(tf.pad(numbers, gap, constant_values=float("nan")))
        # One analysis scales all columns. All positions of a column have the same scaling, so they
        # are stacked as rows.
        stacked = tf.reshape(tf.stack(padded, 2), [-1, len(padded)])
        scores = tf.reshape(z_scores(stacked), [-1, longest, len(padded)])
        outputs = {}
        for index, (name, feature) in enumerate(features.items()):
            outputs[name] = scores[:, : feature.length, index]
            present = tf.cast(~tf.math.is_nan(padded[index]), tf.float32)
            share = tf.reduce_sum(present, 1, keepdims=True) / feature.length
            outputs[name + LENGTH_SUFFIX] = share
        return outputs


MAX_SEPARATE = 200
"""The maximum number of numeric columns that are separate tensors; more columns become one vector.

TensorFlow Transform traverses each pair of an input and an output, which takes hours for thousands
of inputs and outputs."""

Finite = Annotated[float, AllowInfNan(False)]


def packed_places(
    features: Mapping[str, NumericFeature], widths: Mapping[str, int], optional: Collection[str]
) -> tuple[str, ...]:
    """Returns the names of the numbers in the vector `PACKED`.

    Args:
      features: the settings of all numeric columns by name.
      widths: the number of values per row of each column.
      optional: the columns that had missing values when the schema was inferred.
    """
    plain = [name for name in sorted(features) if features[name].is_plain]
    flagged = [n for n in sorted(features) if n in optional and features[n].buckets is None]
    labels = {name: name for name in plain} | {name + MISSING_SUFFIX: name for name in flagged}
    return tuple(
        underscored(label) + (f"[{i}]" if widths[column] > 1 else "")
        for label, column in labels.items()
        for i in range(widths[column])
    )


class NumericFeature(BaseFeature):
    """A number, scaled to mean 0 and variance 1. Missing values become the mean.

    If the data from which the schema was inferred has missing values, an additional input flags
    missing values.
    """

    type: Literal["numeric"]
    scaling: Literal["z_score", "min_max", "log", "robust", "quantiles", "none"] = "z_score"
    """The scaling. `z_score`: to mean 0 and variance 1. `min_max`: to 0..1. `log`: the logarithm of
    1 plus the magnitude, with the sign of the number, then to mean 0 and variance 1. `robust`: the
    median becomes 0, and the quartiles differ by 1. `quantiles`: the rank among the values of the
    train split, scaled to mean 0 and variance 1. `none`: no scaling."""
    buckets: int | None = Field(default=None, ge=2, le=100)
    """The number of quantile buckets, which make the number a category. Missing values get an
    additional bucket. Default: no buckets."""
    clip: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    """The lowest and the highest value, to which lower and higher values are clipped before
    scaling. Default: no limits."""
    fill: Literal["mean", "median", "zero"] | Finite = "mean"
    """The value that replaces missing values before scaling."""
    written: Style | None = None
    """The number format, if the column is text: `point` as in 1,234.5, `comma` as in 1.234,5,
    `clock` as in 18:30:05, which is read in hours. Thousands can also be separated by spaces,
    negative numbers can be in parentheses, and k, m or b can follow a number. Other text counts as
    missing."""
    unit: str | None = Field(default=None, min_length=1)
    """The only text that may precede or follow each number, such as $, % or kg."""

    @model_validator(mode="after")
    def _check_keys(self) -> NumericFeature:
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            low, high = self.clip
            raise ValueError(
                f"clip: the lowest value ({low:g}) must be less than the highest ({high:g})"
            )
        if self.unit is not None and self.written in (None, "clock"):
            raise ValueError("unit: add `written: point` or `written: comma`, or remove unit")
        if self.buckets is not None and (self.scaling, self.fill) != ("z_score", "mean"):
            raise ValueError(
                "buckets: a number in buckets is not scaled, and missing values have their own "
                "bucket; remove scaling and fill"
            )
        return self

    def forms(self) -> dict[str, str]:
        """Returns the pattern of the number format, or {} if the column is not text."""
        if self.written is None:
            return {}
        unit = f" {self.unit}" if self.unit else ""
        return {
            f"{STYLES[self.written]}{unit}": NumberFormat(self.written, self.unit or "").pattern
        }

    @property
    def is_plain(self) -> bool:
        """Whether the feature is a z-score, of the number or its logarithm, and missing values
        become the mean.
        """
        is_score = self.scaling in ("z_score", "log") and self.fill == "mean"
        return is_score and self.buckets is None

    @property
    def indices_of(self) -> str:
        """The description "ranges" if the feature has buckets, otherwise an empty string."""
        return "ranges" if self.buckets else ""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the scaled numbers, [batch, n] float32 each, or the buckets, [batch, n] int64
        each.

        Optional columns also have flags of missing values. If more than `MAX_SEPARATE` columns are
        `is_plain`, they become one tensor, `PACKED`.

        Raises:
          DataError: a column holds text, and its settings have no `written`.
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
            # A joint analysis takes a fraction of the time of an analysis per column.
            scores = z_scores(tf.concat(list(plain.values()), 1))
            if len(plain) > MAX_SEPARATE:
                outputs[PACKED] = scores
            else:
                widths = [numbers.shape[1] for numbers in plain.values()]
                outputs |= dict(zip(plain, tf.split(scores, widths, axis=1), strict=True))
        all_flags = {name: flag for column in flags for name, flag in column.items()}
        if PACKED in outputs:
            return outputs | {PACKED: tf.concat([outputs[PACKED], *all_flags.values()], 1)}
        return outputs | all_flags

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether a tensor is float32 and not an image."""
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
            f"column {name!r} holds text or no value, and cannot be numeric; set type: categorical "
            "or type: ignore, or for numbers such as '$1,234.50' add written: point."
        )
    return parse_numbers(dense_strings(column), NumberFormat(feature.written, feature.unit or ""))


YES = ("true", "yes", "t", "y", "1", "on")
"""The words for true, in lower case."""
NO = ("false", "no", "f", "n", "0", "off")
"""The words for false, in lower case."""


class BooleanFeature(BaseFeature):
    """A boolean, which becomes 1 or -1: true or false, yes or no, t or f, y or n, 1 or 0, on or
    off, in upper or lower case.

    Missing values become 0. If the data from which the schema was inferred has missing values, an
    additional input flags missing values.
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
        """Returns 1, -1, or 0 for a missing value and for other words: [batch, n] float32 each.

        Optional columns also have flags of missing values.
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
