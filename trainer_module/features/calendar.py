"""The conversion of dates to days since 1970 and to parts.

It uses only operations of TensorFlow itself, which TensorFlow Serving has, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.errors import DataError
from trainer_module.features.date_formats import MONTHS, WEEKDAYS, Form, candidates
from trainer_module.features.raw_columns import AnyTensor, dense_numbers, dense_strings
from trainer_module.features.scaling import z_scores

_FIXED_DAY = 18262.0
"""The day to which ages are measured by default: 1 January 2020, in days since 1970.

Ages of recent dates are small numbers, which float32 represents precisely."""
_DAYS_A_YEAR = 365.2425
_FIRST_OF_19XX = 69
"""The smallest two-digit year that means 19xx, as in Python; smaller years mean 20xx."""
_DEFAULTS = [["1970"], ["1"], ["1"], ["0"], ["0"], ["0"], [""], ["0"], ["0"]]
"""The defaults of the fields in the output of `Form.rewrite`, which may be empty."""


def read_texts(
    columns: Mapping[str, AnyTensor], formats: Mapping[str, str | None]
) -> dict[str, tf.Tensor]:
    """Returns the dates as days since 1970, [batch, n] float64 each.

    Missing values, and values that do not match the format, are NaN.

    Args:
      columns: the columns of dates as text, by name.
      formats: the formats by the names of the columns; a format of None is inferred from the train
        split.
    """
    if not columns:
        return {}
    texts = {name: dense_strings(column) for name, column in columns.items()}
    forms = {name: Form.parse(f) for name, f in formats.items() if f is not None}
    patterns = {name: (f.pattern, f.groups, f.rewrite) for name, f in forms.items()}
    patterns |= _find_patterns({name: texts[name] for name in texts if name not in forms})
    fields, are_dates = [], []
    for name, text in texts.items():
        pattern, groups, rewrite = patterns[name]
        are_dates.append(tf.strings.regex_full_match(text, pattern))
        csv = tf.strings.regex_replace(text, groups, rewrite, replace_global=False)
        fields.append(tf.where(are_dates[-1], csv, ";;;;;;;;"))
    days = _count_days(tf.concat(fields, 1))
    days = tf.where(tf.concat(are_dates, 1), days, tf.constant(math.nan, tf.float64))
    widths = [text.shape[1] for text in texts.values()]
    return dict(zip(texts, tf.split(days, widths, axis=1), strict=True))


def read_numbers(name: str, column: AnyTensor, per_day: float) -> tf.Tensor:
    """Returns numbers as days since 1970, [batch, n] float64, with NaN where missing.

    Args:
      name: the name of the column, for messages.
      column: the column of numbers, counted from the start of 1970.
      per_day: the number of units per day.

    Raises:
      DataError: the column holds text.
    """
    if column.dtype == tf.string:
        raise DataError(
            f"column {name!r} holds text, but features.{name}.unit applies to numbers; remove the "
            "unit, or replace it with a format, such as %d/%m/%Y."
        )
    return dense_numbers(column, tf.float64) / per_day


def make_parts(
    days: Mapping[str, tf.Tensor], references: Mapping[str, str | None]
) -> dict[str, dict[str, list[tf.Tensor]]]:
    """Returns the parts of each column, by column and part: one, two or seven tensors of [batch, n]
    float32.

    Args:
      days: the columns as days since 1970, NaN where missing.
      references: the reference column of each column, None for a fixed day.
    """
    since = {
        name: days[reference] if (reference := references[name]) else _FIXED_DAY for name in days
    }
    ages = [tf.cast(since[name] - days[name], tf.float32) for name in days]
    joined = tf.concat(list(days.values()), 1)
    missing = tf.math.is_nan(joined)
    joined = tf.where(missing, tf.zeros_like(joined), joined)
    year, others = _calendar_parts(joined)
    years = tf.where(missing, math.nan, year)
    scaled = z_scores(tf.concat([*ages, years], 1))
    age, years = tf.split(scaled, 2, axis=1)
    parts = {"age": [age], "year": [years]}
    for part, tensors in others.items():
        parts[part] = [tf.where(missing, 0.0, values) for values in tensors]
    widths = [column.shape[1] for column in days.values()]
    by_column = {
        part: [tf.split(values, widths, axis=1) for values in tensors]
        for part, tensors in parts.items()
    }
    return {
        name: {part: [values[index] for values in tensors] for part, tensors in by_column.items()}
        for index, name in enumerate(days)
    }


def _find_patterns(
    texts: Mapping[str, tf.Tensor],
) -> dict[str, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Returns the pattern, groups and rewrite of each column's date format, as strings.

    It is the format that the fewest values of the train split do not match; among equally good
    formats, the first format of `candidates`.
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
    best = tf.argmin(tf.reshape(counts, [len(texts), len(forms)]), 1)
    table = tf.constant([(form.pattern, form.groups, form.rewrite) for _, form in forms])
    rows = tf.unstack(tf.gather(table, best))
    return {name: tuple(tf.unstack(row)) for name, row in zip(texts, rows, strict=True)}


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.string)], autograph=False)
def _count_days(fields: tf.Tensor) -> tf.Tensor:
    """Returns days since 1970, [batch, n] float64, from the output of `Form.rewrite`.

    The function is a tf.function, so that its hundred operations are created once, and not in each
    graph that TensorFlow Transform traces.
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
    prefix = tf.strings.substr(tf.strings.lower(month), 0, 3)
    matches = prefix[..., tf.newaxis] == tf.constant(MONTHS)
    is_name = tf.reduce_any(matches, -1)
    from_name = tf.argmax(tf.cast(matches, tf.int32), -1) + 1
    from_digits = tf.strings.to_number(tf.where(is_name, "0", month), tf.int64)
    return tf.where(is_name, from_name, from_digits)


