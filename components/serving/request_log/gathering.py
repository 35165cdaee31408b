"""Rows that wait to be written, in an array for each column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.columns.served import (
    ANSWER,
    MODEL_VERSION,
    REQUEST_ID,
    REQUEST_TIME,
    mark_own,
)
from components.serving.batch.writing import text_column, to_columns
from components.serving.model import Servable
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, MISSING, Arrays
from trainer_module.export.interface import RawColumn


def to_rows(gathered: GatheredRows, dropped: Collection[str]) -> pa.RecordBatch:
    """Requests as rows, in their order.

    Missing values are null, and whole numbers are whole also where the model takes them as floats.

    Args:
      gathered: at least one row.
      dropped: columns that are left out.
    """
    wanted = [c for c in gathered.model.interface.columns if c.name not in dropped]
    if gathered.signature == EXAMPLES:
        columns = _from_examples(np.concatenate(gathered.column(EXAMPLES_INPUT)), wanted)
    else:
        columns = {c.name: _column(gathered.column(c.request), c) for c in wanted}
    own = _own_columns(gathered)
    table = pa.RecordBatch.from_pydict(columns | own)
    return table.replace_schema_metadata(mark_own(own))


def _own_columns(gathered: GatheredRows) -> dict[str, pa.Array]:
    """What is known of the rows besides their data."""
    ids = [name for request in gathered.requests for name in _ids(request)]
    times = np.rint(np.multiply(gathered.times, 1000)).astype(np.int64)
    version = gathered.model.folder.name
    return {
        REQUEST_ID: pa.array(ids, pa.string()),
        REQUEST_TIME: pa.array(times, pa.timestamp("ms", "UTC")),
        MODEL_VERSION: pa.array([version] * len(ids), pa.string()),
        **{f"{ANSWER}{name}": values for name, values in to_columns(gathered.answers).items()},
    }


def _ids(request: LoggedRequest) -> list[str]:
    if request.rows == 1 and request.start is None:
        return [request.name]
    start = request.start or 0
    return [f"{request.name}/{place}" for place in range(start, start + request.rows)]


def _column(parts: Sequence[np.ndarray], wanted: RawColumn) -> pa.Array:
    """A column of [rows] each, or of lists where parts are [rows, values]."""
    if wanted.width == 1:
        return _values(np.concatenate(parts), wanted)
    lists = [_lists(part, wanted) for part in parts]
    return pa.concat_arrays(lists)


def _lists(part: np.ndarray, wanted: RawColumn) -> pa.Array:
    """Lists as they were before they were filled up to the longest."""
    known = np.ones(part.shape, bool)
    if wanted.width is None and wanted.dtype in MISSING:
        is_known = part != b"" if part.dtype == object else ~np.isnan(part)
        # Up to the last value that is there: a gap in a list stays.
        known = np.cumsum(is_known[:, ::-1], axis=1)[:, ::-1] > 0
    ends = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _values(part[known], wanted))


def _values(values: np.ndarray, wanted: RawColumn) -> pa.Array:
    if wanted.dtype == "string":
        found = pa.array(values.tolist(), pa.binary())
        found = pc.if_else(pc.equal(pc.binary_length(found), 0), None, found)
        return found if wanted.picture == "bytes" else text_column(found)
    if not np.issubdtype(values.dtype, np.floating):
        return pa.array(values)
    missing = np.isnan(values)
    if wanted.is_whole:
        return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)
    return pa.array(values, mask=missing)


def _from_examples(examples: np.ndarray, wanted: Sequence[RawColumn]) -> dict[str, pa.Array]:
    """The columns of serialised tf.Examples, which the model has taken already."""
    import tensorflow as tf

    spec = {c.name: tf.io.RaggedFeature(_dtype_of(c)) for c in wanted}
    parsed = tf.io.parse_example(tf.constant(examples, tf.string), spec)
    return {c.name: _ragged(parsed[c.name], c) for c in wanted}


def _dtype_of(column: RawColumn) -> str:
    if column.dtype == "string":
        return "string"
    return "int64" if column.is_whole else "float32"


def _ragged(lists: Any, wanted: RawColumn) -> pa.Array:
    values, ends = lists.values.numpy(), lists.row_splits.numpy()
    column = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _values(values, wanted))
    if wanted.width != 1:
        return column
    starts = pa.array(ends[:-1], mask=ends[:-1] == ends[1:])
    return column.values.take(starts)


_OF_PYTHON = 200
"""Bytes of an object, about."""
_TOGETHER = 512
"""Rows of an array: the thread that writes them has Python's lock for as long as they take."""
_OF_TEXT = 33
"""Bytes that Python adds to those of a text."""
_OF_ARRAY = 500
"""Bytes of what keeps a column, about, besides its values."""


