"""The detection of a CSV file's dialect: encoding, delimiter and header.

The dialect of each file is detected separately, as different programs may have written the files.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa

from components.example_gen.columns.type_inference import is_number
from components.example_gen.conversions import python_command
from components.example_gen.files import is_gzip, open_stream, unreadable_error
from components.example_gen.formats import CsvSettings, ExampleGenSettings
from trainer_module.errors import DataError, counted
from trainer_module.features.number_format import is_placeholder

UTF8 = "utf-8"
# UTF-32 precedes UTF-16, as the byte order mark of UTF-32 begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: UTF8,
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BLOCK_BYTES = 1 << 20
_ENCODING_BLOCKS = 16
"""The number of blocks from which the encoding is detected. If later blocks do not have the
encoding, reading them raises an error."""
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_DELIMITER_BYTES = 1 << 16
_DELIMITER_ROWS = 100
_TABLE_SHARE = 0.5
"""The minimum share of rows of several cells below a title."""
_RARE = "^~:#@&/\\ "
"""The delimiters that are not detected by default, as text contains them."""
HEADER_ROWS = 101
"""The number of rows from which is decided whether the first row is a header."""
INDEX = "Unnamed: 0"
"""The name of a first column without a name, which pandas writes and reads as its index."""
_SHOWN_NAME = 80
"""The maximum number of characters of a column's name in a message."""
_MIN_REPEATS = 2
"""The minimum number of rows that repeat a cell of the first row, if the row is data."""


@dataclass(frozen=True)
class Dialect:
    """The dialect of one file."""

    delimiter: str
    encoding: str
    quote: str | None

    def rows(self, text: Iterator[str]) -> Iterator[list[str]]:
        """Returns the rows of a text. Empty rows are left out."""
        return (
            row for row in csv.reader(text, **_reader_options(self.delimiter, self.quote)) if row
        )

    def note(self, settings: CsvSettings) -> str:
        """Returns a note on the detected delimiter and encoding.

        The note does not contain commas, UTF-8 and the settings of the config. It may be empty.
        """
        parts = []
        if settings.delimiter is None and self.delimiter != ",":
            parts.append(f"cells are separated by {_DELIMITERS[self.delimiter]}")
        if settings.encoding is None and self.encoding != UTF8:
            parts.append(f"the encoding is {self.encoding}")
        return " and ".join(parts)


def find_dialect(file: str, settings: ExampleGenSettings) -> Dialect:
    """Returns the dialect of a file. What the settings do not set is detected from the beginning of
    the file.

    Raises:
      DataError: the file cannot be read.
    """
    configured = settings.csv
    encoding = configured.encoding or find_encoding(file)
    delimiter = configured.delimiter or _find_delimiter(file, encoding, settings)
    return Dialect(delimiter, encoding, configured.quote)


def open_text(file: str, encoding: str) -> pa.NativeFile:
    """Returns a stream of a file's text in UTF-8.

    A file in UTF-8 is not transcoded, so the stream may contain invalid bytes.
    """
    stream = open_stream(file)
    if codecs.lookup(encoding).name == UTF8:
        return stream
    return pa.transcoding_input_stream(stream, encoding, UTF8)


def read_text(file: str, encoding: str) -> io.TextIOWrapper:
    """Returns a text stream of a file for Python's standard library."""
    stream = open_text(file, encoding)
    return io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")


def encoding_error(file: str, encoding: str) -> DataError:
    """Returns the error for a file with bytes that are invalid in its encoding."""
    line = _undecodable_line(file, encoding)
    location = f"line {line}" if line else "the file"
    return DataError(
        f"{file} is read as {encoding}, but {location} contains bytes that are invalid in"
        f" {encoding}: save the file as UTF-8, or set its encoding, such as"
        " data.csv: {encoding: cp1252}."
    )


def find_encoding(file: str) -> str:
    """Returns the encoding of a file.

    A byte order mark determines the encoding. Without a mark, the encoding is UTF-8 for
    valid UTF-8, and otherwise the most likely encoding.

    Raises:
      DataError: the file cannot be read.
    """
    decoder, previous = codecs.getincrementaldecoder(UTF8)(), b""
    try:
        with open_stream(file) as stream:
            for _ in range(_ENCODING_BLOCKS):
                block = stream.read(_BLOCK_BYTES)
                marks = (name for mark, name in _MARKS.items() if block.startswith(mark))
                if not previous and (encoding := next(marks, None)):
                    return encoding
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError:
                    return _guess_encoding(block or previous)
                if not block:
                    break
                previous = block
    except OSError as error:
        raise unreadable_error(file, error) from error
    return UTF8


