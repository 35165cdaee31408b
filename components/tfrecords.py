"""Reads and writes TFRecord files in batches, by TensorFlow's C++ code."""

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
_QUEUE_SIZE = 2
"""The maximum number of prefetched elements."""
_POLL_SECONDS = 0.1
"""The interval in seconds at which the thread checks whether the consumer has stopped, while the
queue is full."""


def prefetch(source: Iterator[_T]) -> Generator[_T, None, None]:
    """Yields the elements of an iterator, which a thread prefetches.

    The function raises the iterator's errors. If the consumer stops early, the thread stops too.
    """
    # Each item is a list with one element. The last item is an empty list, with the iterator's
    # error or None.
    waiting: queue.Queue[tuple[list[_T], BaseException | None]] = queue.Queue(_QUEUE_SIZE)
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
    except BaseException as error:  # The consumer raises the error.
        _put(([], error), waiting, stopped)
    else:
        _put(([], None), waiting, stopped)


def _put(item: Any, waiting: queue.Queue[Any], stopped: threading.Event) -> bool:
    """Puts an item into the queue. Returns whether it succeeded before the consumer stopped."""
    while not stopped.is_set():
        try:
            waiting.put(item, timeout=_POLL_SECONDS)
        except queue.Full:
            continue
        return True
    return False


_MAX_ROWS = 1024
"""The maximum number of rows of a batch for models. Larger batches are not faster, and layers for
pictures need memory for each row."""
_MAX_BYTES = 4 << 20
"""The maximum size of a batch's serialized examples, in bytes."""
_MAX_SMALL_ROWS = 4096
"""The maximum number of rows of a batch that no model processes. A column takes as much time as a
hundred rows of it, so larger batches are faster."""
_MAX_WIDE_BYTES = 20 << 20
"""The maximum size of a batch of a wide table in bytes. The time for the batch depends on the
number of columns."""
_SAMPLE_EXAMPLES = 64
"""The number of examples from which the size of an example is estimated."""
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")
"""The first bytes of encoded pictures, which need much more memory after decoding."""
COMPRESSION = "GZIP"


def rows_for_models(examples: Sequence[bytes]) -> int:
    """Returns the number of rows of a batch for models, by the size of some examples."""
    return _limit_rows(examples, _MAX_ROWS, _MAX_BYTES)


def rows_for_columns(examples: Sequence[bytes]) -> int:
    """Returns the number of rows of a batch that is processed by columns, by the size of some
    examples.
    """
    rows = _limit_rows(examples, _MAX_ROWS, _MAX_WIDE_BYTES)
    more = _limit_rows(examples, _MAX_SMALL_ROWS, _MAX_BYTES)
    if more <= rows or any(magic in example for example in examples for magic in _PICTURES):
        return rows
    return more


def _limit_rows(examples: Sequence[bytes], max_rows: int, max_bytes: int) -> int:
    size = max(sum(map(len, examples)), 1)
    return min(max(max_bytes * len(examples) // size, 1), max_rows)


def read_batches(
    file: str, choose_rows: Callable[[Sequence[bytes]], int] = rows_for_models
) -> Iterator[np.ndarray]:
    """Yields batches of the serialized examples of a file in order, [rows] object of bytes.

    Args:
      file: a gzipped TFRecord file.
      choose_rows: a function that returns the number of rows of a batch for the first examples.

    Raises:
      DataError: the file is damaged.
    """
    records = tf.data.TFRecordDataset(file, COMPRESSION)
    try:
        first = list(records.take(_SAMPLE_EXAMPLES).as_numpy_iterator())
        if first:
            yield from records.batch(choose_rows(first)).prefetch(1).as_numpy_iterator()
    except tf.errors.DataLossError as error:
        raise DataError(
            f"{file}: the file of examples is damaged ({error.message.splitlines()[0]}). Remove the"
            " folder of the step that wrote the file; the next run writes it again."
        ) from error


_OPTIONS = tf.io.TFRecordOptions(compression_type=COMPRESSION, compression_level=1)
"""The options with the fastest level of compression. The files are read once or twice, and the
default level 6 takes twice as long."""


def open_writer(path: str) -> tf.io.TFRecordWriter:
    """Returns a writer of a gzipped TFRecord file, which the caller has to close."""
    return tf.io.TFRecordWriter(path, _OPTIONS)


def write_all(writer: tf.io.TFRecordWriter, examples: Iterable[bytes]) -> None:
    """Appends serialized examples to a file."""
    # A deque of length 0 runs through the iterator in C code.
    collections.deque(map(writer.write, examples), maxlen=0)
