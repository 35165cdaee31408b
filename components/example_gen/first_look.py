"""Checks of local files before TFX is imported, with ExampleGen's own checks; listed in
`formats`.
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
"""The name of the one split, as the rows' splits are not known yet."""


_BLOCK_BYTES = 1 << 16


def csv_holds_rows(file: str, settings: CsvSettings) -> bool:
    """Returns whether there is a row besides the header."""
    needed = 2 if settings.header is None else 1
    try:
        encoding = settings.encoding or find_encoding(file)
        dialect = Dialect(settings.delimiter or ",", encoding, settings.quote)
        with read_text(file, encoding) as text:
            return len(list(islice(dialect.rows(text), needed))) == needed
    except (csv.Error, DataError, OSError, UnicodeError):
        return True


def text_holds_lines(file: str, settings: CsvSettings) -> bool:
    """Returns whether there is anything but white space."""
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
    """Returns whether the footer counts any rows."""
    del settings
    try:
        with open_file(file) as stream:
            return bool(pq.read_metadata(stream).num_rows)
    except (pa.ArrowInvalid, OSError):
        return True


def holds_bytes(file: str, settings: CsvSettings) -> bool:
    """Returns whether the file, decompressed for .gz, is not empty."""
    del settings
    try:
        with open_stream(file) as stream:
            return bool(stream.read(1))
    except OSError:
        return True


# The bytes of pictures to decode, in a second or two; further pictures are only opened.
_MOST_DECODED = 4 << 20
# The most files to open, in a second or two, spread over all classes.
_MOST_OPENED = 10_000


def check_images(settings: ExampleGenSettings, files: Sequence[str]) -> frozenset[str]:
    """Checks folders of images, and decodes the images if they are few.

    Raises:
      DataError: the images cannot be used.
    """
    images = select_images(files)
    if settings.on_bad_file is OnBadFile.FAIL:
        _check_pictures(images[:: 1 + len(images) // _MOST_OPENED], settings.max_pixels)
    report = ChunkReport({IMAGE_FEATURE, settings.label}, Counter({ALL: len(images)}))
    names = (posixpath.basename(posixpath.dirname(image)).encode() for image in images)
    report.classes[ALL] = Counter(names)
    check_report(report, [ALL], [], settings)
    return frozenset(report.columns)


def _check_pictures(files: Sequence[str], most_pixels: int) -> None:
    """Raises DataError for a local file that is not a picture; decodes only the first few
    megabytes.
    """
    decoded = 0
    for file in files:
        try:
            with open_file(file) as stream:
                data = stream.read()
        except OSError as error:
            raise unreadable_error(file, error) from error
        decoded += len(data)
        try:
            with open_picture(data, most_pixels) as image:
                if decoded <= _MOST_DECODED:
                    image.load()
        except DataError as error:
            raise broken_image_error(file, str(error), OnBadFile.FAIL) from None


MOST_ROWS = 20_000
"""The most rows of a first look at the columns."""


@dataclass(frozen=True)
class FirstRows:
    """The columns of the first rows of a table."""

    columns: dict[str, pa.Array]
    """[rows] each, null where a value is missing; columns of several values a row are left out."""
    lists: dict[str, tuple[np.ndarray, pa.Array]]
    """The columns of lists of several lengths: the number of values of each row, and all values."""
    vectors: dict[str, tuple[int, bool]]
    """The columns of lists of one length: the number of values of a row, and whether they are
    text."""
    rows: int
    is_all: bool
    """Whether there are no further rows."""
    total: int
    """The least number of rows in all files."""
    dates: dict[str, Dates]
    """The date columns that the config does not declare."""


def check_table(settings: ExampleGenSettings, files: Sequence[str]) -> frozenset[str]:
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
            # A missing column is reported by check_named_columns.
            if settings.order_by in batch.rows.schema.names:
                read_order(batch.rows, batch.first, settings.order_by)
            for name in settings.pictures.keys() & set(batch.rows.schema.names):
                column, folder = batch.rows.column(name), settings.pictures[name]
                named = picture_files(name, column, batch.first, folder)
                check_files_exist(name, named, batch.first)
    check_report(report, [ALL], [], settings)
    return frozenset(kinds)


def read_first_rows(settings: ExampleGenSettings, files: Sequence[str]) -> FirstRows:
    """Reads the first rows of a table, as ExampleGen does.

    Raises:
      DataError: the files cannot be used.
    """
    source = make_source(settings)
    groups = source.plan(files)
    surveys = [source.survey(group) for group in groups]
    kinds = merge_surveys(surveys, settings)
    read: list[pa.RecordBatch] = []
    tallies: dict[str, DateTally] = {}
    rows, is_all = 0, True
    for batch in (batch for group in groups for batch in source.read(group, kinds)):
        part = batch.rows.slice(0, MOST_ROWS - rows)
        read.append(part)
        tallies = merge_tallies(tallies, tally_dates(part, batch.first, settings))
        rows += part.num_rows
        if part.num_rows < batch.rows.num_rows:
            is_all = False
            break
    lists, vectors = {}, {}
    for name, (lengths, values) in list_columns(read).items():
        if lengths.min() < lengths.max():
            lists[name] = lengths, values
        else:
            vectors[name] = int(lengths[0]), pa.types.is_binary(values.type)
    total = max([rows, *(count_values(surveys, name) for name in kinds)])
    dates = find_dates(tallies)
    return FirstRows(flat_columns(read), lists, vectors, rows, is_all, total, dates)
