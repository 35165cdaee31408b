"""How the examples of this project are written."""

from __future__ import annotations

import collections
from collections.abc import Iterable

import tensorflow as tf

from components.tfrecords.reading import COMPRESSION

_OPTIONS = tf.io.TFRecordOptions(compression_type=COMPRESSION, compression_level=1)
"""The fastest level: the files are read once or twice, and level 6 takes twice as long."""


def open_writer(path: str) -> tf.io.TFRecordWriter:
    """A gzipped file of TFRecords, to be filled and closed."""
    return tf.io.TFRecordWriter(path, _OPTIONS)


def write_all(writer: tf.io.TFRecordWriter, examples: Iterable[bytes]) -> None:
    """Appends serialized examples."""
    # A deque without room drives the calls from C.
    collections.deque(map(writer.write, examples), maxlen=0)
