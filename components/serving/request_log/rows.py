"""Requests and their answers as rows of a table: the columns as training data has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

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
from components.serving.batch.answers import text_column, to_columns
from components.serving.model import EXAMPLES, EXAMPLES_INPUT
from components.serving.request_log.gathering import GatheredRows, LoggedRequest
from components.serving.requests import MISSING
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
