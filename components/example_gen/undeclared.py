"""Reads the first rows of data whose label, dialect and types are not declared yet.

The module does not import TensorFlow.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from components.example_gen.checks.dates import find_dates, tally_dates
from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.columns.type_inference import ColumnSurvey, is_comma_number
from components.example_gen.conversions import ONE_OBJECT, kind_by_name, remedy
from components.example_gen.files import (
    BINARY,
    FORMATS_OF_KINDS,
    JSON_LINES,
    MAGIC_BYTES,
    kind_of_file,
    kind_of_text,
    looks_like_text,
    open_stream,
    read_head,
)
from components.example_gen.first_look import MAX_ROWS, FirstRows, make_first_rows, read_first_rows
from components.example_gen.formats import CsvSettings, ExampleGenSettings
from components.example_gen.idx_files import is_idx
from components.example_gen.record_files import is_record, read_first_records
from components.example_gen.sources import make_source
from components.example_gen.sources.csv_dialect import (
    HEADER_ROWS,
    Dialect,
    find_dialect,
    find_rare_delimiter,
    lacks_header,
    read_text,
)
from components.example_gen.sources.csv_source import QuoteError
from components.example_gen.sources.surveys import add_surveys
from trainer_module.errors import DataError
from trainer_module.settings.tasks import as_task

_NO_LABEL = "\0"
"""The name of the label, which no column has, while the label is not known."""
_MAX_BYTES = 16 << 20
"""The number of bytes after which no further tf.Example or line is read."""


@dataclass(frozen=True)
class Undeclared:
    """Rows of data, and the settings with which they were read."""

    rows: FirstRows
    dialect: CsvSettings = field(default_factory=CsvSettings)
    mixed: tuple[str, ...] = ()
    """The columns that contain both numbers and text."""
    placeholders: Mapping[str, list[str]] = field(default_factory=dict)
    """The texts such as NA in columns of numbers, which count as missing in features."""


def detect_format(file: str) -> str:
    """Returns the format of a local file by its content: csv, jsonl, parquet, tfrecord or idx.

    Raises:
      DataError: the file is empty, cannot be read, or has no such format.
    """
    head = read_head(file)
    if not head:
        raise DataError(f"{file} is empty: write a header and rows, or name another file.")
    kind = kind_of_file(head[:MAGIC_BYTES])
    if kind in FORMATS_OF_KINDS and kind != JSON_LINES:
        return FORMATS_OF_KINDS[kind]
    if kind and kind != JSON_LINES:
        raise _kind_error(file, kind)
    if is_idx(head):
        return "idx"
    text = _decode(head)
    if text is None:
        if is_record(head):
            return "tfrecord"
        raise DataError(f"{file} is {BINARY}: export it as CSV, JSON lines, Parquet or TFRecord.")
    return _text_format(file, text.lstrip("\ufeff \r\n\t"))


def _decode(head: bytes) -> str | None:
    """Returns the beginning of a file as text, or None for bytes that are not text."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return head.decode("utf-16", errors="replace")
    # UTF-8 has no control characters except white space, nor do the encodings of one byte.
    return head.decode(errors="replace") if looks_like_text(head) else None


def _text_format(file: str, text: str) -> str:
    if not text:
        raise DataError(f"{file} holds only spaces: write a header and rows, or name another file.")
    if kind := kind_of_text(text):
        raise _kind_error(file, kind)
    first = text.splitlines()[0]
    # The first object may be longer than the beginning of the file.
    if first[0] == "{" and (isinstance(_parse(first), dict) or first == text):
        if _is_one_line(file):
            raise _kind_error(file, ONE_OBJECT)
        return "jsonl"
    return "csv"


def _is_one_line(file: str) -> bool:
    """Returns whether a text has only one line; a long text has several."""
    with open_stream(file) as stream:
        text = stream.read(_MAX_BYTES)
    return len(text) < _MAX_BYTES and b"\n" not in text.rstrip()


def _kind_error(file: str, kind: str) -> DataError:
    kind = kind_by_name(kind, file)
    advice = remedy(kind, file)
    if "image" in kind:
        advice = "name a folder with a subfolder of pictures for each class, or a table of paths"
    return DataError(f"{file} is {kind}, which cannot be read: {advice}.")


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def read_undeclared(data_format: str, files: Sequence[str], label: str | None = None) -> Undeclared:
    """Reads the first rows of files.

    Args:
      data_format: csv, jsonl, parquet or tfrecord.
      files: local files of a size that may be read completely.
      label: the label if it is known; the first row of a CSV file that contains it is a header.

    Raises:
      DataError: the files cannot be used.
    """
    if data_format == "tfrecord":
        return Undeclared(_read_records(files[0]))
    if data_format != "csv":
        return _read(data_format, files, CsvSettings())
    dialect, known_label = _find_csv(files[0], label)
    try:
        return _read(data_format, files, dialect, known_label)
    except QuoteError:
        # Quotation marks in sentences may stand for inches, or may not be closed.
        with suppress(DataError):
            unquoted = dialect.model_copy(update={"quote": None})
            return _read(data_format, files, unquoted, known_label)
        raise


