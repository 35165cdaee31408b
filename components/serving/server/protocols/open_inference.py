"""The Open Inference Protocol v2 of KServe and Triton, with its extension for binary tensors.

https://github.com/kserve/open-inference-protocol
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from components.serving.model import FeatureColumn, Servable
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, RAW, Arrays
from components.serving.server.protocols.values import (
    are_whole,
    by_request_names,
    from_columns,
    parse_json,
)
from components.serving.server.replies import (
    BYTES,
    Reply,
    RequestError,
    ResultSlice,
    read_top_k,
    unknown_name,
)
from trainer_module.errors import counted
from trainer_module.export.interface import ModelInterface, RawColumn, TextReader

HEADER_LENGTH = "inference-header-content-length"
"""The header with the length of the JSON, if binary tensors follow the JSON."""
_MAX_ID_CHARS = 1000
_CACHED_HEADS, _MAX_CACHED_BYTES = 64, 1 << 14
"""The most heads in the cache of parsed heads, and the most bytes of a cached head."""
_MAX_CACHED_OUTPUTS = 64
"""The most outputs in a cached head."""
_LARGEST = 2.0**63
_KINDS = {"UINT": ("uint", 8), "INT": ("int", 8), "FP": ("float", 16)}
"""NumPy's name of each kind of datatype, and the bits of its smallest type."""
_DTYPES = {"BOOL": np.dtype("bool")} | {
    f"{datatype}{bits}": np.dtype(f"{name}{bits}").newbyteorder("<")
    for datatype, (name, min_bits) in _KINDS.items()
    for bits in (8, 16, 32, 64)
    if bits >= min_bits
}
"""NumPy's dtypes of numeric datatypes."""
_BYTES = "BYTES"
_DATATYPE_OF = {dtype.name: datatype for datatype, dtype in _DTYPES.items()} | {"string": _BYTES}
"""The datatype of each dtype of a tensor."""
_NUMBERS = {int, float, bool, type(None)}
_LENGTH_BYTES = 4
"""The size of the length that precedes each text."""
_MAX_DIMENSIONS = 16
"""The most dimensions of a shape."""


def read_request(
    body: bytes, end: int, interface: ModelInterface, name: str, number: int
) -> tuple[str, Arrays, Inference]:
    """Returns the signature of an `infer` request, its tensors, and the format of the response.

    The values of tensors for `serving_raw` are not checked yet. `check_tensors` checks them.

    Args:
      end: the length of the JSON. Binary tensors may follow the JSON.

    Raises:
      RequestError: the request is invalid.
    """
    head = body[:end]
    may_be_cached = end < len(body) and end <= _MAX_CACHED_BYTES
    cached = _head_cache.get(head) if may_be_cached else None
    parsed = cached or _read_head(head)
    tensors = _read_tensors(parsed.inputs, body[end:])
    response_format = Inference(name, number, *parsed.output_options)
    if tensors.keys() == {EXAMPLES_INPUT}:
        examples = tensors[EXAMPLES_INPUT].reshape(-1)
        if not len(examples):
            raise RequestError(f"input {EXAMPLES_INPUT!r} is empty.")
        signature, tensors = EXAMPLES, {EXAMPLES_INPUT: examples}
    else:
        signature, tensors = RAW, _to_columns(tensors, interface)
    if may_be_cached and cached is None:
        _cache_head(head, parsed)
    return signature, tensors, response_format


class _Head(NamedTuple):
    """The parsed head of a request, which is its JSON."""

    inputs: list[_InputDescription]
    """The descriptions of the input tensors."""
    output_options: _OutputOptions


