"""Whether a file holds a row, by its beginning; `formats` names these functions.

A file that cannot be read counts as one that does: whoever reads it says what is wrong with it.
"""

from __future__ import annotations

import csv
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from components.example_gen.csv_settings import CsvSettings
from components.example_gen.files.opening import open_file, open_stream
from components.example_gen.sources.csv.dialect import Dialect, find_encoding, read_text
from trainer_module.errors import DataError

_BLOCK_BYTES = 1 << 16


def csv_holds_rows(file: str, settings: CsvSettings) -> bool:
    """Whether there is a row besides the one that names the columns."""
    needed = 2 if settings.header is None else 1
    try:
        encoding = settings.encoding or find_encoding(file)
        dialect = Dialect(settings.delimiter or ",", encoding, settings.quote)
        with read_text(file, encoding) as text:
            return len(list(islice(dialect.rows(text), needed))) == needed
    except (csv.Error, DataError, OSError, UnicodeError):
        return True


def text_holds_lines(file: str, settings: CsvSettings) -> bool:
    """Whether there is anything but spaces and ends of lines."""
    del settings
    try:
        with open_stream(file) as stream:
            while block := stream.read(_BLOCK_BYTES):
                if block.strip():
                    return True
    except OSError:
        return True
    return False


def parquet_holds_rows(file: str, settings: CsvSettings) -> bool:
    """Whether the footer counts any."""
    del settings
    try:
        with open_file(file) as stream:
            return bool(pq.read_metadata(stream).num_rows)
    except (pa.ArrowInvalid, OSError):
        return True


def holds_bytes(file: str, settings: CsvSettings) -> bool:
    """Whether there is anything at all, in a .gz file within."""
    del settings
    try:
        with open_stream(file) as stream:
            return bool(stream.read(1))
    except OSError:
        return True
