"""The source of CSV files. The types of columns are inferred from all rows.

Values and missing cells are read as by TFX's CsvExampleGen, except that spaces around cells are
removed. Row 1 is the header. A row may span several lines, and empty lines are not rows.
"""

from __future__ import annotations

import codecs
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from components.example_gen.columns.encoded import Cell, ColumnKind, excerpt
from components.example_gen.columns.type_inference import (
    ColumnSurvey,
    encode_text,
    holds_any,
    parse_numbers,
    survey_text,
    without_placeholders,
    without_zero_fractions,
)
from components.example_gen.files import check_is_text, reason_of, unreadable_error
from components.example_gen.formats import CsvSettings
from components.example_gen.sources.base import Batch, Files, Source, Survey
from components.example_gen.sources.csv_dialect import (
    UTF8,
    Dialect,
    Header,
    encoding_error,
    find_dialect,
    open_text,
    read_header,
    trim_command,
)
from components.row_progress import count_rows
from trainer_module.errors import DataError, counted, enumerate_names

# The pattern of a number with a decimal comma. Points may separate thousands.
_COMMA_NUMBER = r"^\s*[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d+)?(e[+-]?\d+)?\s*$"


def clean_cells(values: pa.BinaryArray, settings: CsvSettings) -> pa.BinaryArray:
    """Returns the cells without spaces around them and with decimal points.

    Missing values become nulls.
    """
    values = mark_missing(values, settings.missing_values)
    if settings.strip and holds_any(values, b" \t"):
        values = _trim(values, settings.missing_values)
    if settings.decimal == "," and holds_any(values, b",."):
        values = _with_points(values)
    return values


def mark_missing(values: pa.BinaryArray, missing_values: list[str]) -> pa.BinaryArray:
    """Returns the cells, with null instead of each of the missing values."""
    if not missing_values:
        return values
    missing = pc.is_in(values, pa.array([text.encode() for text in missing_values], pa.binary()))
    return pc.if_else(missing, pa.scalar(None, pa.binary()), values)


def missing_numbers(settings: CsvSettings) -> dict[str, float]:
    """Returns the missing values of the settings that are numbers, with their value as text.

    A cell with another notation of the number is missing too, such as -999.0 for -999.
    """
    numbers = {}
    for text in settings.missing_values:
        cell = pa.array([text.encode()], pa.binary())
        cell = _with_points(cell) if settings.decimal == "," else cell
        number = parse_numbers(cell, ColumnKind.FLOAT)
        if number is not None and math.isfinite(number[0].as_py()):
            numbers[text] = number[0].as_py()
    return numbers


def find_missing(
    raw: pa.BinaryArray, cells: pa.BinaryArray, kind: ColumnKind, settings: CsvSettings
) -> set[str]:
    """Returns the missing values of the settings that occur in the cells.

    Args:
      raw: the cells as in the file.
      cells: the cells that `clean_cells` returns.
    """
    texts = raw.view(pa.string())
    texts = pc.ascii_trim_whitespace(texts) if settings.strip else texts
    missing = {text for text in settings.missing_values if pc.index(texts, text).as_py() >= 0}
    if kind in (ColumnKind.INT, ColumnKind.FLOAT):
        numbers = parse_numbers(cells, ColumnKind.FLOAT)
        candidates = missing_numbers(settings).items()
        missing |= {text for text, number in candidates if pc.index(numbers, number).as_py() >= 0}
    return missing


def count_trimmed(before: pa.BinaryArray, after: pa.BinaryArray) -> int:
    """Returns the number of cells from which spaces were removed."""
    if before is after:
        return 0
    lengths = (pc.fill_null(pc.binary_length(cells), 0) for cells in (before, after))
    return int(pc.sum(pc.not_equal(*lengths)).as_py() or 0)


def check_no_nul(name: str, values: pa.BinaryArray, first: Cell) -> None:
    """Raises DataError for a cell with a NUL character."""
    if not holds_any(values, b"\0"):
        return
    has_nul = pc.fill_null(pc.match_substring(values, "\0"), False).to_numpy(zero_copy_only=False)
    if has_nul.any():
        raise DataError(
            f"Column {name!r} contains a NUL character in {first.below(np.argmax(has_nul))}: the"
            " file is damaged, or has another encoding. Export it again."
        )


def _trim(values: pa.BinaryArray, missing_values: list[str]) -> pa.BinaryArray:
    trimmed = pc.ascii_trim_whitespace(values.view(pa.string()))
    if pc.sum(pc.binary_length(trimmed)).as_py() == pc.sum(pc.binary_length(values)).as_py():
        return values
    missing = pc.is_in(trimmed, pa.array(["", *missing_values]))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed).view(pa.binary())


