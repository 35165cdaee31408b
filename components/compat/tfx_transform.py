"""Private parts of the executor of TFX 1.21's Transform: a sink that writes examples in batches.

Transform has no option that names a sink, so the private step `TransformProcessor._EncodeAndWrite`
is replaced. If the code of the step has changed, `components.compat.speed` does not replace it:
Transform then writes record by record, and run.log reports it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
from apache_beam.io.filebasedsink import FileBasedSink
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.transform import executor, labels

from components.row_counts import count_written
from components.tfrecords import open_writer, write_all

_Batch = tuple[pa.RecordBatch, dict[str, pa.Array]]
_SUFFIX = ".gz"


_stock_encode_and_write = executor.TransformProcessor._EncodeAndWrite


def write_by_batches() -> None:
    """Makes Transform write in batches, in this process; repeated calls have no effect.

    Beam's own sink compresses TFRecords and computes checksums in Python, record by record.
    """
    processor: Any = executor.TransformProcessor
    processor._EncodeAndWrite = staticmethod(_encode_and_write)


def _encode_and_write(
    schema: schema_pb2.Schema, file_format: str, output_path: str
) -> beam.PTransform:
    if file_format == labels.FORMAT_TFRECORD:
        return _Write(schema, output_path)
    return _stock_encode_and_write(schema=schema, file_format=file_format, output_path=output_path)


class _Write(beam.PTransform):
    """A transform that writes transformed batches to as many files as Beam's own sink."""

    def __init__(self, schema: schema_pb2.Schema, path: str) -> None:
        super().__init__()
        self._schema = schema
        self._path = path

    def expand(self, batches: beam.PCollection) -> Any:
        """Encodes and writes the batches."""
        return (
            batches
            | "Encode" >> beam.ParDo(_Encode(self._schema, self._path))
            | "Write" >> beam.io.Write(_Sink(self._path))
        )


@beam.typehints.with_input_types(tuple[pa.RecordBatch, dict[str, pa.Array]])
@beam.typehints.with_output_types(list[bytes])
class _Encode(executor.TransformProcessor._RecordBatchToExamplesFn):
    """A DoFn from a transformed batch to the list of its serialized examples."""

    def __init__(self, schema: schema_pb2.Schema, path: str) -> None:
        super().__init__(schema)
        self._folder = posixpath.dirname(path)

    def process(self, batch: _Batch) -> Iterator[list[bytes]]:
        """Encodes a batch as TFX does. TFX's sink ignores the keys of examples, so they are left
        out.
        """
        examples = [example for _, example in super().process(batch)]
        count_written(self._folder, len(examples))
        yield examples


class _Sink(FileBasedSink):
    """A sink that writes lists of records to TFRecord files with temporary names. Beam renames the
    files at the end.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, beam.coders.FastPrimitivesCoder(), _SUFFIX)

    def open(self, temp_path: str) -> tf.io.TFRecordWriter:
        """Opens a file under a temporary name."""
        return open_writer(temp_path)

    def write_record(self, file_handle: tf.io.TFRecordWriter, value: list[bytes]) -> None:
        """Writes the records of a batch."""
        write_all(file_handle, value)