def _guess_encoding(block: bytes) -> str:
    """Returns the most likely encoding of bytes that are not valid UTF-8."""
    text = block.decode(UTF8, errors="replace")
    broken = text.count("\N{REPLACEMENT CHARACTER}")
    others = sum(not character.isascii() for character in text) - broken
    if others > broken:
        return UTF8  # The file is damaged UTF-8; reading it raises the error.
    try:
        block.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _find_delimiter(file: str, encoding: str, settings: ExampleGenSettings) -> str:
    """Returns the delimiter with which the most of the first rows have as many cells as the header.

    A delimiter that splits off the label's name is preferred.
    """
    try:
        with read_text(file, encoding) as text:
            head = text.read(_DELIMITER_BYTES)
    except OSError as error:
        raise unreadable_error(file, error) from error
    except UnicodeError as error:
        raise encoding_error(file, encoding) from error
    lines = head.splitlines(keepends=True)
    # The last line may be incomplete.
    lines = lines[:-1] if len(head) == _DELIMITER_BYTES and len(lines) > 1 else lines

    def score(delimiter: str) -> tuple[bool, bool, float, int]:
        options = _reader_options(delimiter, settings.csv.quote)
        try:
            rows = [row for row in islice(csv.reader(lines, **options), _DELIMITER_ROWS) if row]
        except csv.Error:
            return (False, False, 0, 0)
        if not rows or len(rows[0]) == len(rows[-1]) == 1:
            return (False, False, 0, 0)
        # A title may precede the names of the columns.
        usual = rows[0] if len(rows[0]) > 1 else rows[-1]
        has_label = settings.label in map(str.strip, rows[0])
        equal_share = sum(len(row) == len(usual) for row in rows) / len(rows)
        if usual is not rows[0] and equal_share < _TABLE_SHARE:
            return (False, False, 0, 0)
        return (usual is rows[0], has_label, equal_share, len(usual))

    return max(_DELIMITERS, key=score)


def _reader_options(delimiter: str, quote: str | None) -> dict[str, Any]:
    if quote is None:
        return {"delimiter": delimiter, "quoting": csv.QUOTE_NONE}
    return {"delimiter": delimiter, "quotechar": quote}


def _undecodable_line(file: str, encoding: str) -> int | None:
    """Returns the number of the first line with bytes that are invalid in an encoding.

    Lines count from 1. The result is None for UTF-16 and UTF-32.
    """
    if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        return None  # The loop below splits lines at single bytes.
    with open_stream(file) as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return number
    return None


@dataclass(frozen=True)
class Header:
    """The names of a file's columns."""

    names: list[str]
    raw_names: list[str] | None
    """The names as written in the file, with spaces, or None if the file has no header."""

    @property
    def first_row(self) -> int:
        """The row number of the first row of data."""
        return 1 if self.raw_names is None else 2


def read_header(file: str, dialect: Dialect, settings: ExampleGenSettings) -> Header:
    """Returns the names of the columns.

    Raises:
      DataError: the names are not unique or are empty, the first row looks like data, or there are
        no rows.
    """
    try:
        with read_text(file, dialect.encoding) as text:
            rows = dialect.rows(text)
            first, others = next(rows, None), list(islice(rows, 1))
            with suppress(csv.Error, UnicodeError):  # The survey reports later rows.
                others += islice(rows, HEADER_ROWS - len(others))
    except OSError as error:
        raise unreadable_error(file, error) from error
    except UnicodeError as error:
        raise encoding_error(file, dialect.encoding) from error
    except csv.Error as error:
        raise DataError(
            f"The first rows of {file} are not CSV ({error}): export the file again."
        ) from error
    if first is None:
        raise DataError(f"{file} is empty: write a header and rows, or remove the file.")
    if settings.csv.header is not None:
        if any(len(row) != len(settings.csv.header) for row in (first, *others)):
            _check_spaces(file, [first, *others], dialect, settings)
        _check_configured(file, first, settings.csv.header)
        return Header(settings.csv.header, None)
    names = [name.strip() for name in first] if settings.csv.strip else list(first)
    if not names[0] and len(names) > 1 and INDEX not in names:
        names[0] = INDEX
    if settings.label not in names:
        _check_spaces(file, [first, *others], dialect, settings)
        _check_title(file, [first, *others], dialect)
        if lacks_header(first, others):
            raise _no_header_error(file, names, settings)
    if len(names) == 1 and settings.label not in names:
        _check_delimiter(file, names[0], dialect.encoding)
    _check_names(file, names, others, dialect, settings)
    if not others:
        raise DataError(f"{file} has a header but no rows: add rows, or remove the file.")
    return Header(names, first)


