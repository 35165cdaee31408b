"""The rows of an evaluation that the model in service was trained on.

After another split of the same data it was trained on most of them, and is not to be compared with:
it has memorised their labels, and the new model has not.
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
"""The largest share of an evaluation's rows that the model in service may have been trained on. The
share biases the comparison, and the bias exceeds the noise more often the more rows there are:
above `FEW_ROWS` the limit falls with the root of their number, as does the share of rows that move
between stratified splits when data grows."""
FEW_ROWS = 1_000
MAX_TRAINING_BYTES = 512 << 20
"""The most bytes, compressed, of training examples that are read; of more, some of the files are
read."""


@dataclass(frozen=True)
class TrainOverlap:
    """The share of an evaluation's rows that the model in service was trained on."""

    share: float = 0.0
    """The share of the rows that the model in service was trained on and the new model was not; 0
    if it is not known."""
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
    """Finds the rows that the model in service was trained on and the new one was not.

    Rows are the same if they have equal values in all columns that both have. Equal rows of
    different splits, which are frequent in a table of a few categories, count for both models.

    Args:
      evaluated: the examples of the evaluation.
      split: the split to evaluate.
      baseline_examples: the training examples of the model in service, as far as they exist.
      new_examples: the training examples of the new model; artifacts that are also in
        `baseline_examples` are not read, as their splits are the same.
    """
    read = {artifact.id for artifact in new_examples}
    files, byte_share = _sample_files(
        split_files((a for a in baseline_examples if a.id not in read), TRAIN_SPLIT)
    )
    if not files:
        return TrainOverlap()
    eval_files = split_files(evaluated, split)
    known = _common_columns(_column_types(eval_files), _column_types(files))
    if not known:
        return TrainOverlap()
    rows = [_hashes(batch, known) for file in eval_files for batch in _read(file)]
    hashes, counts = np.unique(np.concatenate(rows), return_counts=True)

    def share(files: Sequence[str], byte_share: float) -> float:
        found = np.zeros(len(hashes), bool)
        for batch in (batch for file in files for batch in _read(file)):
            # `np.isin` would sort all hashes again for each batch.
            wanted = _hashes(batch, known)
            places = np.searchsorted(hashes, wanted).clip(max=len(hashes) - 1)
            found[places[hashes[places] == wanted]] = True
        return min(float(counts[found].sum() / counts.sum()) / byte_share, 1.0)

    overlap = TrainOverlap(share(files, byte_share), int(counts.sum()))
    if not overlap.exceeds_limit:
        return overlap
    own = share(*_sample_files(split_files(evaluated, TRAIN_SPLIT)))
    return replace(overlap, share=max(overlap.share - own, 0.0))


def _sample_files(files: list[str]) -> tuple[list[str], float]:
    """Returns evenly spaced files of about `MAX_TRAINING_BYTES` at most, and their share of all bytes."""
    sizes = [fileio.stat(file).length for file in files]
    total = sum(sizes)
    if total <= MAX_TRAINING_BYTES:
        return files, 1.0
    step = -(-total // MAX_TRAINING_BYTES)
    logger.info("Reads one in %d of the files on which the model in service was trained", step)
    return files[::step], sum(sizes[::step]) / total


def _column_types(files: Sequence[str]) -> dict[str, pa.DataType]:
    """Returns the types of the columns' values, by those of the first rows."""
    first = next((batch for file in files for batch in _read(file)), None)
    if first is None:
        return {}
    return {field.name: getattr(field.type, "value_type", field.type) for field in first.schema}


def _common_columns(
    eval_types: Mapping[str, pa.DataType], baseline_types: Mapping[str, pa.DataType]
) -> dict[str, bool]:
    """Returns whether the numbers of each column that both have are integers on both sides.

    A column of numbers on one side and of text on the other is left out.
    """
    both = {
        name: (eval_types[name], baseline_types[name])
        for name in eval_types.keys() & baseline_types.keys()
    }
    return {
        name: all(pa.types.is_integer(kind) for kind in types)
        for name, types in both.items()
        if len({holds_bytes(kind) for kind in types if not pa.types.is_null(kind)}) < 2
    }


def _read(file: str) -> Iterator[pa.RecordBatch]:
    decoder = ExamplesToRecordBatchDecoder()
    for records in read_batches(file, rows_for_columns):
        yield decoder.DecodeBatch(records.tolist())


def _hashes(rows: pa.RecordBatch, columns: Mapping[str, bool]) -> np.ndarray:
    """Returns a hash of each row's values in some columns, [rows].

    Args:
      rows: rows, possibly with other columns as well.
      columns: whether each column's numbers are compared as integers; otherwise as float32.
    """
    values = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in columns:
            kind = getattr(column.type, "value_type", column.type)
            as_float = pa.types.is_integer(kind) and not columns[name]
            floats = pa.large_list(pa.float32())
            values[name] = column.cast(floats, safe=False) if as_float else column
    return hash_rows(pa.record_batch(list(values.values()), list(values)))
