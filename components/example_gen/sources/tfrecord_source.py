"""The source of TFRecord files with tf.Examples. The examples are copied without changes, and
decoded only for checks and splits.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.files import is_gzip
from components.example_gen.sources.base import Batch, Files, Source
from trainer_module.errors import DataError

# The number is small, so that records of a megabyte, such as photographs, fit into memory.
_BATCH_RECORDS = 512


class TFRecordSource(Source):
    """A reader of TFRecord files. Files whose names end with .gz are decompressed."""

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the records of a file."""
        del kinds
        file, decoder, record = files[0], ExamplesToRecordBatchDecoder(), 1
        for examples in _read_batches(file):
            try:
                rows = decoder.DecodeBatch(examples)
            except RuntimeError as error:
                raise DataError(
                    f"{file} contains records that are not tf.Examples, in records {record} to"
                    f" {record + len(examples) - 1} ({error}): write serialized tf.train.Example"
                    " protos."
                ) from error
            yield Batch(rows, Cell(file, record), examples)
            record += len(examples)
        if record == 1:
            raise DataError(f"{file} is empty: add records, or remove the file.")


def _read_batches(file: str) -> Iterator[list[bytes]]:
    try:
        for batch in _open(file).batch(_BATCH_RECORDS).as_numpy_iterator():
            yield batch.tolist()
    except tf.errors.OpError as error:
        raise DataError(
            f"{file} is damaged or cut off after {_count_records(file)} complete records: copy or"
            " write it again (the name of a gzipped file must end with .gz)."
        ) from error


def _open(file: str) -> tf.data.TFRecordDataset:
    return tf.data.TFRecordDataset(file, "GZIP" if is_gzip(file) else "")


def _count_records(file: str) -> int:
    """Returns the number of records before the first error."""
    count = 0
    try:
        for _ in _open(file):
            count += 1
    except tf.errors.OpError:
        pass
    return count
