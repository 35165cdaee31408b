"""Tensors of the Open Inference Protocol v2: as lists of JSON, and as bytes that follow it."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from components.serving.requests import Arrays
from components.serving.server.replies import RequestError
from trainer_module.errors import counted

DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
"""By the datatype of a tensor of numbers."""
_BYTES = "BYTES"
_NUMBERS = {int, float, bool, type(None)}
DATATYPE_OF = {name: datatype for datatype, name in DTYPES.items()} | {"string": _BYTES}
"""By the dtype of a tensor."""
_LENGTH = struct.Struct("<I")
_MOST_SIZES = 16
"""Of a shape."""


def from_tensors(described: list[Any], tail: bytes) -> Arrays:
    """Tensors by name, of their descriptions and the bytes that follow these.

    Raises:
      RequestError: they are not what they should be.
    """
    tensors, place = {}, 0
    for given in described:
        name, size = name_and_size(given)
        if size is not None and place + size > len(tail):
            raise RequestError(f"input {name!r} has fewer bytes than its binary_data_size says.")
        data = given.get("data") if size is None else tail[place : place + size]
        place += size or 0
        if name in tensors:
            raise RequestError(f"input {name!r} is there twice.")
        tensors[name] = _to_tensor(name, given, data)
    if place != len(tail):
        raise RequestError(f"{len(tail) - place} bytes follow that belong to no input.")
    return tensors


def name_and_size(given: Any) -> tuple[str, int | None]:
    """The name of an input, and how many of the bytes that follow are its; None if it has `data`.

    Raises:
      RequestError: they are not what they should be.
    """
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise RequestError("an input is no object with a `name`.")
    parameters = given.get("parameters") or {}
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None and (type(size) is not int or size < 0):
        raise RequestError(f"binary_data_size of input {given['name']!r} is no size.")
    return given["name"], size


def _to_tensor(name: str, given: Mapping[str, Any], data: Any) -> np.ndarray:
    shape, datatype = given.get("shape"), given.get("datatype")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise RequestError(f"`shape` of input {name!r} is no list of sizes.")
    if len(shape) > _MOST_SIZES:
        raise RequestError(f"`shape` of input {name!r} has {len(shape)} sizes.")
    if not shape or not shape[0]:
        raise RequestError(f"`shape` of input {name!r} is {shape}, expected [rows] or [rows, n].")
    values = _from_bytes(name, datatype, data) if isinstance(data, bytes) else None
    if values is None:
        values = _from_list(name, datatype, data)
    if values.size != math.prod(shape):
        raise RequestError(
            f"input {name!r} has {counted(values.size, 'value')}, expected {math.prod(shape)}"
            f" for {shape}."
        )
    return values.reshape(shape)


def _from_bytes(name: str, datatype: Any, data: bytes) -> np.ndarray:
    if datatype == _BYTES:
        return np.array(_split_bytes(name, data), object)
    dtype = np.dtype(_dtype_of(name, datatype)).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise RequestError(f"input {name!r} has {len(data)} bytes, which are no {datatype}.")
    return np.frombuffer(data, dtype)


def _split_bytes(name: str, data: bytes) -> list[bytes]:
    values, place = [], 0
    while place < len(data):
        if place + _LENGTH.size > len(data):
            break
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if place + length > len(data):
            break
        values.append(data[place : place + length])
        place += length
    else:
        return values
    raise RequestError(f"the bytes of input {name!r} end within a value.")


def _from_list(name: str, datatype: Any, data: Any) -> np.ndarray:
    if not isinstance(data, list):
        raise RequestError(f"input {name!r} has neither `data` nor a binary_data_size.")
    flat = _flat(data)
    if datatype == _BYTES:
        if not all(value is None or isinstance(value, str) for value in flat):
            raise RequestError(f"`data` of input {name!r} is not all text, as BYTES are.")
        return np.array([(v or "").encode(errors="replace") for v in flat], object)
    dtype = _dtype_of(name, datatype)
    # NumPy makes NaN of None, for which integers have no room.
    kinds = _NUMBERS if np.dtype(dtype).kind == "f" else _NUMBERS - {type(None)}
    if not kinds.issuperset(map(type, flat)):
        raise RequestError(f"`data` of input {name!r} is not all numbers, as {datatype} are.")
    if np.dtype(dtype).kind in "iu" and any(type(v) is float and v % 1 for v in flat):
        raise RequestError(f"`data` of input {name!r} is not all whole, as {datatype} are.")
    try:
        return np.array(flat, dtype)
    except (OverflowError, ValueError) as error:
        raise RequestError(f"`data` of input {name!r} is no {datatype}: {error}.") from None


def _flat(data: list[Any]) -> list[Any]:
    while data and all(isinstance(value, list) for value in data):
        data = [item for value in data for item in value]
    return data


def _dtype_of(name: str, datatype: Any) -> str:
    dtype = DTYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise RequestError(
            f"input {name!r} is of datatype {datatype!r}: right is one of"
            f" {', '.join([*DTYPES, _BYTES])}."
        )
    return dtype


def to_tensors(tensors: Mapping[str, np.ndarray]) -> tuple[list[dict[str, Any]], bytes]:
    """What `from_tensors` reads: descriptions, and the bytes that follow them."""
    written = [to_output(name, values, is_binary=True) for name, values in tensors.items()]
    return [described for described, _ in written], b"".join(tail for _, tail in written)


def to_output(name: str, values: np.ndarray, is_binary: bool) -> tuple[dict[str, Any], bytes]:
    """The description of a tensor, with its values unless they follow as the bytes given."""
    is_text = values.dtype == object
    output: dict[str, Any] = {
        "name": name,
        "datatype": _BYTES if is_text else DATATYPE_OF[values.dtype.name],
        "shape": list(values.shape),
    }
    if is_binary and not is_text:
        tail = values.tobytes()
        return output | {"parameters": {"binary_data_size": len(tail)}}, tail
    if not is_binary:
        flat = values.ravel().tolist()
        data = [value.decode(errors="replace") for value in flat] if is_text else flat
        return output | {"data": data}, b""
    tail = _join_bytes(values)
    return output | {"parameters": {"binary_data_size": len(tail)}}, tail


def _join_bytes(values: np.ndarray) -> bytes:
    """What `_split_bytes` splits; of few different values, as classes are."""
    if values.ndim > 1 and len(values) > 1 and (values == values[0]).all():
        return _join_bytes(values[0]) * len(values)
    flat = values.ravel().tolist()
    known = {value: _LENGTH.pack(len(value)) + value for value in set(flat)}
    return b"".join([known[value] for value in flat])
