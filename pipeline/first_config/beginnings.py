"""The beginning of data, so that a look at 3 GB takes as long as a look at 8 MB."""

from __future__ import annotations

import codecs
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from components.example_gen.files import open_stream, unreadable_error
from components.example_gen.first_look import MAX_ROWS, FirstRows
from components.example_gen.formats import CsvSettings
from components.example_gen.undeclared import read_undeclared
from pipeline.data.first_look import expanded_size
from pipeline.first_config.found_data import FoundData
from trainer_module.errors import DataError

MAX_BYTES = 8 << 20
"""The maximum size of the part of the data that is read, in bytes without compression."""


@dataclass(frozen=True)
class Beginning:
    """The first rows of data, and the files that contain them."""

    rows: FirstRows
    dialect: CsvSettings
    mixed: tuple[str, ...]
    """The columns that contain both numbers and text."""
    placeholders: Mapping[str, list[str]]
    """The texts such as NA in columns of numbers, by column."""
    files: tuple[str, ...]
    """The files that were read: the files of the data, or copies of their beginnings."""
    originals: tuple[str, ...]
    is_complete: bool
    """Whether the files contain all rows."""


def read_beginning(data: FoundData, scratch: Path, label: str | None = None) -> Beginning:
    """Reads the first rows of a table.

    Args:
      scratch: an empty folder for copies of the beginnings of large files.
      label: the label if it is known.

    Raises:
      DataError: the files cannot be used; the message names the original files.
    """
    files, originals = _first_files(data, scratch)
    if data.format == "tfrecord":
        files, originals = files[:1], originals[:1]
    with original_names(files, originals):
        found = read_undeclared(data.format, files, label)
    is_complete = originals == data.files and files == originals and found.rows.is_complete
    return Beginning(
        found.rows,
        found.dialect,
        found.mixed,
        found.placeholders,
        files,
        originals,
        is_complete,
    )


@contextmanager
def original_names(files: Sequence[str], originals: Sequence[str]) -> Iterator[None]:
    """Replaces the names of copies by the names of the originals in the errors of the block."""
    try:
        yield
    except DataError as error:
        text = str(error)
        for file, original in zip(files, originals, strict=True):
            text = text.replace(file, original)
        raise DataError(text) from None


def _first_files(data: FoundData, scratch: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the files to read and their originals; the last file may be a copy of a part."""
    chosen, left = list[str](), MAX_BYTES
    for original in data.files:
        size = expanded_size(original, Path(original).stat().st_size)
        if size <= left or data.format == "tfrecord":
            chosen.append(original)
            left -= size
        elif not chosen:
            chosen.append(_copy_beginning(data.format, original, scratch))
        if size >= left or len(chosen) == _MAX_FILES:
            break
    return tuple(chosen), data.files[: len(chosen)]


_MAX_FILES = 100
"""The maximum number of files that are read."""


def _copy_beginning(data_format: str, file: str, scratch: Path) -> str:
    name = re.sub(r"\.gz$", "", Path(file).name, flags=re.IGNORECASE)
    copy = scratch / name
    if data_format == "parquet":
        _copy_rows(file, copy)
    else:
        _copy_lines(file, copy)
    return str(copy)


def _copy_lines(file: str, copy: Path) -> None:
    """Copies the first lines of a text. The last line of the copy is complete, and no quotation
    mark is open.
    """
    try:
        with open_stream(file) as stream:
            block = stream.read(MAX_BYTES)
    except OSError as error:
        raise unreadable_error(file, error) from error
    # In Latin-1 each byte is a character, also of other encodings whose line break is one byte.
    encoding = "utf-16" if block[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "latin-1"
    text = block.decode(encoding, errors="ignore")
    end = text.rfind("\n") + 1
    # A quotation mark that is open at the end of a line is closed in one of the lines before it.
    for _ in range(_MAX_OPEN_LINES):
        if text.count('"', 0, end) % 2 == 0 or end <= 1:
            break
        end = text.rfind("\n", 0, end - 1) + 1
    copy.write_bytes(text[: end or len(text)].encode(encoding))


_MAX_OPEN_LINES = 1_000


def _copy_rows(file: str, copy: Path) -> None:
    """Copies the first rows of a Parquet file."""
    try:
        with pq.ParquetFile(file) as parquet:
            batch = next(parquet.iter_batches(batch_size=MAX_ROWS), None)
            table = parquet.schema_arrow.empty_table()
            table = table if batch is None else pa.Table.from_batches([batch])
    except (OSError, pa.ArrowInvalid):
        shutil.copyfile(file, copy)  # Reading the copy reports the damage.
        return
    pq.write_table(table, copy)
