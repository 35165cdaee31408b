"""Reads columns of an artifact of examples as Arrow batches, without Beam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.split_files import split_files
from components.tfrecords.reading import read_in_turns

# Few enough that records of some megabytes, such as photographs, fit into memory.
_BATCH_RECORDS = 256
# Of a sample.
_MOST_ROWS = 20_000
_MOST_CELLS = 5_000_000
_MOST_BYTES = 256 << 20


def read_columns(
    examples: Sequence[types.Artifact],
    split: str,
    features: Sequence[schema_pb2.Feature],
    most_rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields batches of list columns; what is not asked for is not decoded.

    Args:
      examples: of one or several spans.
      split: whose examples are read.
      features: the columns, by names and types.
      most_rows: how many rows are enough, about; all by default.
    """
    wanted = (schema_pb2.Feature(name=feature.name, type=feature.type) for feature in features)
    decoder = ExamplesToRecordBatchDecoder(schema_pb2.Schema(feature=wanted).SerializeToString())
    # Of several files a part of each, so that what is read is a fair sample.
    records = read_in_turns(split_files(examples, split))
    if most_rows is not None:
        records = records.take(most_rows)
    for batch in records.batch(_BATCH_RECORDS).as_numpy_iterator():
        yield decoder.DecodeBatch(batch.tolist())


def read_sample(
    examples: types.Artifact, split: str, features: Sequence[schema_pb2.Feature]
) -> list[pa.RecordBatch]:
    """Columns of as many examples as are enough to say what they hold."""
    rows = min(_MOST_ROWS, max(_MOST_CELLS // max(len(features), 1), 1))
    batches, size = [], 0
    for batch in read_columns([examples], split, features, rows):
        batches.append(batch)
        size += batch.nbytes
        if size > _MOST_BYTES:
            break
    return batches
