"""Looks at a table as ExampleGen does, with the same surveys and checks, but without TFX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from components.column_types.dates import Dates
from components.example_gen.checks.dates import DateTally, find_dates, merge_tallies, tally_dates
from components.example_gen.checks.named_pictures import check_files_exist, picture_files
from components.example_gen.checks.order import read_order
from components.example_gen.checks.rows import ChunkReport, is_kept
from components.example_gen.checks.whole import check_report
from components.example_gen.columns.encoded import flat_columns, list_columns
from components.example_gen.columns.known_kinds import with_known_dates
from components.example_gen.first_look import ALL
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_gen.sources.base import count_values, merge_surveys

MOST_ROWS = 20_000
"""Of a first look at what columns hold."""


@dataclass(frozen=True)
class FirstRows:
    """The columns of the first rows of a table."""

    columns: dict[str, pa.Array]
    """[rows] each, null where a value is missing; without columns of several values a row."""
    lists: dict[str, tuple[np.ndarray, pa.Array]]
    """Columns of lists of several lengths: how many values each row has, and all of them."""
    vectors: dict[str, tuple[int, bool]]
    """Columns of lists of one length: how many values each row has, and whether they are text."""
    rows: int
    is_all: bool
    """Whether there are no more."""
    total: int
    """So many there are at least."""
    dates: dict[str, Dates]
    """Columns of dates that the config does not declare."""


def look_at_table(settings: ExampleGenSettings, files: Sequence[str]) -> frozenset[str]:
    """Surveys and reads the files of a table, and keeps nothing but the names of its columns.

    Raises:
      DataError: they cannot be used.
    """
    settings = with_known_dates(settings)
    source, report = make_source(settings), ChunkReport()
    groups = source.plan(files)
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    for group in groups:
        for batch in source.read(group, kinds):
            splits = np.where(is_kept(batch.rows, settings), 0, -1)
            report.add_rows(batch.rows, splits, [ALL], batch.first, settings)
            if settings.order_by in batch.rows.schema.names:  # check_named_columns says if not.
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
      DataError: they cannot be used.
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
