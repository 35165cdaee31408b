"""Conversion of JSON to tensors, with checks of the type and number of values."""

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

from components.example_gen.columns.tensors import MISSING, numpy_dtype
from components.serving.model import FeatureColumn
from components.serving.requests import Arrays
from components.serving.server.replies import RequestError, unknown_name
from trainer_module.errors import counted, shorten
from trainer_module.export.interface import ModelInterface, RawColumn

_MAX_VALUES = 1 << 23
"""The most values of a column of lists after all lists are padded to the longest. Without this
limit, a single long list in a small body could take much memory."""
_LARGEST, _LARGEST_FLOAT32 = 2**63, float(np.finfo(np.float32).max)
_TYPES = {str: "text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}
_NUMBERS, _TEXTS, _LISTS = {float, int}, {str, type(None)}, {list}


def parse_json(body: bytes) -> Any:
    """Returns a body parsed as JSON, with NaN as a missing number, as in TF Serving.

    Raises:
      RequestError: the body is not JSON, or is nested too deep.
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
    """Returns the values of a column as an array.

    Args:
      values: a JSON value per row.

    Returns:
      An array of the shape [rows] or [rows, values].

    Raises:
      RequestError: the model cannot take a row. The message names the first row with the problem.
    """
    if isinstance(column, FeatureColumn) and len(column.shape) > 1:
        values = [_flatten(v, column.shape, column, row) for row, v in enumerate(values)]
    if column.width == 1:
        array = _convert_column(_flatten_single(values), column)
        if array is None:
            array = _convert_values(map(_unwrap, values), range(len(values)), column)
        return array
    if not _are_lists(values, column):
        values = [_to_list(value, column, row) for row, value in enumerate(values)]
    lengths, flat = list(map(len, values)), list(chain.from_iterable(values))
    array = _convert_column(flat, column)
    if array is None:
        rows = np.repeat(range(len(values)), lengths).tolist()
        array = _convert_values(flat, rows, column)
    if column.width is not None:
        return array.reshape(len(values), column.width)
    width = max(1, max(lengths))
    check_size(len(values), width, column.request)
    filled = np.full((len(values), width), MISSING.get(column.dtype, 0), numpy_dtype(column.dtype))
    filled[np.arange(width) < np.array(lengths)[:, np.newaxis]] = array
    return filled


def _are_lists(values: list[Any], column: RawColumn) -> bool:
    """Returns whether all values are lists, which have the column's width if the width is fixed."""
    is_fixed = column.width is not None
    are_lists = set(map(type, values)) == _LISTS
    return are_lists and not (is_fixed and set(map(len, values)) != {column.width})


def _convert_values(values: Iterable[Any], rows: Iterable[int], column: RawColumn) -> np.ndarray:
    """Returns the values as an array. Raises RequestError for the first invalid value.

    Args:
      values: the values, without lists.
      rows: the row of each value, for the message.
    """
    convert = _to_text if column.dtype == "string" else _to_number
    converted = [convert(value, column, row) for value, row in zip(values, rows, strict=True)]
    return np.array(converted, numpy_dtype(column.dtype))


def _flatten(value: Any, shape: tuple[int, ...], column: FeatureColumn, row: int) -> list[Any]:
    """Returns the nested values of a row in one list."""
    if not shape:
        return [value]
    if not isinstance(value, list) or len(value) != shape[0]:
        raise RequestError(
            f"{column.request!r} of row {row} does not have the shape {list(column.shape)}."
        )
    return [leaf for item in value for leaf in _flatten(item, shape[1:], column, row)]


def _flatten_single(values: list[Any]) -> list[Any]:
    """Returns the items if all values are lists of one item, or else the values themselves.

    A column of one value per row may have the shape [batch] or [batch, 1].
    """
    if set(map(type, values)) == _LISTS and set(map(len, values)) == {1}:
        return list(chain.from_iterable(values))
    return values


def _convert_column(values: list[Any], column: RawColumn) -> np.ndarray | None:
    """Returns a column as an array, or None if a value is, or may be, invalid."""
    types = set(map(type, values))
    if column.dtype == "string":
        return _texts(values) if types <= _TEXTS else None
    arrays = _convert_numbers(values, [column])
    return None if arrays is None else arrays[column.request]


def _convert_numbers(values: list[Any], columns: Sequence[RawColumn]) -> Arrays | None:
    """Returns columns of numbers, in a third of the time of `_convert_values`.

    Args:
      values: the values of all columns, column by column.
      columns: the columns. All of them, or none of them, may have missing values.

    Returns:
      An array of the shape [values] per column, or None if a value is, or may be, invalid.
    """
    types = set(map(type, values))
    if columns[0].dtype in MISSING:
        numbers = _floats(values, types)
    else:
        numbers = _integers(values) if types == {int} else None
    if numbers is None:
        return None
    shaped = numbers.reshape(len(columns), -1)
    if not are_whole(shaped[[column.is_whole for column in columns]]):
        return None
    by_dtype = {dtype: np.ascontiguousarray(shaped, dtype) for dtype in {c.dtype for c in columns}}
    return {c.request: by_dtype[c.dtype][index] for index, c in enumerate(columns)}


def _floats(values: list[Any], types: set[type]) -> np.ndarray | None:
    """Returns numbers as float64, with NaN in place of None.

    Returns None if a value is not a number or is not in the range of int64.
    """
    if not types or not types <= _NUMBERS | {type(None)}:
        return None
    try:
        # Arrow takes a quarter of NumPy's time if values contain None, but longer otherwise.
        numbers = (
            pa.array(values, pa.float64()).to_numpy(zero_copy_only=False)
            if type(None) in types
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
    if rows * width > _MAX_VALUES:
        where = f"{name!r}: " if name else ""
        raise RequestError(
            f"{where}{rows} rows of lists of up to {width} values are {rows * width:,} values,"
            f" expected at most {_MAX_VALUES:,}: send rows with long lists in separate requests.",
            413,
        )


def _to_list(value: Any, column: RawColumn, row: int) -> list[Any]:
    """Returns a value that is a list of the column's width. Raises RequestError otherwise."""
    if value is None and column.width is None:
        return []  # A missing list has no values.
    if not isinstance(value, list):
        raise RequestError(
            f"{column.request!r} of row {row} is {type_of(value)}, expected a list of values."
        )
    if column.width is not None and len(value) != column.width:
        raise RequestError(
            f"{column.request!r} of row {row} has {counted(len(value), 'value')}, expected"
            f" {column.width}."
        )
    return value


def _unwrap(value: Any) -> Any:
    """Returns the only item of a list of one item, or else the value itself."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _to_number(value: Any, column: RawColumn, row: int) -> Any:
    """Returns a number, or the missing value for null. Raises RequestError for other values."""
    missing, value_type = MISSING.get(column.dtype), type(value)
    where = f"{column.request!r} of row {row}"
    if value_type is float:
        if math.isinf(value):
            raise RequestError(f"{where} is infinite, expected a finite number.")
        is_whole = value != value or (value.is_integer() and abs(value) < _LARGEST)
        if column.is_whole and not is_whole:
            raise RequestError(f"{where} is {value}, expected a whole number.")
        if column.dtype == "float32" and abs(value) > _LARGEST_FLOAT32:
            raise RequestError(f"{where} is {value}, which is too large for float32.")
        if missing is not None or value == value:
            return value
    if value_type is int and abs(value) < _LARGEST:
        return value
    if value is None and missing is not None:
        return missing
    raise RequestError(
        f"{where} is {type_of(value)}, expected a number"
        f"{', such as 1 or 0' if value_type is bool else ''}"
        f"{', or null for a missing value' if missing is not None else ''}."
    )


def _to_text(value: Any, column: RawColumn, row: int) -> bytes:
    """Returns the bytes of a value of a text column.

    If the model parses the texts as numbers, dates or booleans, a number is converted to its text.
    """
    reader, where = column.text_reader, f"{column.request!r} of row {row}"
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
    text = reader.write(value)
    if text is None:
        raise RequestError(f"{where} is {type_of(value)}, expected {reader.right}.")
    return text


def decode_base64(text: Any, where: str) -> bytes:
    """Returns the bytes that a base64 text encodes.

    Raises:
      RequestError: the text is not valid base64.
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
"""JSON values by request name: a list with a value per row. The values are not checked yet."""
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
      RequestError: a row lacks a column, or has an unknown column. The message names the row.
    """
    names = list(interface.by_request)
    own_names = [column.name for column in interface.columns]
    if len(names) > 1:
        for keys in (names, own_names):
            try:
                if _are_alike(rows, interface):
                    values = zip(*map(itemgetter(*keys), rows), strict=True)
                    return dict(zip(names, map(list, values), strict=True))
            except (AttributeError, KeyError, TypeError, ValueError):
                pass  # The next lines find the invalid row.
    rows = [
        by_request_names(row, interface, f"instances[{i}]") if isinstance(row, dict) else row
        for i, row in enumerate(rows)
    ]
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            if len(names) == 1:
                return from_columns({names[0]: rows}, interface)
            raise RequestError(
                f"instances[{index}] is {type_of(row)}, expected an object with a key per column:"
                f" {', '.join(sorted(names))}."
            )
        if row.keys() != set(names):
            if len(names) == 1 and row.keys() == {"b64"}:
                return from_columns({names[0]: rows}, interface)
            raise _keys_error(f"instances[{index}]", row, interface)
    return {name: [row[name] for row in rows] for name in names}


def _are_alike(rows: Rows, interface: ModelInterface) -> bool:
    """Returns whether all rows have the model's number of columns, not counting unused columns."""
    count = len(interface.by_request)
    if set(map(len, rows)) == {count}:
        return True
    keys = rows[0].keys()
    return len(keys - interface.unused) == count and all(row.keys() == keys for row in rows)


def by_request_names(
    values: Mapping[str, Any], interface: ModelInterface, where: str
) -> Mapping[str, Any]:
    """Returns values by request name, of which some may be by the name that the column has in data.

    Columns of the training data that the model does not take are left out.

    If a key is the request name of one column and the name of another, it counts as the request
    name, unless the keys are exactly the names of all columns.

    Args:
      values: the values by name. Unknown names are not changed.
      where: the part of the request, for the message.

    Raises:
      RequestError: a column is given by both names.
    """
    if values.keys() <= interface.by_request.keys():
        return values
    values = {name: value for name, value in values.items() if name not in interface.unused}
    own_names = {column.name: column.request for column in interface.columns}
    takes_own_names = values.keys() == own_names.keys()
    result: dict[str, Any] = {}
    for name, value in values.items():
        is_request_name = name in interface.by_request and not takes_own_names
        request = name if is_request_name else own_names.get(name, name)
        if request in result:
            raise RequestError(
                f"{where} has a column twice, as {request!r} and by its name in the data: give it"
                " once."
            )
        result[request] = value
    return result


def from_columns(columns: Mapping[str, Any], interface: ModelInterface) -> Columns:
    """Returns JSON columns by request name, after checking names and lengths.

    Raises:
      RequestError: a column is missing or unknown, a column is not a list, or the columns have
        different numbers of rows.
    """
    names = list(interface.by_request)
    columns = by_request_names(columns, interface, "inputs")
    if columns.keys() != set(names):
        raise _keys_error("inputs", columns, interface)
    for name in names:
        if not isinstance(columns[name], list):
            raise RequestError(
                f"{name!r} is {type_of(columns[name])}, expected a list with a value per row."
            )
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise RequestError(
            f"the columns of `inputs` have different numbers of rows: {sorted(lengths)}."
        )
    return {name: columns[name] for name in names}


def rows_to_arrays(rows: Rows, interface: ModelInterface) -> Arrays:
    """Returns the tensors of JSON rows by request name. Each tensor has the shape [rows, ...].

    Args:
      rows: at least one row.

    Raises:
      RequestError: the model cannot take a value. The message names the row and the column.
    """
    return to_arrays(from_rows(rows, interface), interface)


def to_arrays(columns: Columns, interface: ModelInterface) -> Arrays:
    """Returns the tensors of JSON columns by request name. Each tensor has the shape [rows, ...].

    Raises:
      RequestError: the model cannot take a value. The message names the row and the column.
    """
    by_name, arrays = interface.by_request, Arrays()
    numeric = [c for c in by_name.values() if c.width == 1 and c.dtype != "string"]
    for may_be_missing in (True, False):
        if group := [c for c in numeric if (c.dtype in MISSING) == may_be_missing]:
            values = _flatten_single(list(chain.from_iterable(columns[c.request] for c in group)))
            arrays |= _convert_numbers(values, group) or {}
    return {
        name: arrays[name] if name in arrays else to_array(columns[name], column)
        for name, column in by_name.items()
    }


def _keys_error(where: str, keys: Mapping[str, Any], interface: ModelInterface) -> RequestError:
    """Returns the error for unknown or missing columns, with the names that they have in the data.

    Args:
      where: the part of the request, for the message.
      keys: the values by request name.
    """
    for name in keys:
        if name not in interface.by_request:
            return unknown_name(where, str(name), [column.name for column in interface.columns])
    missing = [column.name for column in interface.columns if column.request not in keys]
    return RequestError(f"{where} lacks {', '.join(map(repr, missing))}: give every column.")
