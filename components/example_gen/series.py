"""The labels of series, by time: their lags and moving averages.

A series has at most one label for each unit of time. A lag is the label of a certain time, not of
a certain row, so that it is right even if times are absent; then it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.dates import DAYS
from components.example_gen.checks.values import read_order
from components.example_gen.columns.encoded import Cell, first_values, show_names
from components.example_gen.formats import LagsSettings
from trainer_module.errors import DataError

_NUMPY_UNITS = {"minute": "m", "hour": "h", "day": "D", "month": "M"}
_ANY_DAY = 20260131
_MIN_DAYS = 0.5
"""The share of possible days from which numbers with eight digits count as days.

Of random numbers with eight digits, 4 % are possible days."""
_NO_TIME = np.iinfo(np.int64).min
"""The time of a row without a value of `data.order_by`."""
_BETWEEN_KEYS = "\x1f"
"""The separator between the values of several columns that identify a series; values may have
commas."""
_MAX_EXACT = 2**24
"""The largest number up to which float32 holds all whole numbers."""

_MIN_ROWS = 50
"""The minimum number of rows that are recognised as a series."""
_UNEVEN, _MIN_EVEN = 0.15, 0.9
"""The maximum deviation of a step of time from the usual step, as a share, and the minimum share of
the steps that deviate by at most this much."""


@dataclass(frozen=True)
class Moments:
    """The series and the time of the rows of a batch."""

    series: pa.Array
    """The series of each row, string of shape [rows]."""
    times: np.ndarray
    """The number of units since 1970, or a number, int64 of shape [rows]; `_NO_TIME` if missing."""

    def only(self, kept: np.ndarray) -> Moments:
        """Returns the rows for which `kept`, bool of shape [rows], is True."""
        return Moments(self.series.filter(pa.array(kept)), self.times[kept])

    @property
    def are_known(self) -> np.ndarray:
        """Whether each row has a time, bool of shape [rows]."""
        return self.times != _NO_TIME


def read_moments(rows: pa.RecordBatch, first: Cell, order_by: str, lags: LagsSettings) -> Moments:
    """Returns the series and the times of a batch.

    Raises:
      DataError: a column is missing, or a value is neither a time nor a whole number.
    """
    for name in lags.key:
        if name not in rows.schema.names:
            raise DataError(
                f"data.lags.key: the data has no column {name!r}; it has"
                f" {show_names(rows.schema.names)}."
            )
    order = read_order(rows, first, order_by)
    keys, values = order.keys, first_values(rows.column(order_by))
    if pa.types.is_floating(values.type):
        keys = _as_integers(keys, order.missing, first, order_by)
    elif not pa.types.is_integer(values.type) and not pa.types.is_null(values.type):
        keys = _count_units(keys.astype("datetime64[us]"), lags.unit)
    elif lags.unit == "month" and _are_months(keys[~order.missing]):
        keys = keys // 100 * 12 + keys % 100
    elif _are_days(keys[~order.missing]):
        days, are_valid = _read_days(np.where(order.missing, _ANY_DAY, keys))
        if not are_valid.all():
            row = int(np.argmin(are_valid))
            raise DataError(
                f"Column {order_by!r} is {keys[row]} in {first.below(row)}, which is not a day of"
                f" the calendar, although other numbers are days such as {_ANY_DAY}: correct it."
            )
        keys = _count_units(days, lags.unit)
    return Moments(_join_keys(rows, lags.key), np.where(order.missing, _NO_TIME, keys))


def _count_units(moments: np.ndarray, unit: str) -> np.ndarray:
    return moments.astype(f"datetime64[{_NUMPY_UNITS[unit]}]").astype(np.int64)


def _as_integers(keys: np.ndarray, missing: np.ndarray, first: Cell, name: str) -> np.ndarray:
    whole = missing | (keys == np.floor(keys))
    if not whole.all():
        row = int(np.argmin(whole))
        raise DataError(
            f"Column {name!r} is {keys[row]:g} in {first.below(row)}, but data.lags needs dates,"
            " times or whole numbers in data.order_by."
        )
    inexact = ~missing & (np.abs(np.where(missing, 0, keys)) > _MAX_EXACT)
    if inexact.any():
        row = int(np.argmax(inexact))
        raise DataError(
            f"Column {name!r} is {keys[row]:.0f} in {first.below(row)} and is read as fractions,"
            f" which are exact up to {_MAX_EXACT:,} only, but data.lags needs exact times: write"
            " whole numbers without a decimal point in every file (Parquet: type int64), or dates"
            " such as 2026-01-31."
        )
    return np.where(missing, 0, keys).astype(np.int64)


def _are_months(numbers: np.ndarray) -> bool:
    """Returns whether all numbers are months such as 202601."""
    months = numbers % 100
    are_years = (numbers >= 1000_00) & (numbers < 10_000_00)
    return bool(len(numbers) and (are_years & (months >= 1) & (months <= 12)).all())


def _are_days(numbers: np.ndarray) -> bool:
    """Returns whether numbers are days such as 20260131, a few of which may be impossible."""
    if not len(numbers) or numbers.min() < DAYS.start or numbers.max() >= DAYS.stop:
        return False
    _, are_valid = _read_days(numbers)
    return bool(are_valid.mean() >= _MIN_DAYS)


def _read_days(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns numbers such as 20260131 as dates, and whether each is a day of the calendar."""
    months = numbers // 10_000 * 12 + numbers // 100 % 100 - 1
    first_days = (months - 1970 * 12).astype("datetime64[M]")
    days = first_days.astype("datetime64[D]") + (numbers % 100 - 1)
    is_month = (numbers // 100 % 100 >= 1) & (numbers // 100 % 100 <= 12)
    return days, is_month & (days.astype("datetime64[M]") == first_days)


def _join_keys(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Returns the values of the columns as one text for each row; a missing value is empty."""
    if not names:
        return pa.array([""] * rows.num_rows, pa.string())
    texts = []
    for name in names:
        values = first_values(rows.column(name))
        if pa.types.is_floating(values.type):
            # A file in which a whole number is missing may hold the others as fractions.
            are_whole = pc.all(pc.equal(values, pc.floor(values))).as_py()
            values = pc.cast(values, pa.int64()) if are_whole else values
        texts.append(pc.fill_null(values.cast(pa.string()), ""))
    return pc.binary_join_element_wise(*texts, _BETWEEN_KEYS)


@dataclass(frozen=True)
class Labels:
    """The labels of rows with their moments, and the cells of the rows."""

    moments: Moments
    labels: np.ndarray
    """[rows] float32, without NaN."""
    cells: Sequence[Cell]
    """The cell of the first row of each batch."""
    starts: np.ndarray
    """The index in `labels` of each batch's first row, [batches]."""
    rows: np.ndarray
    """The number of each row below the first row of its batch, [rows]."""

    def cell(self, index: int) -> Cell:
        """Returns the cell of a row."""
        batch = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.cells[batch].below(self.rows[index])


class History:
    """The labels of all series, which are found by series and time."""

    def __init__(self, labels: Sequence[Labels], unit: str) -> None:
        """Sorts the labels. If two parts have a label of the same time, the later part's counts.

        Args:
          labels: the labels of parts of the data, at least one. The times of a part's series
            differ.

        Raises:
          DataError: two rows of a part have the same series and time.
        """
        for part in labels:
            _check_once(part, unit)
        encoded = pa.chunked_array([part.moments.series for part in labels], pa.string())
        encoded = encoded.combine_chunks().dictionary_encode()
        times = np.concatenate([part.moments.times for part in labels])
        values = np.concatenate([part.labels for part in labels])
        self._series: pa.Array = encoded.dictionary
        self._times = np.unique(times)
        series = encoded.indices.to_numpy().astype(np.int64)
        keys = self._keys(series, np.searchsorted(self._times, times))
        order = np.lexsort((np.arange(len(keys)), keys))
        is_last = np.append(keys[order][1:] != keys[order][:-1], np.ones(min(len(keys), 1), bool))
        self._sorted, self._labels = keys[order][is_last], values[order][is_last]
        self._starts = np.full(len(self._series), np.iinfo(np.int64).max)
        np.minimum.at(self._starts, series, times)

    @property
    def step(self) -> int | None:
        """The most frequent difference of neighbouring times; None with a single time."""
        if len(self._times) < 2:
            return None
        differences, counts = np.unique(np.diff(self._times), return_counts=True)
        return int(differences[np.argmax(counts)])

    def moments(self) -> Moments:
        """Returns the moments of all labels."""
        width = len(self._times) + 1
        series = self._series.take(pa.array(self._sorted // width))
        return Moments(series, self._times[self._sorted % width])

    def _keys(self, series: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Returns a number for each series and index of a time, which orders both."""
        return series * (len(self._times) + 1) + times

    def means(self, moments: Moments, window: tuple[int, int]) -> np.ndarray:
        """Returns the mean of the labels in a window before each row, [rows] float32; NaN if none
        is known.

        Args:
          window: the first and the last time, as units before the row's time.
        """
        left, right = self._positions(moments, window)
        # Differences of cumulative sums would be imprecise beside a series of large labels. In this
        # order, the sums between the windows take little time.
        order, counts = np.argsort(left), right - left
        bounds = np.stack([left, right], axis=1)[order].ravel()
        sums = np.empty(len(order))
        sums[order] = np.add.reduceat(np.append(self._labels, 0.0), bounds)[::2]
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        return means.astype(np.float32)

    def begins_within(self, moments: Moments, window: tuple[int, int]) -> np.ndarray:
        """Returns whether the series of each row has begun when the window ends, bool [rows]."""
        series, is_known = self._find_series(moments)
        starts = np.append(self._starts, np.iinfo(np.int64).max)[series]
        return is_known & (starts <= moments.times - window[1])

    def _positions(
        self, moments: Moments, window: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the labels of each row's window begin and end in the sorted labels."""
        series, is_known = self._find_series(moments)
        times = np.where(is_known, moments.times, 0)
        first = np.searchsorted(self._times, times - window[0], side="left")
        last = np.searchsorted(self._times, times - window[1], side="right")
        left = np.searchsorted(self._sorted, self._keys(series, first))
        right = np.searchsorted(self._sorted, self._keys(series, last))
        return np.where(is_known, left, 0), np.where(is_known, right, 0)

    def _find_series(self, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
        """Returns the number of each row's series, and whether it and the row's time are known."""
        series = pc.fill_null(pc.index_in(moments.series, self._series), -1)
        numbers = series.to_numpy().astype(np.int64)
        return numbers, (numbers >= 0) & moments.are_known


def is_series(keys: np.ndarray) -> bool:
    """Returns whether rows are one series: their times differ, and nearly all by about the same.

    Args:
      keys: [rows], the sort keys of all rows in time, in any order.
    """
    if len(keys) < _MIN_ROWS:
        return False
    steps = np.diff(np.sort(keys).astype(np.float64))
    usual = np.median(steps)
    # Months differ by up to a tenth.
    is_even = np.abs(steps - usual) <= _UNEVEN * usual
    return bool(steps.min() > 0 and is_even.mean() >= _MIN_EVEN)


def _check_once(part: Labels, unit: str) -> None:
    """Raises DataError if two rows have the same series and time."""
    series = part.moments.series.dictionary_encode()
    times = part.moments.times
    order = np.lexsort((times, series.indices.to_numpy()))
    ordered = series.indices.to_numpy()[order]
    again = (ordered[1:] == ordered[:-1]) & (times[order][1:] == times[order][:-1])
    if not again.any():
        return
    index = int(np.argmax(again))
    one, other = sorted(order[index : index + 2].tolist())
    name = part.moments.series[one].as_py().replace(_BETWEEN_KEYS, ", ")
    of_series = f" of the series {name!r}" if name else ""
    raise DataError(
        f"data.lags needs one label for each {unit}{of_series}, but {part.cell(one)} and"
        f" {part.cell(other)} have labels of the same {unit}: if the rows belong to several"
        " series, write their column, data: {lags: {key: COLUMN}}; if they are of shorter times,"
        " write the unit, data: {lags: {unit: hour}}; else keep one of the rows."
    )
