"""tfx_bsl, as of 1.21: examples are read in batches, whose size depends on the data.

A constant of tfx_bsl is set, and the function of TFX that makes readers is wrapped; the reader here
derives from tfx_bsl's own and calls its private methods. The public way would be an option of TFX's
components that names a reader. `components.compat.speed` changes nothing if the code is not the
known one: tfx_bsl then reads in its own way, and run.log reports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

import apache_beam as beam
import pyarrow as pa
from absl import flags
from tfx.dsl.io import fileio
from tfx_bsl.coders import batch_util
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder
from tfx_bsl.tfxio.record_based_tfxio import AppendRawRecordColumn
from tfx_bsl.tfxio.tf_example_record import TFExampleRecord

from components.row_counts import count_read
from components.spreading import SpreadFiles
from components.tfrecords import prefetch, read_batches, rows_for_columns
from trainer_module.errors import DataError

_MOST_ROWS = 1000
"""The most rows of a batch, as by TFX's default; small images grow when they are decoded."""


def batch_by_bytes() -> None:
    """Enables tfx_bsl's batches of 20 MiB or `_MOST_ROWS` rows; repeated calls have no effect.

    TFX's readers let Beam determine the batch size by trial, starting with one record. The cost of
    a batch depends on the columns more than on the rows, so that a small or wide table spends most
    of its time on batches of a few rows. The flag is public; the number of rows, in `batch_util`,
    is not.
    """
    library: Any = batch_util
    library._BATCH_SIZE_CAP_WITH_BYTE_TARGET = _MOST_ROWS
    flag = flags.FLAGS["tfxio_use_byte_size_batching"]
    flag.default = flag.value = True


def read_by_batches() -> None:
    """Makes TFX's components of this process read examples in batches.

    Beam reads TFRecords in Python, record by record, each of which passes through every step as an
    element until the records are batched: most of the time of StatisticsGen, and a good part of
    Transform's. Here the elements are files, then batches. The wrapped function is `make_tfxio` in
    TFX's `tfxio_utils`. Repeated calls have no effect.
    """
    from tfx.components.util import tfxio_utils  # Not where tfx_bsl alone is imported.

    module: Any = tfxio_utils
    make = module.make_tfxio
    if hasattr(make, "__wrapped__"):
        return

    @wraps(make)
    def make_tfxio(*arguments: Any, **options: Any) -> Any:
        return by_batches(make(*arguments, **options))

    module.make_tfxio = make_tfxio


def by_batches(tfxio: Any) -> Any:
    """Returns a batched reader of the same examples, if it supports all settings; else the given
    reader.
    """
    if type(tfxio) is not TFExampleRecord:
        return tfxio
    batched = BatchedExamples.of(tfxio)
    return batched if vars(batched) == vars(tfxio) else tfxio


class BatchedExamples(TFExampleRecord):
    """A reader of tf.Examples in gzipped TFRecords, whose Beam elements are batches from the
    start.
    """

    @classmethod
    def of(cls, tfxio: TFExampleRecord) -> BatchedExamples:
        """Returns a reader with the settings of another one."""
        return cls(
            file_pattern=tfxio._file_pattern,
            schema=tfxio._schema,
            raw_record_column_name=tfxio.raw_record_column_name,
            telemetry_descriptors=tfxio.telemetry_descriptors,
        )

    def BeamSource(self, batch_size: int | None = None) -> beam.PTransform:  # noqa: N802 - its name
        """Returns a source of record batches.

        Args:
          batch_size: the rows of all batches but the last of a file; by default `rows_for_columns`.
        """
        schema = self._GetSchemaForDecoding()
        read = _ReadFile(
            None if schema is None else schema.SerializeToString(),
            self.raw_record_column_name,
            batch_size,
        )
        return _ReadFiles(self._file_pattern, read)

    def _ProjectImpl(self, tensor_names: list[str]) -> BatchedExamples:  # noqa: N802 - its name
        return self.of(super()._ProjectImpl(tensor_names))


class _ReadFiles(beam.PTransform):
    """A transform from patterns of files to record batches."""

    def __init__(self, patterns: list[str], read: _ReadFile) -> None:
        super().__init__()
        self._patterns = patterns
        self._read = read

    def expand(self, pipeline: Any) -> beam.PCollection:
        """Distributes the files over the workers."""
        files = [file for pattern in self._patterns for file in _files(pattern)]
        spread = SpreadFiles(files, files, is_counted=True)
        return pipeline | "Files" >> spread | "Read" >> beam.ParDo(self._read)


def _files(pattern: str) -> list[str]:
    files = sorted(fileio.glob(pattern))
    if not files:
        raise DataError(
            f"{pattern}: there are no examples; remove the folder of the step that wrote them, and"
            " the next run writes them again."
        )
    return files


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(pa.RecordBatch)
class _ReadFile(beam.DoFn):
    """A DoFn from a file to its record batches."""

    def __init__(self, schema: bytes | None, raw_column: str | None, rows: int | None) -> None:
        self._schema = schema
        self._raw_column = raw_column
        self._rows_by = rows_for_columns if rows is None else lambda _: rows

    def process(self, file: str) -> Iterator[pa.RecordBatch]:
        """Yields batches that are decoded ahead, without Python's lock, while the next steps
        work.
        """
        for batch in prefetch(self._decode(file)):
            count_read(file, batch.num_rows)
            yield batch

    def _decode(self, file: str) -> Iterator[pa.RecordBatch]:
        # A decoder of its own, as a decoder is not thread-safe.
        decoder = ExamplesToRecordBatchDecoder(*(() if self._schema is None else (self._schema,)))
        for examples in read_batches(file, self._rows_by):
            records = examples.tolist()
            batch = decoder.DecodeBatch(records)
            if self._raw_column is not None:
                batch = AppendRawRecordColumn(batch, self._raw_column, records)
            yield batch
