"""The detection of date formats in text columns that the config does not declare.

A tally counts the values in each format. The tallies of all rows are merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from components.arrow_types import holds_bytes
from components.column_types.dates import Dates, may_be_dates
from components.example_gen.checks.values import matches, texts_of
from components.example_gen.columns.encoded import Cell, excerpt, values_of
from components.example_gen.formats import ExampleGenSettings
from trainer_module.errors import DataError, as_key
from trainer_module.features.date_formats import WITH_TIME, Form, candidates

_SMALL_SAMPLE = 5
"""The number of values in a batch from which is decided whether the column may hold dates."""
_SAMPLE = 100
"""The number of values in a batch from which is decided which formats are tried."""
_SEASON = re.compile(r"\d\d(\d\d)-(\d\d)", re.ASCII)


@dataclass(frozen=True)
class _Fit:
    """The values of a column that have one format."""

    values: int
    """The number of values in the format."""
    shown: str
    """The first value in the format."""
    has_time: bool
    """Whether a value has a time other than midnight."""
    first_mismatch: Cell | None
    """The first value that is not in the format."""

    def merge(self, other: _Fit) -> _Fit:
        """Returns the sum of both counts."""
        return _Fit(
            self.values + other.values,
            self.shown or other.shown,
            self.has_time or other.has_time,
            self.first_mismatch or other.first_mismatch,
        )


@dataclass(frozen=True)
class DateTally:
    """The number of values of a column, and the number of values in each date format."""

    values: int
    first: Cell
    """The first value."""
    fits: Mapping[str, _Fit]
    """The values in each format, by its pattern."""

    def merge(self, other: DateTally) -> DateTally:
        """Returns the sum of both counts."""
        fits = {
            pattern: self.fit(pattern).merge(other.fit(pattern))
            for pattern in [*self.fits, *(p for p in other.fits if p not in self.fits)]
        }
        return DateTally(self.values + other.values, self.first, fits)

    def infer_dates(self, forms: Mapping[str, Form]) -> Dates | None:
        """Returns the column as dates in the most frequent format.

        The result is None if at most half of the values have the format.
        """
        candidates = [pattern for pattern in forms if pattern in self.fits]
        if not candidates:
            return None
        best = max(candidates, key=lambda pattern: self.fits[pattern].values)
        fit = self.fits[best]
        if fit.values * 2 <= self.values:
            return None
        return self.dates(fit, forms[best].layout + (WITH_TIME if fit.has_time else ""))

    def dates(self, fit: _Fit, date_format: str) -> Dates:
        """Returns the column as dates of a format."""
        cell = fit.first_mismatch
        first_mismatch = f"{cell.value!r} in {cell}" if cell is not None else ""
        return Dates(date_format, self.values, fit.shown, self.values - fit.values, first_mismatch)

    def fit(self, pattern: str) -> _Fit:
        """Returns the values in a format. If the format was not tried, no value has it."""
        return self.fits.get(pattern) or _Fit(0, "", False, self.first)


def tally_dates(
    rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings
) -> dict[str, DateTally]:
    """Returns the tallies of the text columns in a batch, by name.

    Args:
      settings: the settings, with the columns to leave out and the dates of an earlier schema.
    """
    others = {settings.label, *settings.mixed_columns, *settings.features}
    known = settings.known_dates or {}
    return {
        name: tally
        for name in rows.schema.names
        if name not in others
        for tally in _tally(rows.column(name), first, known.get(name))
    }


def merge_tallies(
    one: Mapping[str, DateTally], other: Mapping[str, DateTally]
) -> dict[str, DateTally]:
    """Returns the merged tallies of two parts of the data, by column."""
    both = {name: one[name].merge(other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def find_dates(tallies: Mapping[str, DateTally]) -> dict[str, Dates]:
    """Returns the columns in which most values are dates, by name."""
    forms = dict(candidates())
    inferred = {name: tally.infer_dates(forms) for name, tally in sorted(tallies.items())}
    return {name: dates for name, dates in inferred.items() if dates is not None}


def check_dates(tallies: Mapping[str, DateTally], known: Mapping[str, str] | None) -> list[str]:
    """Returns notes on date columns in which some values are not dates.

    Args:
      known: the formats of the date columns in an earlier schema, which has no other date columns;
        None if there is no schema.

    Raises:
      DataError: a date column of the schema now holds other values or another format.
    """
    dates = find_dates(tallies)
    if known is not None:
        known_columns = sorted(known.keys() & tallies)
        dates = {name: _as_known_dates(name, tallies[name], known[name]) for name in known_columns}
    return [
        f"column {name!r}: {dates[name].description}" for name in dates if dates[name].mismatches
    ]


def _as_known_dates(name: str, tally: DateTally, date_format: str) -> Dates:
    fit = tally.fit(Form.parse(date_format).pattern)
    dates = tally.dates(fit, date_format)
    if not dates.are_alike:
        raise DataError(
            f"Column {name!r} had dates in the format {date_format} in earlier data, but"
            f" {dates.mismatches:,} of {dates.values:,} values have another format, the first is"
            f" {dates.first_mismatch}: write all dates in the same format, or declare the column by"
            f" features: {{{as_key(name)}: {{type: ...}}}}."
        )
    return dates


def _tally(column: pa.Array, first: Cell, known: str | None) -> Iterator[DateTally]:
    values = values_of(column)
    if not holds_bytes(values.type) or not len(values):
        return
    sample = values.take(_spaced_indices(len(values), _SMALL_SAMPLE))
    if known is None and not may_be_dates([excerpt(value.as_py()) for value in sample]):
        yield DateTally(len(values), first.below(0, excerpt(values[0].as_py())), {})
        return
    texts, text_rows = texts_of(column)
    if not len(texts):
        return
    # Many rows have the same date, so each distinct value is parsed once.
    encoded = texts.dictionary_encode()
    values, indices = encoded.dictionary, encoded.indices.to_numpy()
    forms = _possible_forms(values)
    if known is not None:
        form = Form.parse(known)
        forms[form.pattern] = form

    def cell(index: int) -> Cell:
        return first.below(text_rows[index], excerpt(texts[index].as_py()))

    def try_form(form: Form, pattern: str) -> _Fit:
        is_date = matches(values, pattern)
        dates = values.filter(pa.array(is_date))
        # The first values mostly contain a time if the column has times. Otherwise all are read.
        has_time = not all(
            matches(sample, form.midnights).all() for sample in (dates.slice(0, _SAMPLE), dates)
        )
        fits = is_date[indices]
        first_date = excerpt(texts[int(np.argmax(fits))].as_py()) if fits.any() else ""
        first_mismatch = None if fits.all() else cell(int(np.argmin(fits)))
        return _Fit(int(fits.sum()), first_date, has_time, first_mismatch)

    fits_by_pattern = {pattern: try_form(form, pattern) for pattern, form in forms.items()}
    yield DateTally(len(texts), cell(0), fits_by_pattern)


def _possible_forms(values: pa.StringArray) -> dict[str, Form]:
    """Returns the formats that match at least one value of a sample, by pattern."""
    sample = values.take(_spaced_indices(len(values), _SAMPLE))
    possible = {pattern: form for pattern, form in candidates() if matches(sample, pattern).any()}
    if _are_seasons(sample.to_pylist()):
        del possible[Form.parse("%Y-%m").pattern]
    return possible


def _are_seasons(values: Sequence[str]) -> bool:
    """Returns whether all values are seasons of two years, such as 2006-07, and not months."""
    seasons = [_SEASON.fullmatch(value.strip()) for value in values]
    return len(seasons) > 1 and all(m and (int(m[1]) + 1) % 100 == int(m[2]) for m in seasons)


def _spaced_indices(length: int, count: int) -> pa.Array:
    """Returns evenly spaced indices in a batch, without duplicates."""
    return pa.array(np.unique(np.linspace(0, length - 1, count, dtype=np.int64)))