def _read_head(head: bytes) -> _Head:
    body = parse_json(head)
    inputs = body.get("inputs") if isinstance(body, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise RequestError("the body needs `inputs`, a list of tensors.")
    return _Head(list(map(_describe, inputs)), _read_output_options(body))


_head_cache: dict[bytes, _Head] = {}


def _cache_head(head: bytes, parsed: _Head) -> None:
    """Caches a head if all its tensors are binary.

    A client that sends binary tensors usually sends the same head with each request.
    """
    outputs = parsed.output_options[1] or ()
    are_binary = all(i.size is not None and i.data is None for i in parsed.inputs)
    if are_binary and len(outputs) <= _MAX_CACHED_OUTPUTS:
        if len(_head_cache) >= _CACHED_HEADS:
            _head_cache.clear()
        _head_cache[head] = parsed


def _to_columns(tensors: Mapping[str, np.ndarray], interface: ModelInterface) -> Arrays:
    """Returns the tensors of all columns, in the form that `serving_raw` takes."""
    columns = interface.by_request
    tensors = by_request_names(tensors, interface, "inputs")
    for name in tensors:
        if name not in columns:
            raise unknown_name("inputs", name, columns)
    rows = {len(tensor) for tensor in tensors.values()}
    if len(rows) > 1:
        raise RequestError(f"the inputs have different numbers of rows: {sorted(rows)}.")
    if tensors.keys() != columns.keys():
        # `from_columns` raises the error for missing columns.
        from_columns({name: [] for name in tensors}, interface)
    return {name: _as_column(tensors[name], column) for name, column in columns.items()}


def _as_column(tensor: np.ndarray, column: RawColumn) -> np.ndarray:
    _check_shape(tensor.shape, column)
    is_text = tensor.dtype == object
    reader = column.text_reader
    if reader is not None and not is_text:
        tensor, is_text = _as_texts(tensor, column.request, reader), True
    if is_text != (column.dtype == "string"):
        kind = "texts" if is_text else "numbers"
        expected = _DATATYPE_OF[column.dtype]
        raise RequestError(
            f"input {column.request!r} has {kind}, expected the datatype {expected}."
        )
    if not is_text and tensor.dtype.kind != np.dtype(column.dtype).kind:
        # The conversion would hide invalid numbers. `check_tensors` checks all other tensors.
        _check_numbers(tensor, column)
    shape = [len(tensor)] if column.width == 1 else [len(tensor), tensor.size // len(tensor)]
    return tensor.reshape(shape) if is_text else tensor.astype(column.dtype).reshape(shape)


def _as_texts(tensor: np.ndarray, name: str, reader: TextReader) -> np.ndarray:
    """Returns numbers or booleans as the texts that the model parses."""
    texts = [b"" if value != value else reader.write(value) for value in tensor.ravel().tolist()]
    if None in texts:
        value = tensor.ravel()[texts.index(None)]
        raise RequestError(f"input {name!r} contains {value}, expected {reader.right}.")
    return np.array(texts, object).reshape(tensor.shape)


def check_tensors(tensors: Arrays, interface: ModelInterface) -> None:
    """Checks the numbers in the tensors for `serving_raw`.

    Raises:
      RequestError: a number is infinite, or a column of whole numbers contains a fraction.
    """
    for name, column in interface.by_request.items():
        if column.dtype != "string":
            _check_numbers(tensors[name], column)


def _check_numbers(tensor: np.ndarray, column: RawColumn) -> None:
    if tensor.dtype.kind == "f" and np.isinf(tensor).any():
        raise RequestError(
            f"input {column.request!r} has infinite values, expected finite numbers."
        )
    is_whole = tensor.dtype.kind != "f" or (
        are_whole(tensor) and np.fmax.reduce(np.abs(tensor), axis=None, initial=0.0) < _LARGEST
    )
    if column.is_whole and not is_whole:
        raise RequestError(f"input {column.request!r} has values that are not 64-bit integers.")


def _check_shape(shape: tuple[int, ...], column: RawColumn) -> None:
    """Raises RequestError unless each row of a tensor has the number of values of the column."""
    if len(shape) > 1 and isinstance(column, FeatureColumn):
        if shape[1:] != column.shape:
            raise RequestError(
                f"`shape` of input {column.request!r} is {list(shape)}, expected"
                f" {['rows', *column.shape]}."
            )
        return
    if len(shape) > 2:
        raise RequestError(
            f"`shape` of input {column.request!r} is {list(shape)}, expected [rows] or [rows, n]."
        )
    width = shape[1] if len(shape) > 1 else 1
    if column.width is not None and width != column.width:
        raise RequestError(
            f"input {column.request!r} has {counted(width, 'value')} per row, expected"
            f" {column.width}."
        )


_OutputOptions = tuple[str | None, tuple[tuple[str, bool], ...] | None, bool, int | None]
"""The values of `id`, `outputs`, `are_binary` and `top_k` of an `Inference`."""


def _read_output_options(body: Mapping[str, Any]) -> _OutputOptions:
    """Returns the options of the response in the JSON of a request."""
    id_, parameters, outputs = (body.get(key) for key in ("id", "parameters", "outputs"))
    if id_ is not None and not (isinstance(id_, str | int) and len(str(id_)) <= _MAX_ID_CHARS):
        raise RequestError(f"`id` must be a string of at most {_MAX_ID_CHARS} characters.")
    parameters = parameters if isinstance(parameters, dict) else {}
    default = bool(parameters.get("binary_data_output"))
    if outputs and not isinstance(outputs, list):
        raise RequestError("`outputs` must be a list of objects with a `name`.")
    requested = dict(_read_output(output, default) for output in outputs or ())
    if outputs and len(requested) < len(outputs):
        raise RequestError("`outputs` names an output twice.")
    top_k = read_top_k(parameters.get("top_k"))
    return None if id_ is None else str(id_), tuple(requested.items()) or None, default, top_k


def _read_output(output: Any, default: bool) -> tuple[str, bool]:
    """Returns the name of a requested output, and whether it is binary."""
    name = output.get("name") if isinstance(output, dict) else None
    parameters = output.get("parameters") if isinstance(output, dict) else None
    parameters = parameters if isinstance(parameters, dict) else {}
    for key in ("classification", "shared_memory_region"):
        if key in parameters:  # If it were ignored, the client would get an unexpected response.
            raise RequestError(f"output {name!r} has the unsupported parameter {key!r}.")
    return name if isinstance(name, str) else str(name), bool(
        parameters.get("binary_data", default)
    )


@dataclass(frozen=True, slots=True)
class Inference:
    """The format of the response to an `infer` request."""

    name: str
    """The name of the model."""
    number: int
    """The number of the model's version."""
    id: str | None
    """The id of the request, or None for a request without id."""
    outputs: tuple[tuple[str, bool], ...] | None
    """The names of the requested outputs, and whether each is binary, or None for all outputs."""
    are_binary: bool
    """Whether the outputs are binary if the request does not name outputs."""
    top_k: int | None
    """The number of classes that the request asks for, or None for all classes."""

    def part(self, output: ResultSlice) -> Arrays:
        """Returns the requested outputs of some rows, in the requested order.

        Raises:
          RequestError: a requested output does not exist.
          DataError: the request has `top_k`, but the model does not predict classes.
        """
        arrays, requested = output.top(self.top_k).arrays, self.outputs
        if requested is None:
            return arrays
        for name, _ in requested:
            if name not in arrays:
                raise unknown_name("outputs", name, arrays)
        return {name: arrays[name] for name, _ in requested}

    def reply(self, parts: Sequence[Arrays]) -> Reply:
        """Returns the response: JSON, followed by the binary outputs."""
        are_binary = dict(self.outputs or ())
        outputs, tail = [], []
        for name in parts[0]:
            values = np.concatenate([part[name] for part in parts])
            output, data = _to_output(name, values, are_binary.get(name, self.are_binary))
            outputs.append(output)
            tail.append(data)
        head: dict[str, Any] = {
            "model_name": self.name,
            "model_version": str(self.number),
            "outputs": outputs,
        }
        if self.id is not None:
            head["id"] = self.id
        text = orjson.dumps(head)
        if not any("parameters" in output for output in outputs):
            return Reply(text)
        length = (HEADER_LENGTH.encode(), b"%d" % len(text))
        return Reply(b"".join([text, *tail]), BYTES, (length,))


class _InputDescription(NamedTuple):
    """The description of a tensor in a request."""

    name: str
    shape: list[int]
    value_count: int
    """The number of values."""
    datatype: Any
    size: int | None
    """The number of bytes of a binary tensor, or None if the values are in the JSON."""
    data: Any
    """The values in the JSON, or None for a binary tensor."""


def _describe(tensor: Any) -> _InputDescription:
    """Returns the description of an input after checking its types."""
    if not isinstance(tensor, dict) or not isinstance(name := tensor.get("name"), str):
        raise RequestError("every input must be an object with a `name`.")
    parameters, shape = tensor.get("parameters") or {}, tensor.get("shape")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None and (type(size) is not int or size < 0):
        raise RequestError(f"binary_data_size of input {name!r} must be a non-negative integer.")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise RequestError(f"`shape` of input {name!r} must be a list of non-negative integers.")
    if len(shape) > _MAX_DIMENSIONS:
        raise RequestError(
            f"`shape` of input {name!r} has {len(shape)} dimensions, expected at most"
            f" {_MAX_DIMENSIONS}."
        )
    if not shape or not shape[0]:
        raise RequestError(f"`shape` of input {name!r} is {shape}, expected [rows] or [rows, n].")
    return _InputDescription(
        name, shape, math.prod(shape), tensor.get("datatype"), size, tensor.get("data")
    )


def from_tensors(described: list[Any], tail: bytes) -> Arrays:
    """Returns tensors by name.

    Args:
      tail: the bytes that follow the JSON.

    Raises:
      RequestError: the descriptions or bytes are invalid.
    """
    return _read_tensors(list(map(_describe, described)), tail)


def _read_tensors(inputs: list[_InputDescription], tail: bytes) -> Arrays:
    tensors, end = {}, 0
    for name, shape, expected, datatype, size, data in inputs:
        if name in tensors:
            raise RequestError(f"input {name!r} occurs twice.")
        if size is None:
            values = _from_list(name, datatype, data)
        else:
            start, end = end, end + size
            if end > len(tail):
                raise RequestError(f"input {name!r} has fewer bytes than its binary_data_size.")
            values = _from_bytes(name, datatype, tail[start:end])
        if values.size != expected:
            raise RequestError(
                f"input {name!r} has {counted(values.size, 'value')}, expected {expected} for the"
                f" shape {shape}."
            )
        tensors[name] = values.reshape(shape)
    if end != len(tail):
        raise RequestError(f"{len(tail) - end} bytes after the last input belong to no input.")
    return tensors


def _from_bytes(name: str, datatype: Any, data: bytes) -> np.ndarray:
    if datatype == _BYTES:
        return np.array(_split_bytes(name, data), object)
    dtype = _dtype_of(name, datatype)
    if len(data) % dtype.itemsize:
        raise RequestError(
            f"input {name!r} has {len(data)} bytes, expected a multiple of {dtype.itemsize} for"
            f" {datatype}."
        )
    return np.frombuffer(data, dtype)


def _split_bytes(name: str, data: bytes) -> list[bytes]:
    """Returns the texts in the bytes of a tensor. The length of each text precedes the text."""
    values, end = [], 0
    while end < len(data):
        start = end + _LENGTH_BYTES
        end = start + int.from_bytes(data[end:start], "little")
        if end > len(data):
            raise RequestError(f"the bytes of input {name!r} end within a value.")
        values.append(data[start:end])
    return values


def _from_list(name: str, datatype: Any, data: Any) -> np.ndarray:
    if not isinstance(data, list):
        raise RequestError(f"input {name!r} has neither `data` nor a binary_data_size.")
    flat = _flatten(data)
    if datatype == _BYTES:
        if not all(value is None or isinstance(value, str) for value in flat):
            raise RequestError(
                f"`data` of input {name!r} must have only strings, as its datatype is BYTES."
            )
        return np.array([(v or "").encode(errors="replace") for v in flat], object)
    dtype = _dtype_of(name, datatype)
    # NumPy converts None to NaN, which integers cannot represent.
    types = _NUMBERS if dtype.kind == "f" else _NUMBERS - {type(None)}
    if not types.issuperset(map(type, flat)):
        raise RequestError(
            f"`data` of input {name!r} must have only numbers, as its datatype is {datatype}."
        )
    if dtype.kind in "iu" and any(type(v) is float and v % 1 for v in flat):
        raise RequestError(
            f"`data` of input {name!r} must have only integers, as its datatype is {datatype}."
        )
    try:
        return np.array(flat, dtype)
    except (OverflowError, ValueError) as error:
        raise RequestError(f"`data` of input {name!r} is not {datatype}: {error}.") from None


def _flatten(data: list[Any]) -> list[Any]:
    """Returns the values of nested lists in one list."""
    while data and all(isinstance(value, list) for value in data):
        data = [item for value in data for item in value]
    return data


def _dtype_of(name: str, datatype: Any) -> np.dtype:
    dtype = _DTYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise RequestError(
            f"input {name!r} has the datatype {datatype!r}, expected one of"
            f" {', '.join([*_DTYPES, _BYTES])}."
        )
    return dtype


def to_tensors(tensors: Mapping[str, np.ndarray]) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the descriptions and the bytes of binary tensors. `from_tensors` is the inverse."""
    outputs = [_to_output(name, values, is_binary=True) for name, values in tensors.items()]
    return [description for description, _ in outputs], b"".join(data for _, data in outputs)


def _to_output(name: str, values: np.ndarray, is_binary: bool) -> tuple[dict[str, Any], bytes]:
    """Returns the description of a tensor, and its bytes, which are empty unless it is binary."""
    is_text = values.dtype == object
    output: dict[str, Any] = {
        "name": name,
        "datatype": _BYTES if is_text else _DATATYPE_OF[values.dtype.name],
        "shape": list(values.shape),
    }
    if not is_binary:
        flat = values.ravel().tolist()
        data = [value.decode(errors="replace") for value in flat] if is_text else flat
        return output | {"data": data}, b""
    tail = _join_bytes(values) if is_text else values.tobytes()
    return output | {"parameters": {"binary_data_size": len(tail)}}, tail


def _join_bytes(values: np.ndarray) -> bytes:
    """Returns the bytes of texts with their lengths. `_split_bytes` is the inverse."""
    if values.ndim > 1 and len(values) > 1 and (values == values[0]).all():
        return _join_bytes(values[0]) * len(values)
    flat = values.ravel().tolist()
    encoded = {text: len(text).to_bytes(_LENGTH_BYTES, "little") + text for text in set(flat)}
    return b"".join([encoded[text] for text in flat])


def describe_tensors(name: str, number: int, model: Servable) -> dict[str, Any]:
    """Returns Open Inference's metadata of a model: the name, datatype and shape of each tensor."""
    return {
        "name": name,
        "versions": [str(number)],
        "platform": model.platform,
        "inputs": [
            {
                "name": column.request,
                "datatype": _DATATYPE_OF[column.dtype],
                "shape": _described_shape(column),
            }
            for column in model.interface.columns
        ],
        "outputs": [
            {
                "name": output,
                "datatype": _DATATYPE_OF[dtype],
                "shape": [-1 if size is None else size for size in shape],
            }
            for output, (dtype, shape) in model.outputs.items()
        ],
    }


def _described_shape(column: RawColumn) -> list[int]:
    if isinstance(column, FeatureColumn):
        return [-1, *column.shape]
    return [-1] if column.width == 1 else [-1, column.width or -1]
