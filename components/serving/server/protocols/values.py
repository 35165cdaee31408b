"""Values of JSON to the tensors of a request, each checked: its type, depth and number."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa

from components.serving.model import FeatureColumn
from components.serving.requests import MISSING, Arrays, numpy_dtype
from components.serving.server.replies import RequestError, unknown_name
from trainer_module.errors import counted
from trainer_module.export.interface import ModelInterface, RawColumn

_MOST_VALUES = 1 << 23
"""Of a column of lists, when all are as long as the longest: few bytes of JSON ask for many."""
_LARGEST, _LARGEST_FLOAT32 = 2**63, float(np.finfo(np.float32).max)
_TYPES = {str: "text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}
_NUMBERS, _TEXTS, _LISTS = {float, int}, {str, type(None)}, {list}


def to_array(values: list[Any], column: RawColumn) -> np.ndarray:
    """A column's values, one a row, as [rows] or [rows, values].

    Raises:
      RequestError: names the row that the model cannot take.
    """
    if isinstance(column, FeatureColumn) and len(column.shape) > 1:
        values = [_flat(v, column.shape, column, place) for place, v in enumerate(values)]
    if column.width == 1:
        quick = _all_at_once(_without_lists(values), column)
    else:
        quick = _all_lists(values, column)
    if quick is not None:
        return quick
    to_value = _to_text(column) if column.dtype == "string" else _to_number(column)
    if column.width == 1:
        converted = [to_value(_only(v), column.request, i) for i, v in enumerate(values)]
        return np.array(converted, numpy_dtype(column.dtype))
    return _dense([_to_row(v, column, i, to_value) for i, v in enumerate(values)], column)


def _flat(value: Any, shape: tuple[int, ...], column: FeatureColumn, place: int) -> list[Any]:
    """The values of a row in one list."""
    if not shape:
        return [value]
    if not isinstance(value, list) or len(value) != shape[0]:
        raise RequestError(
            f"{column.request!r} of row {place} is not of the shape {list(column.shape)}."
        )
    return [one for item in value for one in _flat(item, shape[1:], column, place)]


def _without_lists(values: list[Any]) -> list[Any]:
    """Values, of which all may be in a list of one each: rows may be [batch] or [batch, 1]."""
    if set(map(type, values)) == _LISTS and set(map(len, values)) == {1}:
        return list(chain.from_iterable(values))
    return values


def _all_at_once(values: list[Any], column: RawColumn) -> np.ndarray | None:
    """A column of which each value is as it should be; None where one is not, or may not be."""
    kinds = set(map(type, values))
    if column.dtype == "string":
        return _texts(values) if kinds <= _TEXTS else None
    missing = MISSING.get(column.dtype)
    if missing is None:
        return _integers(values) if kinds == {int} else None
    numbers = _floats(values, kinds)
    if numbers is None or (column.is_whole and not _are_whole(numbers)):
        return None
    return numbers.astype(column.dtype, copy=False)


def _numbers_at_once(columns: Columns, wanted: Sequence[RawColumn]) -> Arrays:
    """Columns of one number a row, as `to_array` gives them, in a third of its time.

    Args:
      columns: have their values, which may be in a list each.
      wanted: all of them may miss a number, or none.

    Returns:
      Nothing where `to_array` has to look at the values, as one of them is not as it should be.
    """
    flat = _without_lists(list(chain.from_iterable(columns[c.request] for c in wanted)))
    kinds = set(map(type, flat))
    if wanted[0].dtype not in MISSING:
        numbers = _integers(flat) if kinds == {int} else None
    else:
        numbers = _floats(flat, kinds)
    if numbers is None:
        return {}
    shaped = numbers.reshape(len(wanted), -1)
    if not _are_whole(shaped[[column.is_whole for column in wanted]]):
        return {}
    of_dtype = {dtype: np.ascontiguousarray(shaped, dtype) for dtype in {c.dtype for c in wanted}}
    return {c.request: of_dtype[c.dtype][place] for place, c in enumerate(wanted)}


def _floats(values: list[Any], kinds: set[type]) -> np.ndarray | None:
    """Numbers, in which None becomes NaN."""
    if not kinds or not kinds <= _NUMBERS | {type(None)}:
        return None
    try:
        # Arrow takes a quarter of NumPy's time for None, and more for numbers.
        numbers = (
            pa.array(values, pa.float64()).to_numpy(zero_copy_only=False)
            if type(None) in kinds
            else np.array(values, np.float64)
        )
    except (OverflowError, pa.ArrowInvalid):
        return None
    return numbers if np.fmax.reduce(np.abs(numbers), initial=0.0) < _LARGEST else None


def _are_whole(numbers: np.ndarray) -> bool:
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


def _all_lists(values: list[Any], column: RawColumn) -> np.ndarray | None:
    """The same for a column of lists."""
    if set(map(type, values)) != _LISTS:
        return None
    lengths = list(map(len, values))
    if column.width is not None and set(lengths) != {column.width}:
        return None
    flat = _all_at_once(list(chain.from_iterable(values)), column)
    if flat is None:
        return None
    if column.width is not None:
        return flat.reshape(len(values), column.width)
    filled = _filled(len(values), max(1, max(lengths)), column)
    filled[np.arange(filled.shape[1]) < np.array(lengths)[:, np.newaxis]] = flat
    return filled


def check_size(rows: int, width: int, name: str = "") -> None:
    """Raises RequestError if lists of several lengths take too much as one tensor."""
    if rows * width > _MOST_VALUES:
        where = f"{name!r}: " if name else ""
        raise RequestError(
            f"{where}{rows} rows of lists of up to {width} values are too many together: send rows"
            " with long lists by themselves.",
            413,
        )


def _filled(rows: int, width: int, column: RawColumn) -> np.ndarray:
    if column.width is None:
        check_size(rows, width, column.request)
    return np.full((rows, width), MISSING.get(column.dtype, 0), numpy_dtype(column.dtype))


def _dense(rows: Sequence[Sequence[Any]], column: RawColumn) -> np.ndarray:
    """Lists of several lengths as [rows, values]; what is missing fills them up."""
    width = column.width or max(1, max(map(len, rows), default=1))
    array = _filled(len(rows), width, column)
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array


def _to_row(
    value: Any, column: RawColumn, place: int, to_value: Callable[[Any, str, int], Any]
) -> list[Any]:
    if value is None and column.width is None:
        return []  # What is missing has no values.
    if not isinstance(value, list):
        raise RequestError(
            f"{column.request!r} of row {place} is {type_of(value)}, expected a list of values."
        )
    if column.width is not None and len(value) != column.width:
        raise RequestError(
            f"{column.request!r} of row {place} has {counted(len(value), 'value')}, expected"
            f" {column.width}."
        )
    return [to_value(item, column.request, place) for item in value]


def _only(value: Any) -> Any:
    """A value, also of a list of one: rows may be [batch] or [batch, 1]."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _to_number(column: RawColumn) -> Callable[[Any, str, int], Any]:
    missing, is_whole = MISSING.get(column.dtype), column.is_whole
    largest = _LARGEST_FLOAT32 if column.dtype == "float32" else math.inf

    def to_number(value: Any, name: str, place: int) -> Any:
        kind = type(value)
        if kind is float:
            if math.isinf(value):
                raise RequestError(
                    f"{name!r} of row {place} is infinite, expected a finite number."
                )
            if is_whole and value == value and not (value.is_integer() and abs(value) < _LARGEST):
                raise RequestError(f"{name!r} of row {place} is {value}, expected a whole number.")
            if abs(value) > largest:
                raise RequestError(
                    f"{name!r} of row {place} is {value}, which is infinite as {column.dtype}."
                )
            if missing is not None or value == value:
                return value
        if kind is int and abs(value) < _LARGEST:
            return value
        if value is None and missing is not None:
            return missing
        raise RequestError(
            f"{name!r} of row {place} is {type_of(value)}, expected a number"
            f"{', such as 1 or 0' if kind is bool else ''}"
            f"{', or null where it is missing' if missing is not None else ''}."
        )

    return to_number


