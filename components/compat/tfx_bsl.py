"""Private parts of tfx_bsl 1.21: readers of examples in batches, whose size depends on the data.

TFX's components have no option that names a reader. This module therefore sets a constant of
tfx_bsl, wraps the function of TFX that creates readers, and derives a reader from tfx_bsl's reader.
If the code of tfx_bsl or TFX has changed, `components.compat.speed` changes nothing: tfx_bsl
then reads record by record, and run.log reports it.
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
from components.row_progress import count_rows
from components.spreading import SpreadFiles
from components.tfrecords import prefetch, read_batches, rows_for_columns
from trainer_module.errors import DataError

_MAX_ROWS = 1000
"""The maximum number of rows of a batch, which is also TFX's default. More rows of encoded pictures
could need too much memory when they are decoded."""


def batch_by_bytes() -> None:
    """Makes tfx_bsl's batches end after 20 MiB or `_MAX_ROWS` rows; repeated calls have no effect.

    By default Beam finds the batch size by trial and starts with one record. The time for a batch
    depends on the columns more than on the rows, so for small or wide tables the first batches of a
    few rows take most of the time. The flag is public; the maximum number of rows in `batch_util`
    is private.
    """
    library: Any = batch_util
    library._BATCH_SIZE_CAP_WITH_BYTE_TARGET = _MAX_ROWS
    flag = flags.FLAGS["tfxio_use_byte_size_batching"]
    flag.default = flag.value = True


def read_by_batches() -> None:
    """Makes TFX's components of this process read examples in batches.

    By default Beam reads TFRecords in Python, and each record is an element until the records are
    batched. This takes most of the time of StatisticsGen, and much of the time of Transform. In the
    reader of this module, the elements are files and then batches. The function wraps `make_tfxio`
    in TFX's `tfxio_utils`. Repeated calls have no effect.
    """
    # Some processes import only tfx_bsl, so TFX is not imported with the module.
    from tfx.components.util import tfxio_utils

    module: Any = tfxio_utils
    make = module.make_tfxio
    if hasattr(make, "__wrapped__"):
        return

    @wraps(make)
    def make_tfxio(*arguments: Any, **options: Any) -> Any:
        return by_batches(make(*arguments, **options))

    module.make_tfxio = make_tfxio


def by_batches(tfxio: Any) -> Any:
    """Returns a batched reader of the same examples, or the given reader if `BatchedExamples` does
    not support all its settings.
    """
    if type(tfxio) is not TFExampleRecord:
        return tfxio
    batched = BatchedExamples.of(tfxio)
    return batched if vars(batched) == vars(tfxio) else tfxio


class BatchedExamples(TFExampleRecord):
    """A reader of tf.Examples in gzipped TFRecords, whose Beam elements are batches."""

    @classmethod
    def of(cls, tfxio: TFExampleRecord) -> BatchedExamples:
        """Returns a batched reader with the settings of another reader."""
        return cls(
            file_pattern=tfxio._file_pattern,
            schema=tfxio._schema,
            raw_record_column_name=tfxio.raw_record_column_name,
            telemetry_descriptors=tfxio.telemetry_descriptors,
        )

    def BeamSource(self, batch_size: int | None = None) -> beam.PTransform:  # noqa: N802 - its name
        """Returns a source of record batches.

        Args:
          batch_size: the rows of each batch, except for the last batch of a file; by default
            `rows_for_columns` determines the number.
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
    """A transform from file patterns to record batches."""

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
            f"No file with examples matches {pattern}. Remove the folder of the step that wrote the"
            " examples; the next run writes them again."
        )
    return files


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(pa.RecordBatch)
class _ReadFile(beam.DoFn):
    """A DoFn from a file to its record batches."""

    def __init__(self, schema: bytes | None, raw_column: str | None, rows: int | None) -> None:
        self._schema = schema
        self._raw_column = raw_column
        self._choose_rows = rows_for_columns if rows is None else lambda _: rows

    def process(self, file: str) -> Iterator[pa.RecordBatch]:
        """Yields batches. The next batches are decoded in the background, without Python's lock."""
        for batch in prefetch(self._decode(file)):
            count_read(file, batch.num_rows)
            count_rows(batch.num_rows)
            yield batch

    def _decode(self, file: str) -> Iterator[pa.RecordBatch]:
        # Each call creates its own decoder, as a decoder is not thread-safe.
        decoder = ExamplesToRecordBatchDecoder(*(() if self._schema is None else (self._schema,)))
        for examples in read_batches(file, self._choose_rows):
            records = examples.tolist()
            batch = decoder.DecodeBatch(records)
            if self._raw_column is not None:
                batch = AppendRawRecordColumn(batch, self._raw_column, records)
            yield batch
