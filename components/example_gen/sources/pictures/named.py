"""Paths of pictures in the rows of a table to pictures, so that the model's graph takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import tensorflow as tf

from components.example_gen.checks.named_pictures import (
    broken_picture_error,
    missing_picture_error,
    picture_files,
)
from components.example_gen.columns.encoded import Cell, single_values
from components.example_gen.files.opening import unreadable_error
from components.example_gen.formats import ExampleGenSettings, OnBadFile
from components.example_gen.notes import FileNotes
from components.example_gen.sources.base import Batch
from components.example_gen.sources.pictures.decoding import Picture, make_decodable
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
    rows: pa.RecordBatch, first: Cell, settings: ExampleGenSettings, notes: FileNotes
) -> tuple[pa.RecordBatch, np.ndarray]:
    """The rows with pictures for paths, and whether each row has all of its own, [rows] bool.

    Args:
      rows: list columns, of one path per row where they are of pictures.
      first: where the rows begin.
      settings: which columns hold paths, what these begin in, and whether broken files are skipped.
      notes: is told of what has become of the files.

    Raises:
      DataError: names the first row whose picture cannot be used.
    """
    folders, skips = settings.pictures, settings.on_bad_file is OnBadFile.SKIP
    whole = np.ones(rows.num_rows, bool)
    for name in folders.keys() & set(rows.schema.names):
        files = picture_files(name, rows.column(name), first, folders[name])
        cells = [Cell(first.file, first.row + place) for place in range(len(files))]
        with ThreadPoolExecutor(_THREADS) as pool:
            read = partial(_read, name, most_pixels=settings.max_pixels)
            found = list(pool.map(read, files, cells))
        for place, picture in enumerate(found):
            if isinstance(picture, Broken):
                if not skips:
                    raise broken_picture_error(
                        name, files[place], cells[place], picture.reason, settings.on_bad_file
                    )
                notes.add_broken(f"{files[place]} ({picture.reason})")
                whole[place] = False
            elif picture.converted_from:
                notes.converted[picture.converted_from] += 1
        encoded = [p.encoded if isinstance(p, Picture) else b"" for p in found]
        column = single_values(pa.array(encoded, pa.binary()))
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows, whole


@dataclass(frozen=True)
class Broken:
    """What a file is that is no complete picture."""

    reason: str


def _read(name: str, file: str, cell: Cell, most_pixels: int) -> Picture | Broken:
    try:
        return make_decodable(tf.io.read_file(file).numpy(), most_pixels)
    except tf.errors.NotFoundError:
        raise missing_picture_error(name, file, cell) from None
    except tf.errors.OpError as error:
        raise unreadable_error(file, error) from None
    except DataError as error:
        return Broken(str(error))