def columns_of(data_format: str, file: str) -> list[str]:
    """Returns the sorted names of the columns of a local table.

    Raises:
      DataError: the file cannot be read.
    """
    dialect = _find_csv(file, None)[0] if data_format == "csv" else CsvSettings()
    columns = make_source(_settings(data_format, dialect)).peek((file,))
    return sorted(columns.keys() - {_NO_LABEL})


def check_header(file: str, dialect: CsvSettings, label: str) -> None:
    """Raises DataError if a CSV file has no header that could contain the label.

    Args:
      dialect: the dialect, whose header is ignored.
    """
    settings = _settings("csv", dialect.model_copy(update={"header": None}))
    make_source(settings.model_copy(update={"label": label})).peek((file,))


def _settings(
    data_format: str, dialect: CsvSettings, mixed: tuple[str, ...] = (), label: str = _NO_LABEL
) -> ExampleGenSettings:
    return ExampleGenSettings(
        format=data_format,
        label=label,
        task=as_task("multiclass"),
        csv=dialect,
        mixed_columns=mixed,
        may_lack_label=True,
    )


def _find_csv(file: str, label: str | None) -> tuple[CsvSettings, str]:
    """Returns the settings of a CSV file that differ from the detected ones, the delimiter and the
    header, and the label with which the file is read.

    If the first row contains the label, it is a header even if it looks like data.
    """
    settings = CsvSettings()
    rows, dialect = _first_rows(file, settings)
    if rows and len(rows[0]) == 1:
        delimiter = find_rare_delimiter(file, dialect.encoding)
        if delimiter is not None:
            settings = CsvSettings(delimiter=delimiter)
            rows, _ = _first_rows(file, settings)
    if rows and lacks_header(rows[0], rows[1:]):
        if label is not None and label in map(str.strip, rows[0]):
            return settings, label
        header = [f"column_{number}" for number, _ in enumerate(rows[0], 1)]
        settings = settings.model_copy(update={"header": header})
    return settings, _NO_LABEL


def _first_rows(file: str, settings: CsvSettings) -> tuple[list[list[str]], Dialect]:
    dialect = find_dialect(file, _settings("csv", settings))
    try:
        with read_text(file, dialect.encoding) as text:
            return list(islice(dialect.rows(text), HEADER_ROWS)), dialect
    except (OSError, UnicodeError, csv.Error):  # The survey of the file reports the error.
        return [], dialect


def _read(
    data_format: str, files: Sequence[str], dialect: CsvSettings, label: str = _NO_LABEL
) -> Undeclared:
    source = make_source(_settings(data_format, dialect, label=label))
    columns = add_surveys([source.survey(group) for group in source.plan(files)])
    mixed = tuple(name for name, column in columns.items() if _needs_type(column))
    has_commas = any(_has_decimal_commas(columns[name]) for name in mixed)
    if data_format == "csv" and has_commas and dialect.decimal == ".":
        return _read(data_format, files, dialect.model_copy(update={"decimal": ","}), label)
    settings = _settings(data_format, dialect, mixed, label)
    rows = read_first_rows(settings, files, is_spread=True)
    known = {name: values for name, values in rows.columns.items() if name != _NO_LABEL}
    placeholders = {
        name: sorted(column.placeholders)
        for name, column in columns.items()
        if column.numbers and name not in mixed
    }
    return Undeclared(replace(rows, columns=known), dialect, mixed, placeholders)


def _needs_type(column: ColumnSurvey) -> bool:
    """Returns whether ExampleGen requires the type of a column, which is not clear from its values.

    Such a column contains numbers and text.
    """
    return column.kind is ColumnKind.BYTES and column.first_text is not None and column.is_mixed


def _has_decimal_commas(column: ColumnSurvey) -> bool:
    return column.first_text is not None and is_comma_number(column.first_text.value)


def _read_records(file: str) -> FirstRows:
    batch = read_first_records(file, MAX_ROWS, _MAX_BYTES)
    dates = find_dates(tally_dates(batch, Cell(file, 1), _settings("tfrecord", CsvSettings())))
    return make_first_rows([batch], batch.num_rows < MAX_ROWS, batch.num_rows, dates)
