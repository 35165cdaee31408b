"""Conversion of answered requests to rows: the columns of training data, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.sources.parquet_source import (
    ANSWER,
    MODEL_VERSION,
    REQUEST_ID,
    REQUEST_TIME,
    mark_own,
)
from components.serving.batch.writing import text_column, to_columns
from components.serving.model import Servable
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, MISSING, Arrays, join_rows
from trainer_module.export.interface import RawColumn

_OBJECT_BYTES = 200
"""The approximate size of a Python object in bytes."""
_TEXT_BYTES = 33
"""The bytes that Python adds to those of a text."""


class LoggedRequest(NamedTuple):
    """A request of the log, or some of its rows."""

    name: str
    """The id of the request."""
    rows: int
    start: int | None = None
    """The place of the first row; None for all rows."""


@dataclass(frozen=True)
class AnsweredBatch:
    """A batch of requests with its outputs."""

    requests: Sequence[LoggedRequest]
    time: float
    """The time of the prediction, in seconds since 1970."""
    model: Servable
    signature: str
    columns: Arrays
    """The inputs of the signature by name, [rows, ...] each."""
    answers: Arrays

    @cached_property
    def rows(self) -> int:
        """The number of rows of all requests."""
        return sum(one.rows for one in self.requests)

    @cached_property
    def size(self) -> int:
        """The memory of the batch in the queue, in bytes."""
        values = (*self.columns.values(), *self.answers.values())
        return _OBJECT_BYTES * (len(self.requests) + len(values)) + sum(map(_size, values))

    def has_same_signature(self, other: AnsweredBatch) -> bool:
        """Returns whether both batches have the same version and signature."""
        return self.model is other.model and self.signature == other.signature

    def select(self, is_wanted: Callable[[str], bool]) -> AnsweredBatch:
        """Returns the requests whose ids satisfy a condition."""
        wanted = [is_wanted(one.name) for one in self.requests]
        if all(wanted):
            return self
        chosen = np.repeat(wanted, [one.rows for one in self.requests])
        return replace(
            self,
            requests=[one for one, is_one in zip(self.requests, wanted, strict=True) if is_one],
            columns={name: values[chosen] for name, values in self.columns.items()},
            answers={name: values[chosen] for name, values in self.answers.items()},
        )

    def copy_views(self) -> AnsweredBatch:
        """Returns a copy of arrays that are slices, so that no larger arrays stay in memory."""
        return replace(
            self,
            columns={name: _copy_view(values) for name, values in self.columns.items()},
            answers={name: _copy_view(values) for name, values in self.answers.items()},
        )


def _copy_view(values: np.ndarray) -> np.ndarray:
    whole = values.base
    is_part = isinstance(whole, np.ndarray) and whole.nbytes > values.nbytes
    return values.copy() if is_part else values


def _size(values: np.ndarray) -> int:
    if values.dtype != object:
        return values.nbytes
    return values.nbytes + values.size * _TEXT_BYTES + sum(map(len, values.ravel().tolist()))


def to_rows(batches: Sequence[AnsweredBatch], dropped: Collection[str]) -> pa.RecordBatch:
    """Returns requests as rows of a table, in their order.

    Missing values are null. Whole numbers are integers, even if the model takes them as floats.

    Args:
      batches: batches of the same version and signature, with at least one row.
      dropped: the columns to leave out.
    """
    first, parts = batches[0], [one.columns for one in batches]
    wanted = [c for c in first.model.interface.columns if c.name not in dropped]
    if first.signature == EXAMPLES:
        examples = np.concatenate([part[EXAMPLES_INPUT] for part in parts])
        columns = _from_examples(examples, wanted)
    else:
        columns = {c.name: _column([part[c.request] for part in parts], c) for c in wanted}
    own = _own_columns(batches)
    table = pa.RecordBatch.from_pydict(columns | own)
    return table.replace_schema_metadata(mark_own(own))


def _own_columns(batches: Sequence[AnsweredBatch]) -> dict[str, pa.Array]:
    """Returns the columns that are added to the data: id, time, version and outputs."""
    ids = [name for one in batches for request in one.requests for name in _ids(request)]
    times = np.repeat([round(one.time * 1000) for one in batches], [one.rows for one in batches])
    version = batches[0].model.folder.name
    answers = join_rows([one.answers for one in batches])
    return {
        REQUEST_ID: pa.array(ids, pa.string()),
        REQUEST_TIME: pa.array(times, pa.timestamp("ms", "UTC")),
        MODEL_VERSION: pa.array([version] * len(ids), pa.string()),
        **{f"{ANSWER}{name}": values for name, values in to_columns(answers).items()},
    }


def _ids(request: LoggedRequest) -> list[str]:
    if request.rows == 1 and request.start is None:
        return [request.name]
    start = request.start or 0
    return [f"{request.name}/{place}" for place in range(start, start + request.rows)]


def _column(parts: Sequence[np.ndarray], raw_column: RawColumn) -> pa.Array:
    """Returns a column of values, or of lists, from the arrays of several batches."""
    if raw_column.width == 1:
        return _values(np.concatenate(parts), raw_column)
    alike = (list(some) for _, some in groupby(parts, key=lambda part: part.shape[1]))
    return pa.concat_arrays([_lists(np.concatenate(some), raw_column) for some in alike])


def _lists(part: np.ndarray, raw_column: RawColumn) -> pa.Array:
    """Returns lists without the padding up to the longest."""
    known = np.ones(part.shape, bool)
    if raw_column.width is None and raw_column.dtype in MISSING:
        is_known = part != b"" if part.dtype == object else ~np.isnan(part)
        # Only trailing missing values are padding; gaps within a list stay.
        known = np.cumsum(is_known[:, ::-1], axis=1)[:, ::-1] > 0
    ends = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _values(part[known], raw_column))


def _values(values: np.ndarray, raw_column: RawColumn) -> pa.Array:
    if raw_column.dtype == "string":
        found = pa.array(values.tolist(), pa.binary())
        found = pc.if_else(pc.equal(pc.binary_length(found), 0), None, found)
        return found if raw_column.picture == "bytes" else text_column(found)
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
