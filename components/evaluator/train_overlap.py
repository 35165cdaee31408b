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

MOST_SHARE = 0.05
"""The largest share of an evaluation's rows that the model in service may have been trained on. The
share biases the comparison, and the bias exceeds the noise more often the more rows there are:
above `FEW_ROWS` the limit falls with the root of their number, as does the share of rows that move
between stratified splits when data grows."""
FEW_ROWS = 1_000
MOST_BYTES = 512 << 20
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
    def is_too_much(self) -> bool:
        """Whether the share is too large for a comparison."""
        return self.share > MOST_SHARE * math.sqrt(FEW_ROWS / max(self.rows, FEW_ROWS))


def find_train_overlap(
    evaluated: Sequence[Artifact],
    split: str,
    learnt: Sequence[Artifact],
    now: Sequence[Artifact],
) -> TrainOverlap:
    """Finds the rows that the model in service was trained on and the new one was not.

    Rows are the same if they have equal values in all columns that both have. Equal rows of
    different splits, which are frequent in a table of a few categories, count for both models.

    Args:
      evaluated: the examples of the evaluation.
      split: the split to evaluate.
      learnt: the examples that the model in service was trained on, as far as they exist.
      now: the examples that the new model was trained on; those in `learnt` too are not read, as
        their splits are the same.
    """
    read = {artifact.id for artifact in now}
    files, part = _some(split_files((a for a in learnt if a.id not in read), TRAIN_SPLIT))
    if not files:
        return TrainOverlap()
    judged = split_files(evaluated, split)
    known = _comparable(_types(judged), _types(files))
    if not known:
        return TrainOverlap()
    rows = [_hashes(batch, known) for file in judged for batch in _read(file)]
    hashes, counts = np.unique(np.concatenate(rows), return_counts=True)

    def share(files: Sequence[str], part: float) -> float:
        met = np.zeros(len(hashes), bool)
        for batch in (batch for file in files for batch in _read(file)):
            # Not by `np.isin`, which sorts all hashes with each batch.
            looked_for = _hashes(batch, known)
            places = np.searchsorted(hashes, looked_for).clip(max=len(hashes) - 1)
            met[places[hashes[places] == looked_for]] = True
        return min(float(counts[met].sum() / counts.sum()) / part, 1.0)

    overlap = TrainOverlap(share(files, part), int(counts.sum()))
    if not overlap.is_too_much:
        return overlap
    own = share(*_some(split_files(evaluated, TRAIN_SPLIT)))
    return replace(overlap, share=max(overlap.share - own, 0.0))


def _some(files: list[str]) -> tuple[list[str], float]:
    """Returns evenly spaced files of about `MOST_BYTES` at most, and their share of all bytes."""
    sizes = [fileio.stat(file).length for file in files]
    total = sum(sizes)
    if total <= MOST_BYTES:
        return files, 1.0
    step = -(-total // MOST_BYTES)
    logger.info("Reads one in %d of the files on which the model in service was trained", step)
    return files[::step], sum(sizes[::step]) / total


def _types(files: Sequence[str]) -> dict[str, pa.DataType]:
    """Returns the types of the columns' values, by those of the first rows."""
    first = next((batch for file in files for batch in _read(file)), None)
    if first is None:
        return {}
    return {field.name: getattr(field.type, "value_type", field.type) for field in first.schema}


def _comparable(
    ours: Mapping[str, pa.DataType], theirs: Mapping[str, pa.DataType]
) -> dict[str, bool]:
    """Returns whether the numbers of each column that both have are integers on both sides.

    A column of numbers on one side and of text on the other is left out.
    """
    both = {name: (ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
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
