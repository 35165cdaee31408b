"""The split of the rows: by time if a date orders the rows, by class if classes are rare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_types import holds_bytes
from components.column_types.choice import Choice
from components.column_types.hints import names_births, names_moments
from trainer_module.data.order import ordered_keys

_MIN_DATES = 20
"""The minimum number of dates for a split by time, so that the newest fifth has several dates."""
_MIN_CLASS_ROWS = 50
"""The number of rows of the rarest class below which each split gets its share of each class."""
_TRAIN_SHARE = 0.8


def choose_split(
    columns: Mapping[str, pa.Array],
    choices: Mapping[str, Choice],
    label: pa.Array,
    is_classification: bool,
) -> dict[str, Any]:
    """Returns the keys of `data` that split the rows.

    Args:
      columns: the columns except the label, [rows] each.
      label: the label, [rows].
      is_classification: whether the label is a class.
    """
    dates = [name for name, choice in choices.items() if _may_order(name, choice, columns)]
    orders = {name: keys for name in dates if (keys := _keys(columns[name])) is not None}
    known = label.is_valid().to_numpy(zero_copy_only=False)
    # The column by which the file is sorted is preferred, then a name that means a moment.
    for name in sorted(orders, key=lambda n: (not _is_sorted(orders[n]), not names_moments(n))):
        if not is_classification or _newest_classes_are_known(orders[name], label, known):
            return {"order_by": name}
    split: dict[str, Any] = {"order_by": None} if dates else {}
    if is_classification and min(Counter(label.drop_null().to_pylist()).values()) < _MIN_CLASS_ROWS:
        split["stratify"] = True
    return split


_MIN_REGULAR_SHARE = 0.9
"""The share of regular intervals from which rows are a series."""
_INTERVAL_TOLERANCE = 0.15
"""The largest difference to the usual interval, as months have different lengths."""


def is_series(times: pa.Array) -> bool:
    """Returns whether rows follow each other at regular intervals, with a different time each.

    Args:
      times: numbers, or dates and times as strings, [rows].
    """
    keys = _keys(times)
    if keys is None or len(np.unique(keys)) < len(keys):
        return False
    intervals = np.diff(np.sort(keys)).astype(float)
    usual = np.median(intervals)
    are_regular = np.abs(intervals - usual) <= _INTERVAL_TOLERANCE * usual
    return bool(are_regular.mean() >= _MIN_REGULAR_SHARE)


def _may_order(name: str, choice: Choice, columns: Mapping[str, pa.Array]) -> bool:
    """Returns whether a column may hold the date of each row."""
    if name not in columns or names_births(name):
        return False
    return choice.type == "date" or (choice.type == "numeric" and _are_seconds(name, columns[name]))


_EPOCH_RANGE = 631_152_000, 4_102_444_800
"""The beginning of the years 1990 and 2100, in seconds since 1970."""


def _are_seconds(name: str, values: pa.Array) -> bool:
    """Returns whether numbers are seconds or milliseconds since 1970, by the column's name, too."""
    if not names_moments(name) or not (
        pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
    ):
        return False
    known = values.drop_null().to_numpy(zero_copy_only=False)
    first, last = _EPOCH_RANGE
    return len(known) > 0 and any(
        first * unit <= known.min() and known.max() < last * unit for unit in (1, 1_000)
    )


def _keys(values: pa.Array) -> np.ndarray | None:
    """Returns the sort keys of rows, or None if `data.order_by` cannot read the values, some rows
    have none, or there are too few different ones.
    """
    if values.null_count:
        return None
    try:
        is_days = holds_bytes(values.type) and _are_days(values)
        keys = ordered_keys(values.cast(pa.string()).cast(pa.int64()) if is_days else values)
    except pa.ArrowInvalid:
        return None
    return keys if len(np.unique(keys)) >= _MIN_DATES else None


def _are_days(texts: pa.Array) -> bool:
    """Returns whether all texts have eight digits, as 20260131, which ExampleGen reads as numbers
    if they order the rows.
    """
    return bool(pc.all(pc.match_substring_regex(texts.cast(pa.string()), r"^\d{8}$")).as_py())


def _is_sorted(keys: np.ndarray) -> bool:
    steps = np.diff(keys)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _newest_classes_are_known(keys: np.ndarray, label: pa.Array, known: np.ndarray) -> bool:
    """Returns whether the oldest rows have all classes of the newest, with two or more classes."""
    end = np.quantile(keys[known], _TRAIN_SHARE)
    old = set(label.filter(pa.array(known & (keys <= end))).to_pylist())
    new = set(label.filter(pa.array(known & (keys > end))).to_pylist())
    return len(old) > 1 and len(new) > 0 and new <= old
