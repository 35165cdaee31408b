"""Files of TFRecords, read and written in batches by TensorFlow's C++."""

from __future__ import annotations

import collections
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from trainer_module.errors import DataError

_T = TypeVar("_T")
_AHEAD = 2
"""The most elements that wait for the consumer."""
_LOOKS_EVERY = 0.1
"""The interval in seconds at which a full queue checks whether its consumer has stopped."""


def prefetch(source: Iterator[_T]) -> Generator[_T, None, None]:
    """Yields the elements of an iterator, which a thread prefetches.

    Errors of the iterator are raised here. The thread also stops if the consumer stops early.
    """
    # Items are one element, or at the end an empty list and the iterator's error, if any.
    waiting: queue.Queue[tuple[list[_T], BaseException | None]] = queue.Queue(_AHEAD)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_fill, args=(source, waiting, stopped), name="work-ahead", daemon=True
    )
    thread.start()
    try:
        while True:
            elements, error = waiting.get()
            if error is not None:
                raise error
            if not elements:
                return
            yield from elements
    finally:
        stopped.set()
        thread.join()


def _fill(source: Iterator[_T], waiting: queue.Queue[Any], stopped: threading.Event) -> None:
    try:
        for element in source:
            if not _put(([element], None), waiting, stopped):
                return
    except BaseException as error:  # The consumer raises it.
        _put(([], error), waiting, stopped)
    else:
        _put(([], None), waiting, stopped)


def _put(item: Any, waiting: queue.Queue[Any], stopped: threading.Event) -> bool:
    """Puts an item into the queue; returns False if the consumer stopped before there was room."""
    while not stopped.is_set():
        try:
            waiting.put(item, timeout=_LOOKS_EVERY)
        except queue.Full:
            continue
        return True
    return False


_MOST_ROWS = 1024
"""The most rows of a batch: more is not faster for models, and layers for pictures need memory per
row."""
_MOST_BYTES = 4 << 20
"""The most bytes of a batch's stored examples, which limits the rows of large ones."""
_MOST_SMALL_ROWS = 4096
"""The most rows of a batch without a model: a column costs as much as a hundred of its rows."""
_MOST_WIDE_BYTES = 20 << 20
"""The most bytes of a batch of a wide table, whose cost depends on the columns."""
_LOOKED_AT = 64
"""The number of examples from which the size of all is estimated."""
_SHRUNK = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")
"""The first bytes of pictures that need much more memory once they are decoded."""
COMPRESSION = "GZIP"


def rows_for_models(examples: Sequence[bytes]) -> int:
    """Returns the number of rows, of examples like these, in a batch for models."""
    return _fitting(examples, _MOST_ROWS, _MOST_BYTES)


def rows_for_columns(examples: Sequence[bytes]) -> int:
    """Returns the number of rows, of examples like these, in a batch that is processed by
    columns.
    """
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
    """Yields the examples of one file in order, [rows] object of bytes.

    Args:
      file: gzipped TFRecords.
      rows_by: returns the number of rows of a batch, given the first few examples.

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
            f"{file}: the file of examples is damaged ({error.message.splitlines()[0]}); remove"
            " the folder of the step that wrote it, and the next run writes it again."
        ) from error


_OPTIONS = tf.io.TFRecordOptions(compression_type=COMPRESSION, compression_level=1)
"""The fastest level: the files are read once or twice, and level 6 takes twice as long."""


def open_writer(path: str) -> tf.io.TFRecordWriter:
    """Returns a gzipped file of TFRecords, to be filled and closed."""
    return tf.io.TFRecordWriter(path, _OPTIONS)


def write_all(writer: tf.io.TFRecordWriter, examples: Iterable[bytes]) -> None:
    """Appends serialized examples to a file."""
    # A deque of length 0 consumes the iterator in C.
    collections.deque(map(writer.write, examples), maxlen=0)
