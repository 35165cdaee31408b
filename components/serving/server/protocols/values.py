"""Conversion of JSON to tensors, with checks of type, depth and number of values."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, cast

import numpy as np
import orjson
import pyarrow as pa

from components.serving.model import FeatureColumn
from components.serving.requests import MISSING, Arrays, numpy_dtype
from components.serving.server.replies import RequestError, unknown_name
from trainer_module.errors import counted, shorten
from trainer_module.export.interface import ModelInterface, RawColumn

_MOST_VALUES = 1 << 23
"""The most values of a column of lists, padded to the longest list: a few bytes of JSON can require
many values."""
_LARGEST, _LARGEST_FLOAT32 = 2**63, float(np.finfo(np.float32).max)
_TYPES = {str: "text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}
_NUMBERS, _TEXTS, _LISTS = {float, int}, {str, type(None)}, {list}


def parse_json(body: bytes) -> Any:
    """Returns a body parsed as JSON, with NaN as a missing number, as in TF Serving.

    Raises:
      RequestError: the body is no JSON, or nested too deep.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body and b"Infinity" not in body:
            raise RequestError(f"the body is not JSON: {error}.") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {shorten(error)}.") from None


def to_array(values: list[Any], column: RawColumn) -> np.ndarray:
    """Returns the values of a column, a JSON value per row, as [rows] or [rows, values].

    Raises:
      RequestError: the model cannot take a row; the message names the first one.
    """
    if isinstance(column, FeatureColumn) and len(column.shape) > 1:
        values = [_flat(v, column.shape, column, place) for place, v in enumerate(values)]
    if column.width == 1:
        found = _convert_column(_flatten_single(values), column)
        if found is None:
            found = _convert_values(map(_unwrap, values), range(len(values)), column)
        return found
    if not _are_lists(values, column):
        values = [_to_list(value, column, place) for place, value in enumerate(values)]
    lengths, flat = list(map(len, values)), list(chain.from_iterable(values))
    found = _convert_column(flat, column)
    if found is None:
        places = np.repeat(range(len(values)), lengths).tolist()
        found = _convert_values(flat, places, column)
    if column.width is not None:
        return found.reshape(len(values), column.width)
    width = max(1, max(lengths))
    check_size(len(values), width, column.request)
    filled = np.full((len(values), width), MISSING.get(column.dtype, 0), numpy_dtype(column.dtype))
    filled[np.arange(width) < np.array(lengths)[:, np.newaxis]] = found
    return filled


def _are_lists(values: list[Any], column: RawColumn) -> bool:
    is_fixed = column.width is not None
    are_lists = set(map(type, values)) == _LISTS
    return are_lists and not (is_fixed and set(map(len, values)) != {column.width})


def _convert_values(values: Iterable[Any], places: Iterable[int], column: RawColumn) -> np.ndarray:
    """Returns values of which one may be invalid; raises RequestError for the first of these."""
    read = _to_text if column.dtype == "string" else _to_number
    found = [read(value, column, place) for value, place in zip(values, places, strict=True)]
    return np.array(found, numpy_dtype(column.dtype))


def _flat(value: Any, shape: tuple[int, ...], column: FeatureColumn, place: int) -> list[Any]:
    """Returns the nested values of a row in one list."""
    if not shape:
        return [value]
    if not isinstance(value, list) or len(value) != shape[0]:
        raise RequestError(
            f"{column.request!r} of row {place} does not have the shape {list(column.shape)}."
        )
    return [one for item in value for one in _flat(item, shape[1:], column, place)]


def _flatten_single(values: list[Any]) -> list[Any]:
    """Returns values without lists, if all are lists of one: rows may be [batch] or [batch, 1]."""
    if set(map(type, values)) == _LISTS and set(map(len, values)) == {1}:
        return list(chain.from_iterable(values))
    return values


def _convert_column(values: list[Any], column: RawColumn) -> np.ndarray | None:
    """Returns a column of valid values; None if a value is, or may be, invalid."""
    kinds = set(map(type, values))
    if column.dtype == "string":
        return _texts(values) if kinds <= _TEXTS else None
    found = _convert_numbers(values, [column])
    return None if found is None else found[column.request]