def _check_configured(file: str, first: list[str], names: list[str]) -> None:
    """Raises DataError if the names in the config contradict a file's first row."""
    if [cell.strip() for cell in first] == names:
        raise DataError(
            f"The first row of {file} contains the names of the columns: remove data.csv.header."
        )
    if len(first) != len(names):
        raise DataError(
            f"data.csv.header names {counted(len(names), 'column')}, but the first row of {file}"
            f" has {counted(len(first), 'cell')}: list every column once, in the order of the file."
        )


def _check_title(file: str, rows: Sequence[Sequence[str]], dialect: Dialect) -> None:
    """Raises DataError if lines such as a title or comments precede the names of the columns."""
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    usual = sorted(filled)[len(filled) // 2]
    if usual < 2 or not rows[0][0].strip() or any(map(str.strip, rows[0][1:])):
        return
    start = next(index for index, count in enumerate(filled) if count >= usual)
    # Without the name of the second column, the first row is a header.
    if len(rows[0]) > 1 and any(map(is_number, rows[start])):
        return
    line = _line_of_row(file, start, dialect)
    raise DataError(
        f"The first row of {file} contains only {rows[0][0].strip()[:_SHOWN_NAME]!r}, but line"
        f" {line} has {counted(filled[start], 'cell')}: remove what precedes the names of the"
        f" columns, for example by `{_filtered(file, f'tail -n +{line}')}`."
    )


def _line_of_row(file: str, index: int, dialect: Dialect) -> int:
    """Returns the number of the line, from 1, in which a row begins that is not empty."""
    with read_text(file, dialect.encoding) as text:
        reader = csv.reader(text, **_reader_options(dialect.delimiter, dialect.quote))
        begin = 1
        for row in reader:
            if row and not index:
                break
            index -= bool(row)
            begin = reader.line_num + 1
    return begin


def _check_names(
    file: str,
    names: list[str],
    others: Sequence[Sequence[str]],
    dialect: Dialect,
    settings: ExampleGenSettings,
) -> None:
    if any("\udc80" <= character <= "\udcff" for name in names for character in name):
        raise encoding_error(file, dialect.encoding)
    repeated = [name for name, count in Counter(names).items() if count > 1 and name]
    if repeated:
        raise DataError(
            f"The header of {file} contains {repeated[0]!r} {names.count(repeated[0])} times: give"
            " each column a different name. If the first row is data,"
            f" {_header_advice(len(names), settings.label)}"
        )
    if "" in names:
        raise _no_name_error(file, names, others, dialect)
    for name in names:
        if "\0" in name:
            raise DataError(
                f"The name {name[:20]!r} in row 1 of {file} contains a NUL character: remove the"
                " character. If the file is in UTF-16, write data.csv: {encoding: utf-16-le}."
            )


def _no_name_error(
    file: str, names: list[str], others: Sequence[Sequence[str]], dialect: Dialect
) -> DataError:
    """Returns the error for a column without a name, such as one after the last delimiter."""
    index, count = names.index(""), len(names)
    error = f"Column {index + 1} of {count} has no name in row 1 of {file}"
    if any(names[index:]) or any("".join(row[index:]).strip() for row in others):
        return DataError(f"{error}: add the name, or remove the column.")
    lines = "" if any(len(row) == count for row in others) else "1"
    command = trim_command(file, dialect.delimiter, count - index, lines)
    place = "the header" if lines else "each row"
    return DataError(
        f"{error}, as {place} ends with {counted(count - index, 'delimiter')} too many: remove"
        f" what is too much by `{command}`."
    )


def trim_command(file: str, delimiter: str, count: int, lines: str = "") -> str:
    """Returns the command that removes the delimiters at the ends of lines.

    Args:
      lines: the address of the lines for `sed`, or an empty string for all lines.
    """
    character = "\\t" if delimiter == "\t" else re.escape(delimiter)
    repeated = f"{character}{{{count}}}" if count > 1 else character
    return _filtered(file, f"sed -E '{lines}s/{repeated}(\\r?)$/\\1/'")


def lacks_header(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row of a file looks like data, not like the names of columns.

    A name is not a number, unless the names count up, as 2024, 2025, 2026 do. A name does not occur
    again and again among the values of its column, unless another name is above numbers.
    """
    names = [name.strip() for name in first]
    if any(map(is_number, names)):
        return not _count_up([name for name in names if is_number(name)])
    others = [row for row in others if row != first]  # Files that were joined repeat the header.
    words = [index for index, name in enumerate(names) if name and not is_placeholder(name)]
    if any(_are_numbers(index, others) for index in words):
        return False
    repeats = (
        sum(len(row) > index and row[index].strip() == name for row in others)
        for index, name in enumerate(names)
        if name
    )
    return any(count >= _MIN_REPEATS for count in repeats)


def _are_numbers(index: int, rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether the cells of a column are numbers, and two or more are not empty."""
    cells = [row[index] for row in rows if len(row) > index and row[index].strip()]
    return len(cells) > 1 and all(map(is_number, cells))


def _count_up(numbers: Sequence[str]) -> bool:
    """Returns whether numbers are two or more consecutive integers, in order."""
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):
        return False
    return all(int(after) - int(before) == 1 for before, after in pairwise(numbers))


def find_rare_delimiter(file: str, encoding: str) -> str | None:
    """Returns the delimiter of a file of one column, or None if its lines have none in common.

    The delimiter is a character that is not detected by default, and that occurs equally often in
    each of the first lines. Spaces that follow each other are no delimiters.
    """
    try:
        with read_text(file, encoding) as text:
            lines = text.read(_DELIMITER_BYTES).splitlines()[:_DELIMITER_ROWS]
    except (OSError, UnicodeError):
        return None
    lines = [line.strip() for line in lines if line.strip()]
    if len(lines) < 2:
        return None
    delimiters = _RARE.rstrip() if any("  " in line for line in lines) else _RARE
    counts = {character: {line.count(character) for line in lines} for character in delimiters}
    equal = {c: min(n) for c, n in counts.items() if len(n) == 1 and min(n) > 0}
    return max(equal, key=equal.__getitem__, default=None)


def _check_delimiter(file: str, name: str, encoding: str) -> None:
    """Raises DataError for a file of one column whose lines have another delimiter in common."""
    delimiter = find_rare_delimiter(file, encoding)
    if delimiter is not None:
        raise DataError(
            f"{file} has only the column {name[:_SHOWN_NAME]!r}, but {delimiter!r} occurs equally"
            f" often in each line: if it separates the columns, write data.csv: {{delimiter:"
            f" {json.dumps(delimiter)}}}."
        )


def _check_spaces(
    file: str, rows: Sequence[Sequence[str]], dialect: Dialect, settings: ExampleGenSettings
) -> None:
    """Raises DataError if runs of spaces or tabs separate the columns.

    Args:
      rows: the cells of the first rows, as the detected delimiter separates them.
    """
    if settings.csv.delimiter is not None or (len(rows[0]) > 1 and dialect.delimiter != "\t"):
        return
    with read_text(file, dialect.encoding) as text:
        filled = (line.strip() for line in text if not line.isspace())
        lines = list(islice(filled, HEADER_ROWS))
    cells = [_WORD.findall(line) for line in lines]
    usual, widths = len(cells[0]), {len(row) for row in rows}
    is_even = all(len(row) == usual for row in cells) and any(map(is_number, cells[-1]))
    is_finer = len(widths) > 1 or usual > max(widths)
    if not is_even or not is_finer or not any(map(_RUN.search, lines)):
        return
    command = _filtered(file, _COMMAS)
    if any('"' in line for line in lines):
        command = python_command(
            f'import pandas; pandas.read_csv({json.dumps(file, ensure_ascii=False)}, sep=r"\\s+",'
            ' header=None, dtype=str).to_csv("table.csv", index=False, header=False)'
        )
    raise DataError(
        f"{file} separates its columns by several spaces or tabs: write commas, for example by"
        f" `{command}`."
    )


_WORD = re.compile(r'"[^"]*"|\S+')
_RUN = re.compile(r"\s\s")
_COMMAS = "sed -E 's/^[[:space:]]+//; s/[[:space:]]+/,/g'"
"""The command that writes commas in place of runs of spaces."""


def _filtered(file: str, command: str) -> str:
    """Returns the command line that writes table.csv from a file by a command."""
    quoted = shlex.quote(file)
    words = f"zcat {quoted} | {command}" if is_gzip(file) else f"{command} {quoted}"
    return f"{words} > table.csv"


def _no_header_error(file: str, names: list[str], settings: ExampleGenSettings) -> DataError:
    shown = ", ".join(repr(name) for name in names[:3])
    return DataError(
        f"The first row of {file} looks like data ({shown}{', ...' if len(names) > 3 else ''}),"
        f" not like a header: {_header_advice(len(names), settings.label)}"
    )


def _header_advice(columns: int, label: str) -> str:
    """Returns the advice to list the columns of a file without a header in the config."""
    shown = [f"column_{number}" for number in range(1, min(columns, 4))]
    more = ["..."] if columns > 4 else []
    return (
        f"list its {counted(columns, 'column')} in the config, such as data.csv: {{header:"
        f" [{', '.join([*shown, *more, label])}]}}."
    )
