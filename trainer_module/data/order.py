"""Orders rows by numbers or by dates and times, and samples rows evenly, without TensorFlow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ZONED_TIME = r"[T ]\d{2}:?\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)$"
_NANOSECONDS = r"(\.\d{6})\d+"


def parse_times(values: pa.Array) -> pa.Array:
    """Returns dates and times as microseconds since 1970, int64.

    A time without a time zone counts as UTC.

    Args:
      values: strings; null for a missing value.

    Raises:
      pa.ArrowInvalid: a string is not a date or time.
    """
    texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
    texts = pc.replace_substring_regex(texts, _NANOSECONDS, r"\1")
    zoned = pc.fill_null(pc.match_substring_regex(texts, _ZONED_TIME), False)
    # In one call, Arrow parses only times with zones or only times without zones.
    times = [
        pc.if_else(mask, texts, None).cast(pa.timestamp("us", zone)).cast(pa.int64())
        for mask, zone in ((zoned, "UTC"), (pc.invert(zoned), None))
    ]
    return pc.coalesce(*times)


def ordered_keys(values: pa.Array) -> np.ndarray:
    """Returns sort keys of rows, int64 or float; rows without a value come first.

    Args:
      values: numbers, or dates and times as strings; null for a missing value.

    Raises:
      pa.ArrowInvalid: a string is not a date or time.
    """
    if pa.types.is_null(values.type):
        values = values.cast(pa.int64())
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        values = parse_times(values)
    missing = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    oldest = np.iinfo(np.int64).min if pa.types.is_integer(values.type) else -np.inf
    return np.where(missing, oldest, pc.fill_null(values, 0).to_numpy())


def ends_between_values(keys: np.ndarray, parts_of_whole: np.ndarray) -> np.ndarray:
    """Returns the index at which each part of the sorted keys ends, except the last part.

    A part ends where the key changes, at the change nearest to the part's share, so that equal keys
    are in one part. No part is empty if the key changes often enough.

    Args:
      keys: the sorted keys.
      parts_of_whole: the cumulative share of the keys at the end of each part, except the last.

    Returns:
      [parts - 1] integers.
    """
    changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    parts = len(parts_of_whole)
    if len(changes) < parts:
        return np.append(changes, np.full(parts - len(changes), len(keys)))
    middles = (changes[:-1] + changes[1:]) / 2
    nearest = np.searchsorted(middles, parts_of_whole * len(keys))
    for part in range(1, parts):
        nearest[part] = max(nearest[part], nearest[part - 1] + 1)
    latest = len(changes) - parts + np.arange(parts)
    return changes[np.minimum(nearest, latest)]


def spread_rows(total: int, most: int) -> np.ndarray:
    """Returns a sample of rows from all parts of the data.

    The rows are divided into stretches of about equal length, and one random row of each stretch is
    sampled. A sample of every n-th row would be biased if rows alternate, like the hours of a day.

    Args:
      total: the number of rows of the data.
      most: the maximum number of rows to sample.

    Returns:
      The sorted indices of the rows, [min(total, most)] int64, which are the same in each call.
    """
    picked = min(total, most)
    starts = np.arange(picked + 1, dtype=np.int64) * total // max(picked, 1)
    return starts[:-1] + np.random.default_rng(0).integers(np.diff(starts))
