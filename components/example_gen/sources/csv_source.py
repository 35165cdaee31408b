"""CSV with a header: types from all rows, values and missing cells as stock CsvExampleGen has them.

Rows are counted as records, from 1 for the header; lines without anything are no rows.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.csv as pa_csv

from components.example_gen.columns import Cell, Column, ColumnKind, encode_text, survey_text
from components.example_gen.sources.base import (
    Batch,
    Files,
    Source,
    Survey,
    open_stream,
    unreadable_error,
)
from trainer_module.errors import DataError

# Bytes parsed at a time, and so the longest row.
_BLOCK_SIZE = 4 << 20
_FIRST_ROW = 2


class CsvSource(Source):
    """Reads CSV files in two passes, a block at a time."""

    def survey(self, files: Files) -> Survey:
        """The columns of one file, their types from all of its rows."""
        file, row = files[0], _FIRST_ROW
        columns = {name: Column() for name in _read_header(file)}
        for batch in _parse(file, list(columns)):
            for name, values in zip(columns, batch.columns, strict=True):
                seen = columns[name]
                columns[name] = seen.merge(survey_text(values, file, row, seen.kind))
            row += batch.num_rows
        if row == _FIRST_ROW:
            raise DataError(f"{file} holds a header but no rows: add rows, or leave the file out.")
        return Survey(file, columns)

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of one file, a block at a time."""
        file, row = files[0], _FIRST_ROW
        names = _read_header(file)
        for batch in _parse(file, names):
            columns = [
                encode_text(values, kinds[name])
                for name, values in zip(names, batch.columns, strict=True)
            ]
            yield Batch(pa.record_batch(columns, names), Cell(file, row))
            row += batch.num_rows


def _read_header(file: str) -> list[str]:
    """The names of the columns, which must be there, unique and UTF-8, with a row to follow."""
    try:
        # Bytes that are no UTF-8 are let pass here: the rows may hold them.
        with open_stream(file) as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
            rows = (row for row in csv.reader(text) if row)
            header, first_row = next(rows, None), next(rows, None)
    except OSError as error:
        raise unreadable_error(file, error) from error
    except csv.Error as error:
        raise DataError(f"{file} begins as no CSV does ({error}): write it again.") from error
    if header is None:
        raise DataError(f"{file} is empty: it needs a header and rows, or leave the file out.")
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise DataError(
            f"The header of {file} names column {twice[0]!r} {Counter(header)[twice[0]]} times:"
            " give each column a name of its own."
        )
    if any("\udc80" <= character <= "\udcff" for name in header for character in name):
        raise DataError(f"The header of {file} is not UTF-8: save the file in that encoding.")
    if first_row is None:
        raise DataError(f"{file} holds a header but no rows: add rows, or leave the file out.")
    return header


def _parse(file: str, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yields blocks of rows, each column binary, empty cells null."""
    invalid: list[pa_csv.InvalidRow] = []

    def refuse(row: pa_csv.InvalidRow) -> str:
        invalid.append(row)
        return "error"

    stream, last = _QuoteCounter(file), None
    try:
        for batch in _open_parser(pa.PythonFile(stream, mode="r"), names, refuse):
            if batch.num_rows:
                last = batch
                yield batch
    except OSError as error:
        raise unreadable_error(file, error) from error
    except pa.ArrowInvalid as error:
        raise _syntax_error(file, error, invalid) from error
    finally:
        stream.close()
    if last is not None and stream.quotes % 2 and b"\n" in (last.columns[-1][-1].as_py() or b""):
        raise _quote_error(file)


def _open_parser(
    stream: pa.NativeFile, names: list[str], refuse: Callable[[pa_csv.InvalidRow], str]
) -> pa_csv.CSVStreamingReader:
    return pa_csv.open_csv(
        stream,
        # Without threads an invalid row's number is known; measured, they gain nothing here.
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_SIZE),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


class _QuoteCounter(io.RawIOBase):
    """A file's bytes, counting quotation marks: Arrow takes one that never closes for good."""

    def __init__(self, file: str) -> None:
        self._stream = open_stream(file)
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.quotes += data.count(b'"')
        return data

    def close(self) -> None:
        self._stream.close()
        super().close()


def _syntax_error(file: str, error: Exception, invalid: list[pa_csv.InvalidRow]) -> DataError:
    if invalid:
        row = invalid[0]
        hint = "a value that holds a comma needs quotation marks around it"
        if "\n" in row.text:
            hint = "a quotation mark in it may not be closed"
        return DataError(
            f"Row {row.number} of {file} has {row.actual_columns} columns, expected"
            f" {row.expected_columns} as in the header: {hint}."
        )
    if "straddling" in str(error):
        return _quote_error(file)
    return DataError(f"{file} is no CSV ({' '.join(str(error).split())}): write it again.")


def _quote_error(file: str) -> DataError:
    return DataError(
        f"A quotation mark in {file} is never closed, or a row is longer than"
        f" {_BLOCK_SIZE >> 20} MiB: close it (a mark within a value is written twice)."
    )
