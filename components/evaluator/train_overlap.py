"""The share of evaluated rows that the model in service was trained on.

After a change of the split, the model in service was trained on most of the evaluated rows. A
comparison would be unfair: the model in service may have memorised their labels, and the new model
has not.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from tfx.dsl.io import fileio
from tfx.types import Artifact
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.arrow_types import holds_bytes
from components.example_gen.checks.report import TRAIN_SPLIT
from components.example_gen.splits import hash_rows
from components.split_files import split_files
from components.tfrecords import read_batches, rows_for_columns

logger = logging.getLogger(__name__)

MAX_OVERLAP = 0.05
"""The largest share of evaluated rows that the model in service may have been trained on.

The share biases the comparison. The more rows there are, the smaller is a bias that is significant.
Above `FEW_ROWS` rows, the limit therefore falls with the square root of the number of rows. So does
the share of rows that move between stratified splits when the data grows."""
FEW_ROWS = 1_000
"""The number of rows above which the limit of the share falls."""
MAX_TRAINING_BYTES = 512 << 20
"""The maximum compressed bytes of training examples to read. If there are more, only some of the
files are read."""


@dataclass(frozen=True)
class TrainOverlap:
    """The share of an evaluation's rows that the model in service was trained on."""

    share: float = 0.0
    """The share of the rows on which the model in service was trained and the new model was not. 0
    if the share is unknown."""
    rows: int = 0
    """The number of evaluated rows."""

    @property
    def exceeds_limit(self) -> bool:
        """Whether the share is too large for a comparison."""
        return self.share > MAX_OVERLAP * math.sqrt(FEW_ROWS / max(self.rows, FEW_ROWS))


def find_train_overlap(
    evaluated: Sequence[Artifact],
    split: str,
    baseline_examples: Sequence[Artifact],
    new_examples: Sequence[Artifact],
) -> TrainOverlap:
    """Returns the share of evaluated rows on which only the model in service was trained.

    Rows are equal if they have equal values in all columns that both data sets have. A table of a
    few categories has many equal rows in different splits; their share is subtracted.

    Args:
      baseline_examples: the training examples of the model in service that still exist.
      new_examples: the training examples of the new model. Artifacts that are also in
        `baseline_examples` are not read, because both models use the same splits of them.
    """
    new_ids = {artifact.id for artifact in new_examples}
    files, byte_share = _sample_files(
        split_files((a for a in baseline_examples if a.id not in new_ids), TRAIN_SPLIT)
    )
    if not files:
        return TrainOverlap()
    eval_files = split_files(evaluated, split)
    columns = _common_columns(_column_types(eval_files), _column_types(files))
    if not columns:
        return TrainOverlap()
    rows = [_hashes(batch, columns) for file in eval_files for batch in _read(file)]
    hashes, counts = np.unique(np.concatenate(rows), return_counts=True)

    def share(files: Sequence[str], byte_share: float) -> float:
        is_found = np.zeros(len(hashes), bool)
        for batch in (batch for file in files for batch in _read(file)):
            # `np.isin` would sort all hashes again for each batch.
            batch_hashes = _hashes(batch, columns)
            indices = np.searchsorted(hashes, batch_hashes).clip(max=len(hashes) - 1)
            is_found[indices[hashes[indices] == batch_hashes]] = True
        return min(float(counts[is_found].sum() / counts.sum()) / byte_share, 1.0)

    overlap = TrainOverlap(share(files, byte_share), int(counts.sum()))
    if not overlap.exceeds_limit:
        return overlap
    own_share = share(*_sample_files(split_files(evaluated, TRAIN_SPLIT)))
    return replace(overlap, share=max(overlap.share - own_share, 0.0))


def _sample_files(files: list[str]) -> tuple[list[str], float]:
    """Returns files of about `MAX_TRAINING_BYTES` at most, and their share of all bytes.

    If there are more bytes, every n-th file is returned.
    """
    sizes = [fileio.stat(file).length for file in files]
    total = sum(sizes)
    if total <= MAX_TRAINING_BYTES:
        return files, 1.0
    step = -(-total // MAX_TRAINING_BYTES)
    logger.info("Reads one in %d of the files on which the model in service was trained", step)
    return files[::step], sum(sizes[::step]) / total


def _column_types(files: Sequence[str]) -> dict[str, pa.DataType]:
    """Returns the type of each column's values in the first batch of rows."""
    first = next((batch for file in files for batch in _read(file)), None)
    if first is None:
        return {}
    return {field.name: getattr(field.type, "value_type", field.type) for field in first.schema}


def _common_columns(
    eval_types: Mapping[str, pa.DataType], baseline_types: Mapping[str, pa.DataType]
) -> dict[str, bool]:
    """Returns the columns that both data sets have, and whether both contain integers.

    The result leaves out a column that has numbers in one data set and text in the other.
    """
    common = {
        name: (eval_types[name], baseline_types[name])
        for name in eval_types.keys() & baseline_types.keys()
    }
    return {
        name: all(pa.types.is_integer(column_type) for column_type in types)
        for name, types in common.items()
        if len(
            {holds_bytes(column_type) for column_type in types if not pa.types.is_null(column_type)}
        )
        < 2
    }


def _read(file: str) -> Iterator[pa.RecordBatch]:
    decoder = ExamplesToRecordBatchDecoder()
    for records in read_batches(file, rows_for_columns):
        yield decoder.DecodeBatch(records.tolist())


def _hashes(rows: pa.RecordBatch, columns: Mapping[str, bool]) -> np.ndarray:
    """Returns a hash of each row's values in some columns, [rows].

    Args:
      columns: the names of the columns. The value is True if numbers are compared as integers,
        and False if they are compared as float32.
    """
    values = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in columns:
            kind = getattr(column.type, "value_type", column.type)
            as_float = pa.types.is_integer(kind) and not columns[name]
            floats = pa.large_list(pa.float32())
            values[name] = column.cast(floats, safe=False) if as_float else column
    return hash_rows(pa.record_batch(list(values.values()), list(values)))