def _days_since_1970(year: tf.Tensor, month: tf.Tensor, day: tf.Tensor) -> tf.Tensor:
    """Returns the days since 1970 of a date.

    The algorithm is Hinnant's `days_from_civil`, in which years begin in March and eras have 400
    years: https://howardhinnant.github.io/date_algorithms.html
    """
    year -= _ones(month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    leap_days = year_of_era // 4 - year_of_era // 100
    return era * 146097 + year_of_era * 365 + leap_days + day_of_year - 719468


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float64)], autograph=False)
def _calendar_parts(days: tf.Tensor) -> tuple[tf.Tensor, dict[str, tuple[tf.Tensor, ...]]]:
    """Returns the year, the sine and cosine of month, day, day of the year and hour, and an
    indicator of each weekday.

    A linear model cannot compute the days of a weekend from one sine and one cosine. All tensors
    are [batch, n] float32. The function is a tf.function for the same reason as `_count_days`.
    """
    date = tf.cast(tf.floor(days), tf.int64)
    year, month, day = _calendar_date(date)
    day_of_year = date - _days_since_1970(year, tf.ones_like(year), tf.ones_like(year))
    turns = {
        "month": tf.cast(month - 1, tf.float64) / 12,
        "day": tf.cast(day - 1, tf.float64) / 31,
        "year_day": tf.cast(day_of_year, tf.float64) / _DAYS_A_YEAR,
        "hour": days % 1,
    }
    angles = {name: tf.cast(turn * 2 * math.pi, tf.float32) for name, turn in turns.items()}
    cyclic = {name: (tf.sin(angle), tf.cos(angle)) for name, angle in angles.items()}
    weekday = (date + 3) % 7  # 1970 began on a Thursday.
    indicators = (tf.cast(weekday == number, tf.float32) for number in range(len(WEEKDAYS)))
    return tf.cast(year, tf.float32), {**cyclic, "weekday": tuple(indicators)}


def _calendar_date(days: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns year, month and day of days since 1970; the inverse of `_days_since_1970`."""
    days += 719468
    era = days // 146097
    day_of_era = days - era * 146097
    leap_days = day_of_era // 1460 - day_of_era // 36524 + day_of_era // 146096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = (month + 2) % 12 + 1
    return year_of_era + era * 400 + _ones(month <= 2), month, day
