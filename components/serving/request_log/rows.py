"""Conversion of requests and their predictions to rows with the columns of the training data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.columns.tensors import MISSING
from components.example_gen.sources.parquet_source import (
    ANSWER,
    MODEL_VERSION,
    REQUEST_ID,
    REQUEST_TIME,
    mark_own,
)
from components.serving.batch.writing import text_column, to_columns
from components.serving.model import Servable
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, Arrays, join_rows
from trainer_module.export.interface import RawColumn

_OBJECT_BYTES = 200
"""The approximate size of a Python object in bytes."""
_TEXT_BYTES = 33
"""The bytes that Python needs for a text in addition to its content."""


class LoggedRequest(NamedTuple):
    """A logged request, or some of its rows."""

    request_id: str
    rows: int
    start: int | None = None
    """The index of the first row within its request, or None for a whole request."""


@dataclass(frozen=True)
class AnsweredBatch:
    """A batch of requests with its outputs."""

    requests: Sequence[LoggedRequest]
    time: float
    """The time of the prediction, in seconds since 1970."""
    model: Servable
    signature: str
    columns: Arrays
    """The inputs of the signature by name. Each input has the shape [rows, ...]."""
    answers: Arrays
    """The outputs of the model by name."""

    @cached_property
    def rows(self) -> int:
        """The number of rows of all requests."""
        return sum(request.rows for request in self.requests)

    @cached_property
    def size(self) -> int:
        """The memory of the batch in the queue, in bytes."""
        values = (*self.columns.values(), *self.answers.values())
        return _OBJECT_BYTES * (len(self.requests) + len(values)) + sum(map(_size, values))

    def has_same_signature(self, other: AnsweredBatch) -> bool:
        """Returns whether both batches have the same version and signature."""
        return self.model is other.model and self.signature == other.signature

    def select(self, condition: Callable[[str], bool]) -> AnsweredBatch:
        """Returns the requests whose ids satisfy a condition."""
        selected = [condition(request.request_id) for request in self.requests]
        if all(selected):
            return self
        row_mask = np.repeat(selected, [request.rows for request in self.requests])
        return replace(
            self,
            requests=list(compress(self.requests, selected)),
            columns={name: values[row_mask] for name, values in self.columns.items()},
            answers={name: values[row_mask] for name, values in self.answers.items()},
        )

    def copy_views(self) -> AnsweredBatch:
        """Returns the batch with copies of arrays that are slices.

        A slice would keep the larger array in memory.
        """
        return replace(
            self,
            columns={name: _copy_view(values) for name, values in self.columns.items()},
            answers={name: _copy_view(values) for name, values in self.answers.items()},
        )


def _copy_view(values: np.ndarray) -> np.ndarray:
    base = values.base
    is_slice = isinstance(base, np.ndarray) and base.nbytes > values.nbytes
    return values.copy() if is_slice else values


def _size(values: np.ndarray) -> int:
    if values.dtype != object:
        return values.nbytes
    return values.nbytes + values.size * _TEXT_BYTES + sum(map(len, values.ravel().tolist()))


def to_rows(batches: Sequence[AnsweredBatch], dropped: Collection[str]) -> pa.RecordBatch:
    """Returns requests as rows of a table, in their order.

    Missing values are null. Whole numbers are written as integers, even if the model takes floats.

    Args:
      batches: batches of the same version and signature, with at least one row.
    """
    first, parts = batches[0], [batch.columns for batch in batches]
    logged = [c for c in first.model.interface.columns if c.name not in dropped]
    if first.signature == EXAMPLES:
        examples = np.concatenate([part[EXAMPLES_INPUT] for part in parts])
        columns = _from_examples(examples, logged)
    else:
        columns = {c.name: _column([part[c.request] for part in parts], c) for c in logged}
    added = _added_columns(batches)
    table = pa.RecordBatch.from_pydict(columns | added)
    return table.replace_schema_metadata(mark_own(added))


def _added_columns(batches: Sequence[AnsweredBatch]) -> dict[str, pa.Array]:
    """Returns the columns that the log adds to the data: id, time, version and outputs."""
    ids = [row_id for batch in batches for request in batch.requests for row_id in _ids(request)]
    milliseconds = [round(batch.time * 1000) for batch in batches]
    times = np.repeat(milliseconds, [batch.rows for batch in batches])
    version = batches[0].model.folder.name
    answers = join_rows([batch.answers for batch in batches])
    return {
        REQUEST_ID: pa.array(ids, pa.string()),
        REQUEST_TIME: pa.array(times, pa.timestamp("ms", "UTC")),
        MODEL_VERSION: pa.array([version] * len(ids), pa.string()),
        **{f"{ANSWER}{name}": values for name, values in to_columns(answers).items()},
    }


def _ids(request: LoggedRequest) -> list[str]:
    """Returns an id per row: the id of the request, with the index of the row if it has several."""
    if request.rows == 1 and request.start is None:
        return [request.request_id]
    start = request.start or 0
    return [f"{request.request_id}/{row}" for row in range(start, start + request.rows)]


def _column(parts: Sequence[np.ndarray], raw_column: RawColumn) -> pa.Array:
    """Returns a column of values, or of lists, from the arrays of several batches."""
    if raw_column.width == 1:
        return _values(np.concatenate(parts), raw_column)
    groups = (list(group) for _, group in groupby(parts, key=lambda part: part.shape[1]))
    return pa.concat_arrays([_lists(np.concatenate(group), raw_column) for group in groups])


def _lists(part: np.ndarray, raw_column: RawColumn) -> pa.Array:
    """Returns the lists of a padded array without their padding."""
    in_list = np.ones(part.shape, bool)
    if raw_column.width is None and raw_column.dtype in MISSING:
        has_value = part != b"" if part.dtype == object else ~np.isnan(part)
        # Only missing values at the end are padding. Missing values within a list are kept.
        in_list = np.cumsum(has_value[:, ::-1], axis=1)[:, ::-1] > 0
    ends = np.concatenate([[0], np.cumsum(in_list.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _values(part[in_list], raw_column))


def _values(values: np.ndarray, raw_column: RawColumn) -> pa.Array:
    """Returns the values as an Arrow array, in which missing values are null."""
    if raw_column.dtype == "string":
        texts = pa.array(values.tolist(), pa.binary())
        texts = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
        return texts if raw_column.picture == "bytes" else text_column(texts)
    if not np.issubdtype(values.dtype, np.floating):
        return pa.array(values)
    missing = np.isnan(values)
    if raw_column.is_whole:
        return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)
    return pa.array(values, mask=missing)


def _from_examples(examples: np.ndarray, columns: Sequence[RawColumn]) -> dict[str, pa.Array]:
    """Returns the columns of serialised tf.Examples, which the model has already accepted."""
    import tensorflow as tf

    spec = {c.name: tf.io.RaggedFeature(_dtype_of(c)) for c in columns}
    parsed = tf.io.parse_example(tf.constant(examples, tf.string), spec)
    return {c.name: _ragged(parsed[c.name], c) for c in columns}


def _dtype_of(column: RawColumn) -> str:
    if column.dtype == "string":
        return "string"
    return "int64" if column.is_whole else "float32"


def _ragged(lists: Any, raw_column: RawColumn) -> pa.Array:
    values, ends = lists.values.numpy(), lists.row_splits.numpy()
    column = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _values(values, raw_column))
    if raw_column.width != 1:
        return column
    starts = pa.array(ends[:-1], mask=ends[:-1] == ends[1:])
    return column.values.take(starts)
