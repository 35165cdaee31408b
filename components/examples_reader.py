"""Reads columns of examples as Arrow batches, without Beam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.row_counts import count_rows_of, read_row_counts
from components.row_progress import report_batches
from components.split_files import split_files
from components.tfrecords import read_batches, rows_for_columns
from trainer_module.data.order import spread_rows

# The number is small, so that records of some megabytes, such as photographs, fit into memory.
_BATCH_RECORDS = 256
# The maximum size of a sample.
_MAX_ROWS = 20_000
_MAX_CELLS = 5_000_000
_MAX_BYTES = 256 << 20


def read_columns(
    examples: Sequence[types.Artifact], split: str, features: Sequence[schema_pb2.Feature]
) -> Iterator[pa.RecordBatch]:
    """Yields batches of all rows with some columns, whose values are lists.

    Args:
      examples: the examples of one or several spans.
    """
    decoder = _decoder(features)
    files = sorted(split_files(examples, split))
    # The files are read one after the other, as a process may open only a limited number of files.
    batches = (batch for file in files for batch in read_batches(file, lambda _: _BATCH_RECORDS))
    for records in report_batches(batches, count_rows_of(files)):
        yield decoder.DecodeBatch(records.tolist())


def read_sample(
    examples: types.Artifact, split: str, features: Sequence[schema_pb2.Feature]
) -> list[pa.RecordBatch]:
    """Returns batches of evenly spaced rows of a split, whose columns hold lists of values."""
    rows = min(_MAX_ROWS, max(_MAX_CELLS // max(len(features), 1), 1))
    decoder, step = _decoder(features), 1
    batches, size = list[pa.RecordBatch](), 0
    for records in read_spread(sorted(split_files([examples], split)), rows):
        batches.append(decoder.DecodeBatch(records[::step].tolist()))
        size += batches[-1].nbytes
        if size > _MAX_BYTES:
            # Every second row of the complete sample is dropped, so that the rows stay evenly
            # spaced.
            batches = [b.take(pa.array(np.arange(0, b.num_rows, 2))) for b in batches]
            step *= 2
            size = sum(batch.nbytes for batch in batches)
    return batches


def read_spread(files: Sequence[str], max_rows: int) -> Iterator[np.ndarray]:
    """Yields batches of evenly spaced serialized examples, [rows] object of bytes.

    No batch is empty. All files are read completely, as compressed files can only be read from the
    beginning.

    Raises:
      DataError: a file is damaged.
    """
    total = count_rows(files)
    chosen_rows, start = spread_rows(total, max_rows), 0
    waiting = list[np.ndarray]()
    batches = (batch for file in files for batch in read_batches(file, rows_for_columns))
    for records in report_batches(batches, total):
        end = start + len(records)
        batch_rows = chosen_rows[slice(*np.searchsorted(chosen_rows, [start, end]))]
        waiting.append(records[batch_rows - start])
        start = end
        if sum(map(len, waiting)) >= _BATCH_RECORDS:
            yield np.concatenate(waiting)
            waiting.clear()
    if any(map(len, waiting)):
        yield np.concatenate(waiting)


def count_rows(files: Sequence[str]) -> int:
    """Returns the number of rows of gzipped TFRecord files, which is usually stored beside them."""
    known = read_row_counts(files)
    return sum(known[file] if file in known else _count(file) for file in files)


def _count(file: str) -> int:
    return sum(map(len, read_batches(file, rows_for_columns)))


def _decoder(features: Sequence[schema_pb2.Feature]) -> ExamplesToRecordBatchDecoder:
    columns = (schema_pb2.Feature(name=feature.name, type=feature.type) for feature in features)
    return ExamplesToRecordBatchDecoder(schema_pb2.Schema(feature=columns).SerializeToString())