def _convert_numbers(values: list[Any], columns: Sequence[RawColumn]) -> Arrays | None:
    """Returns columns of numbers, in a third of the time of `_convert_values`.

    Args:
      values: the values of all columns, column by column.
      columns: the columns; either all or none of them may have missing values.

    Returns:
      An array [values] per column; None if a value is, or may be, invalid.
    """
    kinds = set(map(type, values))
    if columns[0].dtype in MISSING:
        numbers = _floats(values, kinds)
    else:
        numbers = _integers(values) if kinds == {int} else None
    if numbers is None:
        return None
    shaped = numbers.reshape(len(columns), -1)
    if not are_whole(shaped[[column.is_whole for column in columns]]):
        return None
    of_dtype = {dtype: np.ascontiguousarray(shaped, dtype) for dtype in {c.dtype for c in columns}}
    return {c.request: of_dtype[c.dtype][place] for place, c in enumerate(columns)}


def _floats(values: list[Any], kinds: set[type]) -> np.ndarray | None:
    """Returns numbers as float64, with NaN for None; None if there are other values."""
    if not kinds or not kinds <= _NUMBERS | {type(None)}:
        return None
    try:
        # Arrow takes a quarter of NumPy's time if there are Nones, and longer otherwise.
        numbers = (
            pa.array(values, pa.float64()).to_numpy(zero_copy_only=False)
            if type(None) in kinds
            else np.array(values, np.float64)
        )
    except (OverflowError, pa.ArrowInvalid):
        return None
    return numbers if np.fmax.reduce(np.abs(numbers), initial=0.0) < _LARGEST else None


def are_whole(numbers: np.ndarray) -> bool:
    """Returns whether all numbers are whole or missing."""
    return bool(np.fmax.reduce(numbers - np.floor(numbers), axis=None, initial=0.0) <= 0)


def _texts(values: list[str | None]) -> np.ndarray | None:
    array = np.empty(len(values), object)
    try:
        array[:] = [value.encode() if value else b"" for value in values]
    except UnicodeEncodeError:
        return None
    return array


def _integers(values: list[int]) -> np.ndarray | None:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return None


def check_size(rows: int, width: int, name: str = "") -> None:
    """Raises RequestError if lists of different lengths would take too much memory when padded."""
    if rows * width > _MOST_VALUES:
        where = f"{name!r}: " if name else ""
        raise RequestError(
            f"{where}{rows} rows of lists of up to {width} values are too many: send rows"
            " with long lists in their own requests.",
            413,
        )


def _to_list(value: Any, column: RawColumn, place: int) -> list[Any]:
    if value is None and column.width is None:
        return []  # A missing list has no values.
    if not isinstance(value, list):
        raise RequestError(
            f"{column.request!r} of row {place} is {type_of(value)}, expected a list of values."
        )
    if column.width is not None and len(value) != column.width:
        raise RequestError(
            f"{column.request!r} of row {place} has {counted(len(value), 'value')}, expected"
            f" {column.width}."
        )
    return value


def _unwrap(value: Any) -> Any:
    """Returns a value, or the only item of a list: rows may be [batch] or [batch, 1]."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _to_number(value: Any, column: RawColumn, place: int) -> Any:
    missing, kind = MISSING.get(column.dtype), type(value)
    where = f"{column.request!r} of row {place}"
    if kind is float:
        if math.isinf(value):
            raise RequestError(f"{where} is infinite, expected a finite number.")
        is_whole = value != value or (value.is_integer() and abs(value) < _LARGEST)
        if column.is_whole and not is_whole:
            raise RequestError(f"{where} is {value}, expected a whole number.")
        if column.dtype == "float32" and abs(value) > _LARGEST_FLOAT32:
            raise RequestError(f"{where} is {value}, which is too large for {column.dtype}.")
        if missing is not None or value == value:
            return value
    if kind is int and abs(value) < _LARGEST:
        return value
    if value is None and missing is not None:
        return missing
    raise RequestError(
        f"{where} is {type_of(value)}, expected a number"
        f"{', such as 1 or 0' if kind is bool else ''}"
        f"{', or null for a missing value' if missing is not None else ''}."
    )


def _to_text(value: Any, column: RawColumn, place: int) -> bytes:
    """Returns the bytes of a value of a text column, where numbers may stand for their texts."""
    reader, where = column.text_reader, f"{column.request!r} of row {place}"
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise RequestError(
                f"{where} has an unpaired surrogate, which is not valid Unicode."
            ) from None
    if value is None:
        return b""
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return decode_base64(value["b64"], where)
    if reader is None or not isinstance(value, int | float):
        raise RequestError(
            f'{where} is {type_of(value)}, expected text, or bytes as {{"b64": "..."}}.'
        )
    written = reader.write(value)
    if written is None:
        raise RequestError(f"{where} is {type_of(value)}, expected {reader.right}.")
    return written


def decode_base64(text: Any, where: str) -> bytes:
    """Returns the bytes that a base64 text encodes.

    Raises:
      RequestError: the text is no valid base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise RequestError(f"{where} is not valid base64 (RFC 4648).") from None