def _with_points(values: pa.BinaryArray) -> pa.BinaryArray:
    text = values.view(pa.string())
    points = pc.replace_substring(pc.replace_substring(text, ".", ""), ",", ".")
    is_number = pc.match_substring_regex(text, _COMMA_NUMBER, ignore_case=True)
    return pc.if_else(is_number, points, text).view(pa.binary())


# The number of bytes that are parsed at a time, which is also the maximum length of a row.
_BLOCK_SIZE = 4 << 20
# For every 500 columns, the block is larger by `_BLOCK_SIZE`, as each block takes time for each
# column.
_BLOCK_COLUMNS = 500


@dataclass(frozen=True)
class _Table:
    """A file with its dialect and header."""

    file: str
    dialect: Dialect
    header: Header
    settings: CsvSettings

    @property
    def block_size(self) -> int:
        """The number of bytes that are parsed at a time."""
        return _BLOCK_SIZE * (1 + len(self.header.names) // _BLOCK_COLUMNS)


class CsvSource(Source):
    """A reader of CSV files. The first pass infers the types; the second pass reads the rows."""

    def survey(self, files: Files) -> Survey:
        """Returns the columns of a file with the types of all rows."""
        table = self._open(files[0])
        row, trimmed, missing = table.header.first_row, Counter[str](), set[str]()
        columns = {name: ColumnSurvey() for name in table.header.names}
        missing_values = table.settings.missing_values
        for batch in _parse(table):
            for name, raw in zip(columns, batch.columns, strict=True):
                check_no_nul(name, raw, Cell(table.file, row))
                values, earlier = clean_cells(raw, table.settings), columns[name]
                trimmed[name] += count_trimmed(mark_missing(raw, missing_values), values)
                block = survey_text(values, table.file, row, earlier.kind)
                columns[name] = earlier.merge(block)
                if missing_values:
                    missing |= find_missing(raw, values, block.kind, table.settings)
            row += batch.num_rows
            count_rows(batch.num_rows)
        if row == table.header.first_row:
            raise DataError(f"{table.file} has a header but no rows: add rows, or remove the file.")
        notes = tuple(_notes(table, columns, +trimmed))
        rows = row - table.header.first_row
        return Survey(table.file, columns, notes, frozenset(missing), rows=rows)

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of a file. Each batch is a block."""
        table = self._open(files[0])
        names, row = table.header.names, table.header.first_row
        missing = list(missing_numbers(table.settings).values())
        settings = dict.fromkeys(names, table.settings)
        label = self._settings.label
        if kinds.get(label) is ColumnKind.BYTES and not self._settings.task.is_classification:
            # `ParsedLabelSource` parses text with decimal commas, so the commas are not replaced.
            settings[label] = table.settings.model_copy(update={"decimal": "."})
        for batch in _parse(table):
            first = Cell(table.file, row)
            columns = [
                _encode(name, clean_cells(values, settings[name]), kinds[name], missing, first)
                for name, values in zip(names, batch.columns, strict=True)
            ]
            yield Batch(pa.record_batch(columns, names), first)
            row += batch.num_rows

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns of the header, all as text."""
        return dict.fromkeys(self._open(files[0]).header.names, ColumnKind.BYTES)

    def _open(self, file: str) -> _Table:
        csv = self._settings.csv
        check_is_text(
            file,
            "CSV",
            is_declared=bool(csv.encoding or csv.delimiter),
            may_begin_with_values=csv.header is not None,
        )
        dialect = find_dialect(file, self._settings)
        return _Table(file, dialect, read_header(file, dialect, self._settings), self._settings.csv)


def _encode(
    name: str, cells: pa.BinaryArray, kind: ColumnKind, missing: list[float], first: Cell
) -> pa.LargeListArray:
    try:
        return encode_text(cells, kind, missing)
    except pa.ArrowInvalid:
        row = next(
            index
            for index, cell in enumerate(without_zero_fractions(without_placeholders(cells)))
            if cell.is_valid and parse_numbers(pa.array([cell.as_py()], pa.binary()), kind) is None
        )
        expected = "a whole number" if kind is ColumnKind.INT else "a number"
        raise DataError(
            f"Column {name!r} is {excerpt(cells[row].as_py())!r} in {first.below(row)}: expected"
            f" {expected}, or an empty cell for a missing value."
        ) from None


def _notes(table: _Table, columns: dict[str, ColumnSurvey], trimmed: Counter[str]) -> Iterator[str]:
    """Yields notes on the detected dialect, and on columns from which spaces are removed."""
    if note := table.dialect.note(table.settings):
        yield note
    changed = [name for name in trimmed if columns[name].kind is ColumnKind.BYTES]
    header = table.header
    raw_names = header.raw_names or header.names
    changed += [
        name
        for name, raw in zip(header.names, raw_names, strict=True)
        if name == raw.strip() != raw
    ]
    if changed:
        shown = enumerate_names(map(repr, dict.fromkeys(changed)), "and")
        yield (
            f"spaces around values or names of {shown} are removed; to keep them, write data.csv:"
            " {strip: false}"
        )


def _parse(table: _Table) -> Iterator[pa.RecordBatch]:
    """Yields blocks of rows with binary columns. Empty cells are null."""
    invalid: list[pa_csv.InvalidRow] = []

    def on_invalid_row(row: pa_csv.InvalidRow) -> str:
        invalid.append(row)
        return "error"

    file, dialect = table.file, table.dialect
    stream, last = _TextStream(file, dialect), None
    try:
        for batch in _open_parser(pa.PythonFile(stream, mode="r"), table, on_invalid_row):
            if batch.num_rows:
                last = batch
                yield batch
    except UnicodeError as error:
        raise encoding_error(file, dialect.encoding) from error
    except OSError as error:
        raise unreadable_error(file, error) from error
    except pa.ArrowInvalid as error:
        raise _syntax_error(table, error, invalid) from error
    finally:
        stream.close()
    if last is not None and stream.quotes % 2 and b"\n" in (last.columns[-1][-1].as_py() or b""):
        raise _quote_error(table)


def _open_parser(
    stream: pa.NativeFile, table: _Table, on_invalid_row: Callable[[pa_csv.InvalidRow], str]
) -> pa_csv.CSVStreamingReader:
    header, settings = table.header, table.settings
    return pa_csv.open_csv(
        stream,
        # With threads, Arrow would not report the number of an invalid row; they would not save
        # time either.
        read_options=pa_csv.ReadOptions(
            use_threads=False,
            block_size=table.block_size,
            column_names=header.names if header.raw_names is None else None,
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=table.dialect.delimiter,
            quote_char=settings.quote or False,
            newlines_in_values=settings.quote is not None,
            invalid_row_handler=on_invalid_row,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(header.raw_names or header.names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


class _TextStream(io.RawIOBase):
    """A stream of a file's text in UTF-8 that counts the quotation marks.

    Arrow does not report a quotation mark that is never closed; an odd count reveals it. Reading
    raises UnicodeDecodeError for bytes that are invalid in the file's encoding.
    """

    def __init__(self, file: str, dialect: Dialect) -> None:
        self._stream = open_text(file, dialect.encoding)
        self._quote = (dialect.quote or "").encode()
        self._decoder = codecs.getincrementaldecoder(UTF8)()
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._decoder.decode(data, final=not data)
        if self._quote:
            self.quotes += data.count(self._quote)
        return data

    def close(self) -> None:
        self._stream.close()
        super().close()


def _syntax_error(table: _Table, error: Exception, invalid: list[pa_csv.InvalidRow]) -> DataError:
    if invalid:
        row = invalid[0]
        hint = "write quotation marks around values that contain the delimiter"
        if table.dialect.delimiter == ",":
            hint = "write quotation marks around values that contain a comma"
        if row.actual_columns < row.expected_columns:
            hint = "the row is cut off, or a value contains a line break without quotation marks"
        if "\n" in row.text:
            hint = "a quotation mark in the row may not be closed"
        elif row.actual_columns > row.expected_columns and row.number == _FIRST_ROW:
            hint = _surplus_hint(table, row)
        return DataError(
            f"Row {row.number} of {table.file} has {counted(row.actual_columns, 'column')}, but the"
            f" header has {row.expected_columns}: {hint}."
        )
    if "straddling" in str(error):
        return _quote_error(table)
    return DataError(f"{table.file} is not CSV ({reason_of(error)}): export it again.")


_FIRST_ROW = 2


def _surplus_hint(table: _Table, row: pa_csv.InvalidRow) -> str:
    """Returns what to do if the first row has more cells than the header."""
    delimiter, surplus = table.dialect.delimiter, row.actual_columns - row.expected_columns
    if row.text.rstrip("\r\n").endswith(delimiter * surplus):
        command = trim_command(table.file, delimiter, surplus, "2,$")
        return f"if all rows end with {delimiter!r}, remove it by `{command}`"
    hint = f"write quotation marks around values that contain {delimiter!r}"
    if surplus == 1:
        hint += ", or a name for the first column into the header, if it contains row names"
    return hint


class QuoteError(DataError):
    """A quotation mark that is never closed; perhaps quotation marks have no special meaning."""


def _quote_error(table: _Table) -> QuoteError:
    return QuoteError(
        f"A quotation mark in {table.file} is never closed, or a row is longer than"
        f" {table.block_size >> 20} MiB: close the quotation mark. Within a value, quotation marks"
        " are written twice."
    )
