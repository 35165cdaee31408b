"""Reads the first records of a TFRecord file without TensorFlow, whose import takes seconds.

A record is its length in 8 bytes, a checksum of the length, the data, and a checksum of the data
(https://www.tensorflow.org/tutorials/load_data/tfrecord). The checksums are not compared:
ExampleGen reads all records with TensorFlow, which compares them.
"""

from __future__ import annotations

import struct

import pyarrow as pa
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.example_gen.files import open_stream, unreadable_error
from trainer_module.errors import DataError

_LENGTH, _CHECKSUM = 8, 4
_HEAD = _LENGTH + _CHECKSUM
_MAX_LENGTH = 1 << 30
"""The maximum length of a record, in bytes; the first bytes of other files are larger numbers."""


def is_record(head: bytes) -> bool:
    """Returns whether the first bytes of a file may be the length of a record."""
    return len(head) > _HEAD and 0 < struct.unpack("<Q", head[:_LENGTH])[0] < _MAX_LENGTH


def read_first_records(file: str, max_rows: int, max_bytes: int) -> pa.RecordBatch:
    """Returns the first records of a file as rows, whose columns are lists.

    Args:
      file: a local file of tf.Examples; a .gz file is decompressed.

    Raises:
      DataError: the file is empty, cannot be read, is cut off, or holds no tf.Examples.
    """
    records: list[bytes] = []
    size = 0
    try:
        with open_stream(file) as stream:
            while len(records) < max_rows and size < max_bytes and (head := stream.read(_HEAD)):
                if not is_record(head + b"\0"):
                    raise DataError(_damaged(file, len(records)))
                (length,) = struct.unpack("<Q", head[:_LENGTH])
                data = stream.read(length + _CHECKSUM)
                if len(data) < length + _CHECKSUM:
                    raise DataError(_damaged(file, len(records)))
                records.append(data[:length])
                size += length
    except OSError as error:
        raise unreadable_error(file, error) from error
    if not records:
        raise DataError(f"{file} is empty: add records, or remove the file.")
    try:
        return ExamplesToRecordBatchDecoder().DecodeBatch(records)
    except RuntimeError as error:
        raise DataError(
            f"{file} contains records that are not tf.Examples ({error}): write serialized"
            " tf.train.Example protos."
        ) from error


def _damaged(file: str, records: int) -> str:
    return (
        f"{file} is damaged or cut off after {records:,} complete records: copy or write it again"
        " (the name of a gzipped file must end with .gz)."
    )
