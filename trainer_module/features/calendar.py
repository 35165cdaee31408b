"""The conversion of dates to days since 1970 and to parts, in operations that any server has."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.errors import DataError
from trainer_module.features.date_formats import MONTHS, Form, candidates
from trainer_module.features.raw_columns import AnyTensor, dense_numbers, dense_strings
from trainer_module.features.scaling import z_scores

_FIXED_DAY = 18262.0
"""The day 1 January 2020, a near origin that preserves the precision of float32."""
_FIRST_OF_19XX = 69
"""The first two-digit year of the last century, as in Python."""
_DEFAULTS = [["1970"], ["1"], ["1"], ["0"], ["0"], ["0"], [""], ["0"], ["0"]]
"""The defaults of fields that a time or a layout may lack."""


def read_texts(
    columns: Mapping[str, AnyTensor], formats: Mapping[str, str | None]
) -> dict[str, tf.Tensor]:
    """Returns days since 1970, [batch, n] float64 each; NaN where missing, or not of the format.

    Args:
      columns: dates as text.
      formats: by the same names; None is inferred from the train split.
    """
    if not columns:
        return {}
    texts = {name: dense_strings(column) for name, column in columns.items()}
    known = {name: Form.parse(f) for name, f in formats.items() if f is not None}
    patterns = {name: (f.pattern, f.groups, f.rewrite) for name, f in known.items()}
    patterns |= _find_patterns({name: texts[name] for name in texts if name not in known})
    fields, are_dates = [], []
    for name, text in texts.items():
        pattern, groups, rewrite = patterns[name]
        are_dates.append(tf.strings.regex_full_match(text, pattern))
        ordered = tf.strings.regex_replace(text, groups, rewrite, replace_global=False)
        fields.append(tf.where(are_dates[-1], ordered, ";;;;;;;;"))
    days = _count_days(tf.concat(fields, 1))
    days = tf.where(tf.concat(are_dates, 1), days, tf.constant(math.nan, tf.float64))
    widths = [text.shape[1] for text in texts.values()]
    return dict(zip(texts, tf.split(days, widths, axis=1), strict=True))


def read_numbers(name: str, column: AnyTensor, per_day: float) -> tf.Tensor:
    """Returns days since 1970, [batch, n] float64; NaN where missing.

    Raises:
      DataError: if the column holds text.
    """
    if column.dtype == tf.string:
        raise DataError(
            f"column {name!r} holds text, but features.{name}.unit applies to numbers; remove it, "
            "or set a format, such as %d/%m/%Y."
        )
    return dense_numbers(column, tf.float64) / per_day


def make_parts(
    days: Mapping[str, tf.Tensor], references: Mapping[str, str | None]
) -> dict[str, dict[str, list[tf.Tensor]]]:
    """Returns the parts of each column by name, each one or two tensors of [batch, n] float32.

    Args:
      days: days since 1970, NaN where missing.
      references: by column, the reference column of its age.
    """
    since = {
        name: days[reference] if (reference := references[name]) else _FIXED_DAY for name in days
    }
    ages = [tf.cast(since[name] - days[name], tf.float32) for name in days]
    joined = tf.concat(list(days.values()), 1)
    missing = tf.math.is_nan(joined)
    joined = tf.where(missing, tf.zeros_like(joined), joined)
    year, turns = _turn(joined)
    years = tf.where(missing, math.nan, year)
    scaled = z_scores(tf.concat([*ages, years], 1))
    age, years = tf.split(scaled, 2, axis=1)
    parts = {"age": [age], "year": [years]}
    for name, places in turns.items():
        parts[name] = [tf.where(missing, 0.0, place) for place in places]
    widths = [column.shape[1] for column in days.values()]
    split = {
        part: [tf.split(values, widths, axis=1) for values in both] for part, both in parts.items()
    }
    return {
        name: {part: [values[place] for values in both] for part, both in split.items()}
        for place, name in enumerate(days)
    }


def _find_patterns(
    texts: Mapping[str, tf.Tensor],
) -> dict[str, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Returns by column the patterns of the form that most values of the train split match.

    Ties go to the first form; spans may have different formats.
    """
    if not texts:
        return {}
    forms = candidates()
    misfits = [
        tf.reduce_any(~tf.strings.regex_full_match(text, pattern) & (text != ""), 1)
        for text in texts.values()
        for pattern, _ in forms
    ]
    counts = tft.sum(tf.cast(tf.stack(misfits, 1), tf.int64), reduce_instance_dims=False)
    chosen = tf.argmin(tf.reshape(counts, [len(texts), len(forms)]), 1)
    table = tf.constant([(form.pattern, form.groups, form.rewrite) for _, form in forms])
    rows = tf.unstack(tf.gather(table, chosen))
    return {name: tuple(tf.unstack(row)) for name, row in zip(texts, rows, strict=True)}


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.string)], autograph=False)
def _count_days(fields: tf.Tensor) -> tf.Tensor:
    """Returns days since 1970, [batch, n] float64, from the output of `Form.rewrite`.

    As a tf.function its hundred operations are created once, and not in each of the graphs that
    TensorFlow Transform traces.
    """
    year, month, day, hour, minute, second, half, zone, zone_minute = tf.io.decode_csv(
        fields, _DEFAULTS, field_delim=";"
    )
    numbers = [tf.strings.to_number(field, tf.int64) for field in (year, day, hour, minute)]
    year, day, hour, minute = numbers
    year += tf.where(year < _FIRST_OF_19XX, _integer(2000), _integer(1900)) * _ones(year < 100)
    half = tf.strings.lower(half)
    hour += 12 * (_ones((half == "p") & (hour < 12)) - _ones((half == "a") & (hour == 12)))
    offset = tf.strings.to_number(zone, tf.int64) * 60
    zone_minute = tf.strings.to_number(zone_minute, tf.int64)
    offset += tf.where(tf.strings.regex_full_match(zone, "-.*"), -zone_minute, zone_minute)
    minutes = tf.cast(hour * 60 + minute - offset, tf.float64)
    second = tf.strings.regex_replace(second, ",", ".")
    seconds = minutes * 60 + tf.strings.to_number(second, tf.float64)
    return tf.cast(_days_since_1970(year, _month_number(month), day), tf.float64) + seconds / 86400


