"""Paths of pictures in the rows of a table to pictures, so that the model's graph takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import tensorflow as tf

from components.example_gen.checks.named_pictures import (
    broken_picture_error,
    missing_picture_error,
    picture_files,
)
from components.example_gen.columns.encoded import Cell, single_values
from components.example_gen.files.opening import unreadable_error
from components.example_gen.notes import FileNotes
from components.example_gen.sources.base import Batch
from components.example_gen.sources.pictures import Picture, make_decodable
from trainer_module.errors import DataError

# Rows whose pictures are held in memory at a time.
_BATCH_ROWS = 128
_THREADS = 8


def cut(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same rows in batches small enough to hold their pictures."""
    for batch in batches:
        for start in range(0, batch.rows.num_rows, _BATCH_ROWS):
            first = replace(batch.first, row=batch.first.row + start)
            yield replace(batch, rows=batch.rows.slice(start, _BATCH_ROWS), first=first)


def read_pictures(
    rows: pa.RecordBatch, first: Cell, folders: Mapping[str, str], notes: FileNotes
) -> pa.RecordBatch:
    """The rows with pictures for paths.

    Args:
      rows: list columns, of one path per row where they are of pictures.
      first: where the rows begin.
      folders: by column of paths, what these begin in.
      notes: is told of what has become of the files.

    Raises:
      DataError: names the first row whose picture cannot be used.
    """
    for name in folders.keys() & set(rows.schema.names):
        files = picture_files(name, rows.column(name), first, folders[name])
        cells = [Cell(first.file, first.row + place) for place in range(len(files))]
        with ThreadPoolExecutor(_THREADS) as pool:
            pictures = list(pool.map(_read, [name] * len(files), files, cells))
        notes.converted.update(p.converted_from for p in pictures if p.converted_from)
        encoded = single_values(pa.array([p.encoded for p in pictures], pa.binary()))
        rows = rows.set_column(rows.schema.get_field_index(name), name, encoded)
    return rows


def _read(name: str, file: str, cell: Cell) -> Picture:
    try:
        return make_decodable(tf.io.read_file(file).numpy())
    except tf.errors.NotFoundError:
        raise missing_picture_error(name, file, cell) from None
    except tf.errors.OpError as error:
        raise unreadable_error(file, error) from None
    except DataError as error:
        raise broken_picture_error(name, file, cell, str(error)) from None
