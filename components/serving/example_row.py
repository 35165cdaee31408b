"""An example of a row, in the JSON of requests: a golden row of the version, or neutral values."""

from __future__ import annotations

import base64
import logging
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from components.example_gen.columns.tensors import MISSING
from components.pusher.certificate import CERTIFICATE_PATH, GOLDEN_FILE
from components.serving.certificate import read_columns, read_golden
from components.serving.model import FeatureColumn, Model, Servable
from trainer_module.errors import DataError
from trainer_module.export.interface import RawColumn

logger = logging.getLogger(__name__)

_MAX_BYTES = 1 << 18
"""The most bytes of a text or a picture in an example."""
_CANDIDATES = 50
"""The number of golden rows from which the row with the most values is chosen."""
_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAGElEQVR42mNcwIAfMDGMKhhVMKpghCoAAButAODZubsA"
    "AAAAAElFTkSuQmCC"
)
"""A grey PNG of 32 by 32 pixels, in base64."""


def example_row(model: Servable, hidden: Collection[str] | None) -> dict[str, Any]:
    """Returns a row that the model can predict, by request name.

    Args:
      hidden: the columns of the data whose values must not be shown, or None if no values of the
        data may be shown. These columns have a neutral value.
    """
    golden = _golden_row(model) if hidden is not None else {}
    row = {}
    for column in model.interface.columns:
        values = None if column.name in (hidden or ()) else golden.get(column.name)
        written = None if values is None else _to_json(values, column)
        may_be_missing = column.dtype in MISSING and not column.picture
        is_missing = values == [] and column.width in (None, 1) and may_be_missing
        has_value = written is not None or is_missing
        row[column.request] = written if has_value else _neutral_value(column)
    return row


def _golden_row(model: Servable) -> dict[str, list[Any]]:
    """Returns the values of a row of the eval split, or no values if the version has no such row.

    Of the first golden rows, the row with the most values is returned.
    """
    folder, interface = model.folder / CERTIFICATE_PATH, model.interface
    if not isinstance(model, Model) or not (folder / GOLDEN_FILE).exists():
        return {}
    try:
        examples = [row.example for row in read_golden(folder)[0] if row.is_of_eval]
        rows = read_columns(
            examples[:_CANDIDATES], interface, "a golden row", "push the version again"
        )
    except DataError as error:
        logger.warning("the example has no values of the data: %s", error)
        return {}
    return max(_rows(rows), key=lambda row: sum(map(bool, row.values())), default={})


def _rows(columns: pa.RecordBatch) -> list[dict[str, list[Any]]]:
    return [{n: values or [] for n, values in row.items()} for row in columns.to_pylist()]


def _to_json(values: Sequence[Any], column: RawColumn) -> Any:
    """Returns the values of a column in a row as JSON, or None if they are missing or too large."""
    size = sum(len(value) for value in values if isinstance(value, bytes))
    if size > _MAX_BYTES or (column.width not in (None, 1, len(values))):
        return None
    written = [_value_to_json(value, column) for value in values]
    if column.width == 1:
        return written[0] if written else None
    return written


def _value_to_json(value: Any, column: RawColumn) -> Any:
    if isinstance(value, bytes):
        try:
            if not column.picture:
                return value.decode()
        except UnicodeDecodeError:
            pass
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, float):
        # tf.Examples have float32, whose shortest text is shorter than that of the same float64.
        return float(str(np.float32(value))) if np.isfinite(value) else None
    return value


def _neutral_value(column: RawColumn) -> Any:
    """Returns zeros, empty texts, or a grey picture."""
    if column.picture:
        return {"b64": _PICTURE}
    if isinstance(column, FeatureColumn) and column.shape:
        return np.zeros(column.shape, int).tolist()
    value = "" if column.dtype == "string" else 0
    if column.width == 1:
        return value
    return [value] * (column.width or 0)