class LoggedRequest(NamedTuple):
    """A request, or some of its rows."""

    name: str
    """Its id."""
    rows: int
    start: int | None = None
    """The place of the first row; None where it is all of them."""


@dataclass(frozen=True)
class Answered:
    """Requests that were asked together, and what they were answered."""

    requests: Sequence[LoggedRequest]
    time: float
    """In seconds since 1970."""
    model: Servable
    signature: str
    columns: Arrays
    """What was asked: by the names of the signature, [rows, ...] each."""
    answers: Arrays

    @property
    def rows(self) -> int:
        """Of all requests."""
        return sum(one.rows for one in self.requests)

    @property
    def size(self) -> int:
        """Bytes that they take while they wait."""
        values = (*self.columns.values(), *self.answers.values())
        return _OF_PYTHON * len(self.requests) + sum(map(_size, values))

    @property
    def size_of_arrays(self) -> int:
        """Bytes besides, where they are the first of `GatheredRows`."""
        return _OF_ARRAY * (len(self.columns) + len(self.answers))

    def only(self, is_wanted: Callable[[str], bool]) -> Answered:
        """Those requests alone whose id is wanted."""
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


def _size(values: np.ndarray) -> int:
    if values.dtype != object:
        return values.nbytes
    return values.nbytes + values.size * _OF_TEXT + sum(map(len, values.ravel().tolist()))


class GatheredRows:
    """Rows of one version and one signature, in their order.

    Kept as they come, a request would be a dozen arrays, which take whoever writes them four times
    as long as the few that they are copied to here.
    """

    def __init__(self, model: Servable, signature: str) -> None:
        self.model, self.signature = model, signature
        self.requests: list[LoggedRequest] = []
        self.times: list[float] = []
        """Of each row, in seconds since 1970."""
        self.size = 0
        """Bytes."""
        self._columns = defaultdict[str, _Gathered](_Gathered)
        self._answers = defaultdict[str, _Gathered](_Gathered)

    @property
    def rows(self) -> int:
        """Of all requests."""
        return len(self.times)

    def takes(self, answered: Answered) -> bool:
        """Whether more rows belong here, and have room."""
        return (
            answered.model is self.model
            and answered.signature == self.signature
            and self.rows + answered.rows <= _TOGETHER
        )

    def add(self, answered: Answered, size: int) -> None:
        """Takes the rows of more requests, of so many bytes."""
        self.requests += answered.requests
        self.times += [answered.time] * answered.rows
        for name, values in answered.columns.items():
            self._columns[name].add(values)
        for name, values in answered.answers.items():
            self._answers[name].add(values)
        self.size += size

    def column(self, name: str) -> list[np.ndarray]:
        """What was asked: [rows, ...] each, of which several are of several widths."""
        return self._columns[name].parts

    @property
    def answers(self) -> Arrays:
        """What was answered, by name, [rows, ...] each."""
        return {name: np.concatenate(column.parts) for name, column in self._answers.items()}


class _Gathered:
    """Values of a column."""

    def __init__(self) -> None:
        self._full: list[np.ndarray] = []
        self._values, self._end = np.empty(0), 0

    @property
    def parts(self) -> list[np.ndarray]:
        return [*self._full, self._values[: self._end]]

    def add(self, values: np.ndarray) -> None:
        end = self._end + len(values)
        if values.shape[1:] != self._values.shape[1:] or not self._end:
            if self._end:  # Widths differ, as those of lists do.
                self._full.append(self._values[: self._end])
            self._values, self._end = np.empty(values.shape, values.dtype), 0
            end = len(values)
        elif end > len(self._values):  # Twice the room, and no more: the next may be others' rows.
            room = np.empty((max(end, 2 * self._end), *values.shape[1:]), values.dtype)
            room[: self._end] = self._values[: self._end]
            self._values = room
        self._values[self._end : end] = values
        self._end = end
