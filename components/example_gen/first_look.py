"""Checks of local files with ExampleGen's own checks, before TFX is imported.

`formats.FORMATS` names these functions.
"""

from __future__ import annotations

import csv
import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.column_types.dates import Dates
from components.example_gen.checks.dates import DateTally, find_dates, merge_tallies, tally_dates
from components.example_gen.checks.report import ChunkReport, check_report, is_kept
from components.example_gen.checks.values import read_order
from components.example_gen.columns.encoded import flat_columns, list_columns
from components.example_gen.files import open_file, open_stream, unreadable_error
from components.example_gen.formats import IMAGE_FEATURE, CsvSettings, ExampleGenSettings, OnBadFile
from components.example_gen.idx_files import pair_files
from components.example_gen.picture_files import (
    broken_image_error,
    check_files_exist,
    open_picture,
    picture_files,
    select_images,
)
from components.example_gen.sources import make_source
from components.example_gen.sources.csv_dialect import Dialect, find_encoding, read_text
from components.example_gen.sources.surveys import count_values, merge_surveys, with_known_dates
from trainer_module.errors import DataError

ALL = "all"
"""The name of the split for all rows, as rows are not assigned to splits yet."""


_BLOCK_BYTES = 1 << 16


def csv_holds_rows(file: str, settings: CsvSettings) -> bool:
    """Returns whether a CSV file has a row in addition to the header.

    The result is True for a file that cannot be read, as reading it later reports the error.
    """
    min_rows = 2 if settings.header is None else 1
    try:
        encoding = settings.encoding or find_encoding(file)
        dialect = Dialect(settings.delimiter or ",", encoding, settings.quote)
        with read_text(file, encoding) as text:
            return len(list(islice(dialect.rows(text), min_rows))) == min_rows
    except (csv.Error, DataError, OSError, UnicodeError):
        return True


def text_holds_lines(file: str, settings: CsvSettings) -> bool:
    """Returns whether a file contains anything but white space, or cannot be read."""
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
    """Returns whether a Parquet file has rows, or cannot be read."""
    del settings
    try:
        with open_file(file) as stream:
            return bool(pq.read_metadata(stream).num_rows)
    except (pa.ArrowInvalid, OSError):
        return True


def holds_bytes(file: str, settings: CsvSettings) -> bool:
    """Returns whether a file has content or cannot be read. A .gz file is decompressed."""
    del settings
    try:
        with open_stream(file) as stream:
            return bool(stream.read(1))
    except OSError:
        return True


# The maximum bytes of pictures to decode, which takes about 2 seconds. The other pictures are only
# opened.
_MAX_DECODED = 4 << 20
# The maximum number of files to open, which takes about 2 seconds. The files are from all classes.
_MAX_OPENED = 10_000