def type_of(value: Any) -> str:
    """Returns a description of a value's type, for error messages."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return _TYPES.get(type(value), f"the number {str(value)[:30]}")


Rows = list[Any]
"""JSON rows, each of which should be an object with a key per column."""
Columns = dict[str, list[Any]]
"""JSON values by request name, a value per row, whose types are not checked yet."""
RequestInputs = Rows | Columns | Arrays
"""The inputs of a request: JSON rows, JSON columns, or tensors."""


def row_count(inputs: RequestInputs) -> int:
    """Returns the number of rows of a request."""
    first: Any = inputs if isinstance(inputs, list) else next(iter(inputs.values()))
    return len(first)


def as_tensors(inputs: RequestInputs, interface: ModelInterface) -> Arrays:
    """Returns the tensors of a request.

    Raises:
      RequestError: the model cannot take the inputs.
    """
    if isinstance(inputs, list):
        return rows_to_arrays(inputs, interface)
    return (
        cast("Arrays", inputs)
        if are_tensors(inputs)
        else to_arrays(cast("Columns", inputs), interface)
    )


def are_tensors(inputs: RequestInputs) -> bool:
    """Returns whether the inputs of a request are tensors rather than JSON."""
    return not isinstance(inputs, list) and isinstance(next(iter(inputs.values())), np.ndarray)


def from_rows(rows: Rows, interface: ModelInterface) -> Columns:
    """Returns the columns of JSON rows by request name, for at least one row.

    Raises:
      RequestError: a row has other columns than the model; the message names the row.
    """
    names = list(interface.by_request)
    if len(names) > 1:
        try:
            if set(map(len, rows)) == {len(names)}:
                values = zip(*map(itemgetter(*names), rows), strict=True)
                return dict(zip(names, map(list, values), strict=True))
        except (KeyError, TypeError, ValueError):
            pass  # The next lines find the invalid row.
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            if len(names) == 1:
                return from_columns({names[0]: rows}, interface)
            raise RequestError(
                f"instances[{place}] is {type_of(row)}, expected an object with a key per column:"
                f" {', '.join(sorted(names))}."
            )
        if row.keys() != set(names):
            if len(names) == 1 and row.keys() == {"b64"}:
                return from_columns({names[0]: rows}, interface)
            raise _wrong_keys(f"instances[{place}]", row, names)
    return {name: [row[name] for row in rows] for name in names}


def from_columns(columns: Mapping[str, Any], interface: ModelInterface) -> Columns:
    """Returns JSON columns by request name, after checking names and lengths.

    Raises:
      RequestError: a column is missing or unknown, is no list, or has another number of rows.
    """
    known = interface.by_request
    if columns.keys() != known.keys():
        raise _wrong_keys("inputs", columns, list(known))
    for name in known:
        if not isinstance(columns[name], list):
            said = type_of(columns[name])
            raise RequestError(f"{name!r} is {said}, expected a list of rows.")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise RequestError(
            f"the columns of `inputs` have different numbers of rows: {sorted(lengths)}."
        )
    return {name: columns[name] for name in known}


def rows_to_arrays(rows: Rows, interface: ModelInterface) -> Arrays:
    """Returns tensors of JSON rows by request name, [rows, ...] each, for at least one row.

    Raises:
      RequestError: the model cannot take a value; the message names its row and column.
    """
    return to_arrays(from_rows(rows, interface), interface)


def to_arrays(columns: Columns, interface: ModelInterface) -> Arrays:
    """Returns tensors of JSON columns by request name, [rows, ...] each.

    Raises:
      RequestError: the model cannot take a value; the message names its row and column.
    """
    known, found = interface.by_request, Arrays()
    alone = [c for c in known.values() if c.width == 1 and c.dtype != "string"]
    for may_miss in (True, False):
        if group := [column for column in alone if (column.dtype in MISSING) == may_miss]:
            values = _flatten_single(list(chain.from_iterable(columns[c.request] for c in group)))
            found |= _convert_numbers(values, group) or {}
    return {
        name: found[name] if name in found else to_array(columns[name], column)
        for name, column in known.items()
    }


def _wrong_keys(where: str, keys: Mapping[str, Any], names: Sequence[str]) -> RequestError:
    for name in keys:
        if name not in names:
            return unknown_name(where, str(name), names)
    missing = [name for name in names if name not in keys]
    return RequestError(f"{where} lacks {', '.join(map(repr, missing))}: give every column.")
