"""The names of a CSV's columns: from its first row, or from the config where that row is data."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass

from components.example_gen.columns.seen import is_number
from components.example_gen.files.opening import unreadable_error
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources.csv.dialect import Dialect, encoding_error, read_text
from trainer_module.errors import DataError, counted


@dataclass(frozen=True)
class Header:
    """What a file's columns are called."""

    names: list[str]
    written: list[str] | None
    """The names as they stand in the file; None where it has none."""

    @property
    def first_row(self) -> int:
        """The number of the first row of data."""
        return 1 if self.written is None else 2


def read_header(file: str, dialect: Dialect, settings: ExampleGenSettings) -> Header:
    """The names of the columns, which must be there and unique, with a row to follow.

    Raises:
      DataError: they are not, or the first row looks like data.
    """
    try:
        with read_text(file, dialect.encoding) as text:
            rows = dialect.rows(text)
            first, second = next(rows, None), next(rows, None)
    except OSError as error:
        raise unreadable_error(file, error) from error
    except UnicodeError as error:
        raise encoding_error(file, dialect.encoding) from error
    except csv.Error as error:
        raise DataError(f"{file} begins as no CSV does ({error}): write it again.") from error
    if first is None:
        raise DataError(f"{file} is empty: it needs a header and rows, or leave the file out.")
    if settings.csv.header is not None:
        _check_stated(file, first, settings.csv.header)
        return Header(settings.csv.header, None)
    names = [name.strip() for name in first] if settings.csv.strip else first
    _check_names(file, names, dialect, settings)
    if second is None:
        raise DataError(f"{file} holds a header but no rows: add rows, or leave the file out.")
    return Header(names, first)


def _check_stated(file: str, first: list[str], names: list[str]) -> None:
    """Whether names from the config fit a file's first row."""
    if [cell.strip() for cell in first] == names:
        raise DataError(
            f"The first row of {file} holds the columns' names already: leave data.csv.header out."
        )
    if len(first) != len(names):
        raise DataError(
            f"data.csv.header names {counted(len(names), 'column')}, but the first row of {file}"
            f" has {len(first)}: name each column once, in the file's order."
        )


def _check_names(
    file: str, names: list[str], dialect: Dialect, settings: ExampleGenSettings
) -> None:
    if any("\udc80" <= character <= "\udcff" for name in names for character in name):
        raise encoding_error(file, dialect.encoding)
    if settings.label not in names and any(map(is_number, names)):
        shown = ", ".join(repr(name) for name in names[:3])
        raise DataError(
            f"The first row of {file} looks like data ({shown}{', ...' if len(names) > 3 else ''}),"
            f" not like a header: {_header_line(len(names), settings.label)}"
        )
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise DataError(
            f"The header of {file} names column {twice[0]!r} {Counter(names)[twice[0]]} times:"
            " give each column a name of its own. If that row is data,"
            f" {_header_line(len(names), settings.label)}"
        )
    if "" in names:
        place = names.index("")
        hint = "" if place else " (to_csv(index=False) leaves the index of pandas out)"
        if place == len(names) - 1:
            hint = " (a delimiter at the end of the row makes a column more)"
        raise DataError(
            f"Column {place + 1} of {len(names)} has no name in row 1 of {file}: write one"
            f" there, or remove the column{hint}."
        )
    for name in names:
        if "\0" in name:
            raise DataError(
                f"The name {name[:20]!r} in row 1 of {file} holds a NUL character: remove it, or,"
                " for text in UTF-16, write data.csv: {encoding: utf-16-le}."
            )


def _header_line(columns: int, label: str) -> str:
    """What to write where a file has no header."""
    shown = [f"column_{number}" for number in range(1, min(columns, 4))]
    more = ["..."] if columns > 4 else []
    return (
        f"name its {columns} columns in the config, such as data.csv: {{header:"
        f" [{', '.join([*shown, *more, label])}]}}."
    )