def _integer(value: int) -> tf.Tensor:
    return tf.constant(value, tf.int64)


def _ones(condition: tf.Tensor) -> tf.Tensor:
    """Returns 1 where a condition holds, 0 elsewhere."""
    return tf.cast(condition, tf.int64)


def _month_number(month: tf.Tensor) -> tf.Tensor:
    """Returns the number of a month, int64, from a number or a name."""
    begins = tf.strings.substr(tf.strings.lower(month), 0, 3)
    is_name = begins[..., tf.newaxis] == tf.constant(MONTHS)
    named = tf.argmax(tf.cast(is_name, tf.int32), -1) + 1
    has_name = tf.reduce_any(is_name, -1)
    return tf.where(has_name, named, tf.strings.to_number(tf.where(has_name, "0", month), tf.int64))


def _days_since_1970(year: tf.Tensor, month: tf.Tensor, day: tf.Tensor) -> tf.Tensor:
    """Returns days since 1970 of a date: Hinnant's `days_from_civil`, with years that begin in
    March.

    https://howardhinnant.github.io/date_algorithms.html
    """
    year -= _ones(month <= 2)
    century = year // 400
    of_century = year - century * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    leaps = of_century // 4 - of_century // 100
    return century * 146097 + of_century * 365 + leaps + of_year - 719468


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float64)], autograph=False)
def _turn(days: tf.Tensor) -> tuple[tf.Tensor, dict[str, tuple[tf.Tensor, tf.Tensor]]]:
    """Returns the year, and sine and cosine of the cyclic parts month, day, weekday and hour.

    All are [batch, n] float32; a tf.function for the reason of `_count_days`.
    """
    year, month, day = _calendar_date(tf.cast(tf.floor(days), tf.int64))
    turns = {
        "month": tf.cast(month - 1, tf.float64) / 12,
        "day": tf.cast(day - 1, tf.float64) / 31,
        "weekday": (tf.floor(days) + 3) % 7 / 7,  # 1970 began on a Thursday.
        "hour": days % 1,
    }
    angles = {name: tf.cast(turn * 2 * math.pi, tf.float32) for name, turn in turns.items()}
    places = {name: (tf.sin(angle), tf.cos(angle)) for name, angle in angles.items()}
    return tf.cast(year, tf.float32), places


def _calendar_date(days: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns year, month and day of days since 1970; the inverse of `_days_since_1970`."""
    days += 719468
    century = days // 146097
    of_century = days - century * 146097
    leaps = of_century // 1460 - of_century // 36524 + of_century // 146096
    year = (of_century - leaps) // 365
    of_year = of_century - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = (month + 2) % 12 + 1
    return year + century * 400 + _ones(month <= 2), month, day
