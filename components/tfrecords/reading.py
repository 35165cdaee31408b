"""Serialized examples of a file, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from trainer_module.errors import DataError

MOST_ROWS = 1024
"""Of a batch: more is no faster, and the layers of a network for pictures take memory by rows."""
_MOST_BYTES = 4 << 20
"""Of the examples of a batch, as they are stored: of large pictures there are fewer."""
_LOOKED_AT = 64
"""Examples by which their size is judged."""
COMPRESSION = "GZIP"


def read_batches(file: str, rows: int | None = None) -> Iterator[np.ndarray]:
    """The examples of one file in their order, [rows] object of bytes.

    Args:
      file: gzipped TFRecords.
      rows: of each batch but the last; by default as many as `MOST_ROWS` and their size allow.

    Raises:
      DataError: the file is damaged.
    """
    records = tf.data.TFRecordDataset(file, COMPRESSION)
    try:
        if rows is None:
            rows = _rows_by_size(records)
        if rows:
            yield from records.batch(rows).prefetch(1).as_numpy_iterator()
    except tf.errors.DataLossError as error:
        raise DataError(
            f"{file}: the file of examples is damaged ({error.message.splitlines()[0]});"
            " remove the folder of the step that wrote it, so that the next run makes it anew."
        ) from error


def _rows_by_size(records: tf.data.Dataset) -> int:
    sizes = [len(record) for record in records.take(_LOOKED_AT).as_numpy_iterator()]
    if not sizes:
        return 0
    return min(max(_MOST_BYTES * len(sizes) // max(sum(sizes), 1), 1), MOST_ROWS)