def _to_text(column: RawColumn) -> Callable[[Any, str, int], bytes]:
    """What reads a value of a column of text, which may be a number where the texts are."""
    reader = column.text_reader

    def to_text(value: Any, name: str, place: int) -> bytes:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                said = f"{name!r} of row {place} holds half a surrogate pair."
                raise RequestError(said) from None
        if value is None:
            return b""
        if isinstance(value, dict) and value.keys() == {"b64"}:
            return decode_base64(value["b64"], f"{name!r} of row {place}")
        if reader is None or not isinstance(value, int | float):
            raise RequestError(
                f"{name!r} of row {place} is {type_of(value)}, expected text, or bytes as"
                ' {"b64": "..."}.'
            )
        written = reader.write(value)
        if written is None:
            raise RequestError(
                f"{name!r} of row {place} is {type_of(value)}, expected {reader.right}."
            )
        return written

    return to_text


def decode_base64(text: Any, where: str) -> bytes:
    """Bytes that travel as base64.

    Raises:
      RequestError: they are not.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise RequestError(f"{where} is no valid base64 of RFC 4648.") from None


def type_of(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return _TYPES.get(type(value), f"the number {str(value)[:30]}")


Rows = list[Any]
"""Rows of JSON, each of which should be an object with a key per column."""
Columns = dict[str, list[Any]]
"""Values of JSON by the names of requests, one a row, of which the types are not looked at yet."""
RequestInputs = Rows | Columns | Arrays
"""What one request asks: rows or columns of JSON, or tensors."""


def row_count(asked: RequestInputs) -> int:
    """Rows of a request."""
    return len(asked if isinstance(asked, list) else next(iter(asked.values())))


def as_tensors(asked: RequestInputs, interface: ModelInterface) -> Arrays:
    """The tensors of a request.

    Raises:
      RequestError: it is not what the model takes.
    """
    if isinstance(asked, list):
        return rows_to_arrays(asked, interface)
    return cast(Arrays, asked) if are_tensors(asked) else to_arrays(cast(Columns, asked), interface)


def are_tensors(asked: RequestInputs) -> bool:
    """Whether a request has brought tensors rather than JSON."""
    return not isinstance(asked, list) and isinstance(next(iter(asked.values())), np.ndarray)


def from_rows(rows: Rows, interface: ModelInterface) -> Columns:
    """Columns by the names of requests, for at least one row.

    Raises:
      RequestError: names the row that has other columns than the model.
    """
    names = list(interface.by_request)
    if len(names) > 1:
        try:
            if set(map(len, rows)) == {len(names)}:
                values = zip(*map(itemgetter(*names), rows), strict=True)
                return dict(zip(names, map(list, values), strict=True))
        except (KeyError, TypeError, ValueError):
            pass  # The next lines say what is wrong.
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
    """The same for a list of values per column."""
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
    """Tensors by the names of requests, [rows, ...] each, for at least one row.

    Raises:
      RequestError: names the row and the column that the model cannot take.
    """
    return to_arrays(from_rows(rows, interface), interface)


def to_arrays(columns: Columns, interface: ModelInterface) -> Arrays:
    """The same for a list of values per column."""
    known, found = interface.by_request, Arrays()
    alone = [c for c in known.values() if c.width == 1 and c.dtype != "string"]
    for may_miss in (True, False):
        if group := [column for column in alone if (column.dtype in MISSING) == may_miss]:
            found |= _numbers_at_once(columns, group)
    return {
        name: found[name] if name in found else to_array(columns[name], column)
        for name, column in known.items()
    }


def _wrong_keys(where: str, given: Mapping[str, Any], names: Sequence[str]) -> RequestError:
    for name in given:
        if name not in names:
            return unknown_name(where, str(name), names)
    missing = [name for name in names if name not in given]
    return RequestError(f"{where} lacks {', '.join(map(repr, missing))}: give every column.")