def check_images(
    settings: ExampleGenSettings, files: Sequence[str], min_rows: int = 0
) -> frozenset[str]:
    """Checks files of images, decodes the first images and returns the names of the columns.

    Raises:
      DataError: the images cannot be used.
    """
    images = select_images(files)
    if settings.on_bad_file is OnBadFile.FAIL:
        _check_pictures(images[:: 1 + len(images) // _MAX_OPENED], settings.max_pixels)
    report = ChunkReport({IMAGE_FEATURE, settings.label}, Counter({ALL: len(images)}))
    names = (posixpath.basename(posixpath.dirname(image)).encode() for image in images)
    report.classes[ALL] = Counter(names)
    check_report(report, [ALL], [], settings, min_rows=min_rows)
    return frozenset(report.columns)


def check_idx(
    settings: ExampleGenSettings, files: Sequence[str], min_rows: int = 0
) -> frozenset[str]:
    """Checks the headers and the pairs of IDX files, and returns the names of the columns.

    Raises:
      DataError: a file is not an IDX file, or a pair is not complete.
    """
    del min_rows
    pair_files(files)
    return frozenset({IMAGE_FEATURE, settings.label})


def _check_pictures(files: Sequence[str], max_pixels: int) -> None:
    """Raises DataError for a file that is not a picture. Only the first megabytes are decoded."""
    read_bytes = 0
    for file in files:
        try:
            with open_file(file) as stream:
                data = stream.read()
        except OSError as error:
            raise unreadable_error(file, error) from error
        read_bytes += len(data)
        try:
            with open_picture(data, max_pixels) as image:
                if read_bytes <= _MAX_DECODED:
                    image.load()
        except DataError as error:
            raise broken_image_error(file, str(error), OnBadFile.FAIL) from None


MAX_ROWS = 20_000
"""The maximum number of rows that `read_first_rows` reads."""


@dataclass(frozen=True)
class FirstRows:
    """The columns of the first rows of a table."""

    columns: dict[str, pa.Array]
    """The columns with at most one value per row, [rows]; null where a value is missing."""
    lists: dict[str, tuple[np.ndarray, pa.Array]]
    """The columns of lists whose lengths differ: the length of each list, and all values."""
    vectors: dict[str, tuple[int, bool]]
    """The columns of lists of equal length: the length, and whether the values are text."""
    rows: int
    """The number of rows that were read."""
    is_complete: bool
    """Whether the files have no further rows."""
    total: int
    """The number of rows in all files, as far as it has been counted."""
    dates: dict[str, Dates]
    """The date columns that the config does not declare."""


def check_table(
    settings: ExampleGenSettings, files: Sequence[str], min_rows: int = 0
) -> frozenset[str]:
    """Checks all files of a table and returns the names of its columns.

    Raises:
      DataError: the files cannot be used.
    """
    settings = with_known_dates(settings)
    source, report = make_source(settings), ChunkReport()
    groups = source.plan(files)
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    for group in groups:
        for batch in source.read(group, kinds):
            splits = np.where(is_kept(batch.rows, settings), 0, -1)
            report.add_rows(batch.rows, splits, [ALL], batch.first, settings)
            # `check_named_columns` reports a missing column.
            if settings.order_by in batch.rows.schema.names:
                read_order(batch.rows, batch.first, settings.order_by)
            for name in settings.pictures.keys() & set(batch.rows.schema.names):
                column, folder = batch.rows.column(name), settings.pictures[name]
                pictures = picture_files(name, column, batch.first, folder)
                check_files_exist(name, pictures, batch.first)
    check_report(report, [ALL], [], settings, min_rows=min_rows)
    return frozenset(kinds)


def read_first_rows(
    settings: ExampleGenSettings, files: Sequence[str], is_spread: bool = False
) -> FirstRows:
    """Reads the first rows of a table in the same way as ExampleGen.

    Args:
      is_spread: whether the rows are taken at equal distances from all rows, as the first rows of
        sorted files may have only one class.

    Raises:
      DataError: the files cannot be used.
    """
    source = make_source(settings)
    groups = source.plan(files)
    surveys = [source.survey(group) for group in groups]
    kinds = merge_surveys(surveys, settings)
    batches: list[pa.RecordBatch] = []
    tallies: dict[str, DateTally] = {}
    counted_rows = max((count_values(surveys, name) for name in kinds), default=0)
    step = max(-(-counted_rows // MAX_ROWS), 1) if is_spread else 1
    rows, seen = 0, 0
    for batch in (batch for group in groups for batch in source.read(group, kinds)):
        chosen = batch.rows
        if step > 1:
            chosen = chosen.take(pa.array(range(-seen % step, chosen.num_rows, step), pa.int64()))
        part = chosen.slice(0, MAX_ROWS - rows)
        batches.append(part)
        tallies = merge_tallies(tallies, tally_dates(part, batch.first, settings))
        rows, seen = rows + part.num_rows, seen + batch.rows.num_rows
        if part.num_rows < chosen.num_rows:
            break
    is_complete, total = rows == seen, max(rows, counted_rows)
    return make_first_rows(batches, is_complete, total, find_dates(tallies))


def make_first_rows(
    batches: Sequence[pa.RecordBatch], is_complete: bool, total: int, dates: dict[str, Dates]
) -> FirstRows:
    """Returns batches of rows, whose columns are lists, as columns.

    Args:
      batches: the batches.
      is_complete: whether the files have no further rows.
      total: the number of rows in all files, as far as it has been counted.
      dates: the date columns.
    """
    lists, vectors = {}, {}
    for name, (lengths, values) in list_columns(batches).items():
        if lengths.min() < lengths.max():
            lists[name] = lengths, values
        else:
            vectors[name] = int(lengths[0]), pa.types.is_binary(values.type)
    rows = sum(batch.num_rows for batch in batches)
    return FirstRows(flat_columns(batches), lists, vectors, rows, is_complete, total, dates)
