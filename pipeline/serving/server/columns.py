"""Values of JSON to the tensors of a request, each checked: its name, type, depth and number."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.serving.requests import MISSING, numpy_dtype
from pipeline.serving.server.errors import RequestError, unknown_name
from trainer_module.interface import ModelInterface, RawColumn

Arrays = dict[str, np.ndarray]
_LARGEST = 2**63
_TYPES = {str: "text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}


def from_rows(rows: Sequence[Any], interface: ModelInterface) -> Arrays:
    """Tensors by the names of requests, [rows, ...] each, for an object of columns per row.

    Raises:
      RequestError: names the row and the column that the model cannot take.
    """
    if not rows:
        raise RequestError("`instances` is empty: give one object a row.")
    names = [column.request for column in interface.columns]
    expected = set(names)
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            if len(names) == 1:
                return from_columns({names[0]: rows}, interface)
            raise RequestError(
                f"instances[{place}] is {_type_of(row)}, expected an object with a key per column:"
                f" {', '.join(sorted(names))}."
            )
        if row.keys() != expected:
            if names == [*names[:1]] and row.keys() == {"b64"}:
                return from_columns({names[0]: rows}, interface)
            raise _wrong_keys(f"instances[{place}]", row, names)
    return from_columns({name: [row[name] for row in rows] for name in names}, interface)


def from_columns(columns: Mapping[str, Any], interface: ModelInterface) -> Arrays:
    """The same for a list of values per column."""
    known = {column.request: column for column in interface.columns}
    if columns.keys() != known.keys():
        raise _wrong_keys("inputs", columns, list(known))
    arrays = {name: _to_array(columns[name], column) for name, column in known.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise RequestError(
            f"the columns of `inputs` have different numbers of rows: {sorted(lengths)}."
        )
    return arrays


def _wrong_keys(where: str, given: Mapping[str, Any], names: Sequence[str]) -> RequestError:
    for name in given:
        if name not in names:
            return unknown_name(where, str(name), names)
    missing = [name for name in names if name not in given]
    return RequestError(f"{where} lacks {', '.join(map(repr, missing))}: give every column.")


def _to_array(values: Any, column: RawColumn) -> np.ndarray:
    if not isinstance(values, list):
        raise RequestError(f"{column.request!r} is {_type_of(values)}, expected a list of rows.")
    to_value = _to_text if column.dtype == "string" else _to_number(column)
    if column.width == 1:
        converted = [to_value(_only(v), column.request, i) for i, v in enumerate(values)]
        return np.array(converted, numpy_dtype(column.dtype))
    rows = [_to_row(v, column, i, to_value) for i, v in enumerate(values)]
    return dense(rows, column)


def dense(rows: Sequence[Sequence[Any]], column: RawColumn) -> np.ndarray:
    """Lists of several lengths as [rows, values]; what is missing fills them up."""
    width = column.width or max(1, max(map(len, rows), default=1))
    fill = MISSING.get(column.dtype, 0)
    array = np.full((len(rows), width), fill, numpy_dtype(column.dtype))
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array


def _to_row(
    value: Any, column: RawColumn, place: int, to_value: Callable[[Any, str, int], Any]
) -> list[Any]:
    if not isinstance(value, list):
        raise RequestError(
            f"{column.request!r} of row {place} is {_type_of(value)}, expected a list of values."
        )
    if column.width is not None and len(value) != column.width:
        raise RequestError(
            f"{column.request!r} of row {place} has {len(value)} values, expected {column.width}."
        )
    return [to_value(item, column.request, place) for item in value]


def _only(value: Any) -> Any:
    """A value, also of a list of one: rows may be [batch] or [batch, 1]."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _to_number(column: RawColumn) -> Callable[[Any, str, int], Any]:
    missing, is_whole = MISSING.get(column.dtype), column.is_whole

    def to_number(value: Any, name: str, place: int) -> Any:
        kind = type(value)
        if kind is float:
            if math.isinf(value):
                raise RequestError(
                    f"{name!r} of row {place} is infinite, expected a finite number."
                )
            if is_whole and value == value and not (value.is_integer() and abs(value) < _LARGEST):
                raise RequestError(f"{name!r} of row {place} is {value}, expected a whole number.")
            if missing is not None or value == value:
                return value
        if kind is int and abs(value) < _LARGEST:
            return value
        if value is None and missing is not None:
            return missing
        raise RequestError(
            f"{name!r} of row {place} is {_type_of(value)}, expected a number"
            f"{', or null where it is missing' if missing is not None else ''}."
        )

    return to_number


def _to_text(value: Any, name: str, place: int) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{name!r} of row {place} holds half a surrogate pair.") from None
    if value is None:
        return b""
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return decode_base64(value["b64"], f"{name!r} of row {place}")
    raise RequestError(
        f"{name!r} of row {place} is {_type_of(value)}, expected text, or bytes as"
        ' {"b64": "..."}.'
    )


def decode_base64(text: Any, where: str) -> bytes:
    """Bytes that travel as base64.

    Raises:
      RequestError: they are not.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise RequestError(f"{where} is no valid base64 of RFC 4648.") from None


def _type_of(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return _TYPES.get(type(value), f"the number {str(value)[:30]}")
