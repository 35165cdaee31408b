"""Reads columns of an artifact of examples as Arrow batches, without Beam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.row_counts import read_row_counts
from components.split_files import split_files
from components.tfrecords import read_batches, rows_for_columns
from trainer_module.data.order import spread_rows

# A small number, so that records of some megabytes, such as photographs, fit into memory.
_BATCH_RECORDS = 256
# Limits of a sample.
_MOST_ROWS = 20_000
_MOST_CELLS = 5_000_000
_MOST_BYTES = 256 << 20


def read_columns(
    examples: Sequence[types.Artifact], split: str, features: Sequence[schema_pb2.Feature]
) -> Iterator[pa.RecordBatch]:
    """Yields batches of list columns of all rows; other columns are not decoded.

    Args:
      examples: the examples of one or several spans.
      split: the split to read.
      features: the columns, by names and types.
    """
    decoder = _decoder(features)
    # One file at a time, as there may be more files than a process may have open.
    for file in sorted(split_files(examples, split)):
        for records in read_batches(file, lambda _: _BATCH_RECORDS):
            yield decoder.DecodeBatch(records.tolist())


def read_sample(
    examples: types.Artifact, split: str, features: Sequence[schema_pb2.Feature]
) -> list[pa.RecordBatch]:
    """Returns columns of a sample across a split that is large enough to determine their
    contents.
    """
    rows = min(_MOST_ROWS, max(_MOST_CELLS // max(len(features), 1), 1))
    decoder, places = _decoder(features), 1
    batches, size = list[pa.RecordBatch](), 0
    for records in read_spread(sorted(split_files([examples], split)), rows):
        batches.append(decoder.DecodeBatch(records[::places].tolist()))
        size += batches[-1].nbytes
        if size > _MOST_BYTES:
            # If memory is short, every second row of the whole sample is dropped, not the rows at
            # the end.
            batches, places = [_every_second(batch) for batch in batches], places * 2
            size = sum(batch.nbytes for batch in batches)
    return batches


def read_spread(files: Sequence[str], most_rows: int) -> Iterator[np.ndarray]:
    """Yields evenly spaced examples of some files, [rows] object of bytes, none of them empty.

    All files are read, as a row of a compressed file can only be reached through those before it.

    Args:
      files: gzipped TFRecords.
      most_rows: the most examples to yield.

    Raises:
      DataError: a file is damaged.
    """
    known = read_row_counts(files)
    counts = [known[file] if file in known else _count(file) for file in files]
    chosen_rows, start = spread_rows(sum(counts), most_rows), 0
    waiting = list[np.ndarray]()
    for file in files:
        for records in read_batches(file, rows_for_columns):
            end = start + len(records)
            rows_of_file = chosen_rows[slice(*np.searchsorted(chosen_rows, [start, end]))]
            waiting.append(records[rows_of_file - start])
            start = end
            if sum(map(len, waiting)) >= _BATCH_RECORDS:
                yield np.concatenate(waiting)
                waiting.clear()
    if any(map(len, waiting)):
        yield np.concatenate(waiting)


def _count(file: str) -> int:
    return sum(map(len, read_batches(file, rows_for_columns)))


def _decoder(features: Sequence[schema_pb2.Feature]) -> ExamplesToRecordBatchDecoder:
    wanted = (schema_pb2.Feature(name=feature.name, type=feature.type) for feature in features)
    return ExamplesToRecordBatchDecoder(schema_pb2.Schema(feature=wanted).SerializeToString())


def _every_second(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(0, batch.num_rows, 2)))
