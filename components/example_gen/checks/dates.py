"""The formats of dates in text columns that the config does not declare, counted over all rows."""

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
from trainer_module.errors import DataError
from trainer_module.features.date_formats import WITH_TIME, Form, candidates

_GLANCE, _LOOK = 5, 100
"""The sizes of the samples of a batch that show whether its values may be dates, and which formats
to try."""
_SEASON = re.compile(r"\d\d(\d\d)-(\d\d)", re.ASCII)


@dataclass(frozen=True)
class _Fit:
    """The values that are written in one format."""

    values: int
    shown: str
    """The first value in the format."""
    has_time: bool
    first_odd: Cell | None
    """The first value that is not in the format."""

    def merge(self, other: _Fit) -> _Fit:
        """Returns the counts for the values of both."""
        return _Fit(
            self.values + other.values,
            self.shown or other.shown,
            self.has_time or other.has_time,
            self.first_odd or other.first_odd,
        )


@dataclass(frozen=True)
class DateTally:
    """The number of values of a column, and of those that are dates, by format."""

    values: int
    first: Cell
    fits: Mapping[str, _Fit]
    """The values in each format, by its pattern."""

    def merge(self, other: DateTally) -> DateTally:
        """Returns the counts for the values of both."""
        fits = {
            pattern: self.fit(pattern).merge(other.fit(pattern))
            for pattern in [*self.fits, *(p for p in other.fits if p not in self.fits)]
        }
        return DateTally(self.values + other.values, self.first, fits)

    def infer_dates(self, forms: Mapping[str, Form]) -> Dates | None:
        """Returns the column's dates in the first format that fits the most values; None unless it
        fits more than half of them.
        """
        known = [pattern for pattern in forms if pattern in self.fits]
        if not known:
            return None
        best = max(known, key=lambda pattern: self.fits[pattern].values)
        fit = self.fits[best]
        if fit.values * 2 <= self.values:
            return None
        return self.dates(fit, forms[best].layout + (WITH_TIME if fit.has_time else ""))

    def dates(self, fit: _Fit, date_format: str) -> Dates:
        """Returns the column as dates of a format."""
        odd = fit.first_odd
        first_odd = f"{odd.value!r} in {odd}" if odd is not None else ""
        return Dates(date_format, self.values, fit.shown, self.values - fit.values, first_odd)

    def fit(self, pattern: str) -> _Fit:
        """Returns the values in a format; none for batches in which the format was not tried."""
        return self.fits.get(pattern) or _Fit(0, "", False, self.first)


def tally_dates(
    rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings
) -> dict[str, DateTally]:
    """Returns the tallies of the text columns that may be dates.

    Args:
      rows: list columns of int64, float32 or binary.
      first: the place of the batch's first row.
      settings: the columns to leave out, and the dates of an earlier schema.
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
    """Returns the merged tallies, by column."""
    both = {name: one[name].merge(other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def find_dates(tallies: Mapping[str, DateTally]) -> dict[str, Dates]:
    """Returns the columns of which most values are dates."""
    forms = dict(candidates())
    inferred = {name: tally.infer_dates(forms) for name, tally in sorted(tallies.items())}
    return {name: dates for name, dates in inferred.items() if dates is not None}


def check_dates(tallies: Mapping[str, DateTally], known: Mapping[str, str] | None) -> list[str]:
    """Returns notes on date columns that hold other values.

    Args:
      tallies: the tallies of all rows.
      known: the formats of an earlier schema; other columns are then not dates. None if there is no
        schema.

    Raises:
      DataError: a column of dates in earlier data holds other values, or another format.
    """
    dates = find_dates(tallies)
    if known is not None:
        dated = sorted(known.keys() & tallies)
        dates = {name: _read_as(name, tallies[name], known[name]) for name in dated}
    return [f"column {name!r}: {dates[name].description}" for name in dates if dates[name].odd]


def _read_as(name: str, tally: DateTally, date_format: str) -> Dates:
    fit = tally.fit(Form.parse(date_format).pattern)
    dates = tally.dates(fit, date_format)
    if not dates.are_alike:
        raise DataError(
            f"Column {name!r} held dates in the format {date_format} in earlier data, but"
            f" {dates.odd:,} of {dates.values:,} values have another format, first"
            f" {dates.first_odd}: write all in the same format, or declare the column by features:"
            f" {{{name}: {{type: ...}}}}."
        )
    return dates


def _tally(column: pa.Array, first: Cell, known: str | None) -> Iterator[DateTally]:
    values = values_of(column)
    if not holds_bytes(values.type) or not len(values):
        return
    if known is None and not may_be_dates(_some(values, _GLANCE)):
        yield DateTally(len(values), first.below(0, excerpt(values[0].as_py())), {})
        return
    texts, row_of = texts_of(column)
    if not len(texts):
        return
    # Many rows share few dates, so each distinct text is parsed once.
    coded = texts.dictionary_encode()
    values, places = coded.dictionary, coded.indices.to_numpy()
    forms = _possible(values)
    if known is not None:
        form = Form.parse(known)
        forms[form.pattern] = form

    def cell(place: int) -> Cell:
        return first.below(row_of[place], excerpt(texts[place].as_py()))

    def try_form(form: Form, pattern: str) -> _Fit:
        is_date = matches(values, pattern)
        dates = values.filter(pa.array(is_date))
        # A few values mostly show whether dates have times; all are read only if they do not.
        has_time = not all(
            matches(some, form.midnights).all() for some in (dates.slice(0, _LOOK), dates)
        )
        fits = is_date[places]
        first_date = excerpt(texts[int(np.argmax(fits))].as_py()) if fits.any() else ""
        odd = None if fits.all() else cell(int(np.argmin(fits)))
        return _Fit(int(fits.sum()), first_date, has_time, odd)

    fits_by_pattern = {pattern: try_form(form, pattern) for pattern, form in forms.items()}
    yield DateTally(len(texts), cell(0), fits_by_pattern)


def _possible(values: pa.StringArray) -> dict[str, Form]:
    """Returns the formats that match some of the values, by pattern."""
    sample = values.take(_spread(len(values), _LOOK))
    possible = {pattern: form for pattern, form in candidates() if matches(sample, pattern).any()}
    if _are_seasons(sample.to_pylist()):
        del possible[Form.parse("%Y-%m").pattern]
    return possible


def _are_seasons(values: Sequence[str]) -> bool:
    """Returns whether values are years such as 2006-07, of which some could be months."""
    years = [_SEASON.fullmatch(value.strip()) for value in values]
    return len(years) > 1 and all(m and (int(m[1]) + 1) % 100 == int(m[2]) for m in years)


def _some(values: pa.Array, count: int) -> list[str]:
    return [excerpt(value.as_py()) for value in values.take(_spread(len(values), count))]


def _spread(length: int, count: int) -> pa.Array:
    """Returns evenly spaced places in a batch, without duplicates."""
    return pa.array(np.unique(np.linspace(0, length - 1, count, dtype=np.int64)))
