"""Serialized examples of a file, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from trainer_module.errors import DataError

_MOST_ROWS = 1024
"""Of a batch: more is no faster for models, and layers for pictures take memory by rows."""
_MOST_BYTES = 4 << 20
"""Of the examples of a batch, as they are stored: of large ones there are fewer."""
_MOST_SMALL_ROWS = 4096
"""Of a batch that is not asked of a model: a column costs as much as a hundred rows of it."""
_MOST_WIDE_BYTES = 20 << 20
"""Of a batch of a wide table: what it costs is by the column."""
_LOOKED_AT = 64
"""Examples by which the size of all is judged."""
_SHRUNK = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")
"""How pictures begin that take much more memory once they are decoded."""
COMPRESSION = "GZIP"


def rows_for_models(examples: Sequence[bytes]) -> int:
    """How many examples like these a batch has that models are asked about."""
    return _fitting(examples, _MOST_ROWS, _MOST_BYTES)


def rows_for_columns(examples: Sequence[bytes]) -> int:
    """How many examples like these a batch has that is counted or transformed column by column."""
    rows = _fitting(examples, _MOST_ROWS, _MOST_WIDE_BYTES)
    more = _fitting(examples, _MOST_SMALL_ROWS, _MOST_BYTES)
    if more <= rows or any(magic in example for example in examples for magic in _SHRUNK):
        return rows
    return more


def _fitting(examples: Sequence[bytes], most_rows: int, most_bytes: int) -> int:
    size = max(sum(map(len, examples)), 1)
    return min(max(most_bytes * len(examples) // size, 1), most_rows)


def read_batches(
    file: str, rows_by: Callable[[Sequence[bytes]], int] = rows_for_models
) -> Iterator[np.ndarray]:
    """The examples of one file in their order, [rows] object of bytes.

    Args:
      file: gzipped TFRecords.
      rows_by: says by the first few examples how many make a batch.

    Raises:
      DataError: the file is damaged.
    """
    records = tf.data.TFRecordDataset(file, COMPRESSION)
    try:
        first = list(records.take(_LOOKED_AT).as_numpy_iterator())
        if first:
            yield from records.batch(rows_by(first)).prefetch(1).as_numpy_iterator()
    except tf.errors.DataLossError as error:
        raise DataError(
            f"{file}: the file of examples is damaged ({error.message.splitlines()[0]});"
            " remove the folder of the step that wrote it, so that the next run makes it anew."
        ) from error
