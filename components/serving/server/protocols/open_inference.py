"""The Open Inference Protocol v2 of KServe and Triton, with its binary extension.

https://github.com/kserve/open-inference-protocol, and for binary tensors behind the JSON
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
from components.serving.server.protocols.values import are_whole, from_columns, parse_json
from components.serving.server.replies import (
    BYTES,
    Reply,
    RequestError,
    ResultSlice,
    unknown_name,
)
from trainer_module.errors import counted
from trainer_module.export.interface import ModelInterface, RawColumn, TextReader

HEADER_LENGTH = "inference-header-content-length"
"""The header with the length of the JSON, if binary tensors follow."""
_LONGEST_ID = 1000
_KNOWN_HEADS, _LONGEST_HEAD = 64, 1 << 14
"""The size of the cache of parsed heads, and the most bytes of a cached head."""
_KNOWN_OUTPUTS = 64
"""The most outputs that a cached head may name."""
_LARGEST = 2.0**63
_KINDS = {"UINT": ("uint", 8), "INT": ("int", 8), "FP": ("float", 16)}
"""NumPy's name of each kind of datatype, and the bits of its smallest type."""
_DTYPES = {"BOOL": np.dtype("bool")} | {
    f"{datatype}{bits}": np.dtype(f"{name}{bits}").newbyteorder("<")
    for datatype, (name, least) in _KINDS.items()
    for bits in (8, 16, 32, 64)
    if bits >= least
}
"""NumPy's dtypes of numeric datatypes."""
_BYTES = "BYTES"
_DATATYPE_OF = {dtype.name: datatype for datatype, dtype in _DTYPES.items()} | {"string": _BYTES}
"""The datatype of each dtype of a tensor."""
_NUMBERS = {int, float, bool, type(None)}
_LENGTH_BYTES = 4
"""The size of the length that precedes each text."""
_MOST_SIZES = 16
"""The most dimensions of a shape."""


def read_request(
    body: bytes, end: int, interface: ModelInterface, name: str, number: int
) -> tuple[str, Arrays, Inference]:
    """Returns the signature of an `infer` request, its tensors, and the format of the response.

    The values of tensors for `serving_raw` are not checked yet; `check_tensors` does that.

    Args:
      body: the body of the request.
      end: the length of the JSON, which binary tensors follow.
      interface: the interface of the model.
      name: the name of the model.
      number: the number of its version.

    Raises:
      RequestError: the request is invalid.
    """
    head = body[:end]
    may_be_known = end < len(body) and end <= _LONGEST_HEAD
    known = _head_cache.get(head) if may_be_known else None
    asked = known or _read_head(head)
    tensors = _read_tensors(asked.described, body[end:])
    form = Inference(name, number, *asked.output_options)
    if tensors.keys() == {EXAMPLES_INPUT}:
        examples = tensors[EXAMPLES_INPUT].reshape(-1)
        if not len(examples):
            raise RequestError(f"input {EXAMPLES_INPUT!r} is empty.")
        signature, tensors = EXAMPLES, {EXAMPLES_INPUT: examples}
    else:
        signature, tensors = RAW, _to_columns(tensors, interface)
    if may_be_known and known is None:
        _cache_head(head, asked)
    return signature, tensors, form


class _Head(NamedTuple):
    """The parsed JSON of a request."""

    described: list[_InputDescription]
    """The descriptions of the tensors."""
    output_options: _OutputOptions


def _read_head(head: bytes) -> _Head:
    asked = parse_json(head)
    inputs = asked.get("inputs") if isinstance(asked, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise RequestError("the body needs `inputs`, a list of tensors.")
    return _Head(list(map(_describe, inputs)), _read_output_options(asked))


_head_cache: dict[bytes, _Head] = {}


def _cache_head(head: bytes, parsed: _Head) -> None:
    """Caches a head that the model accepts, if its tensors are binary.

    A client with binary tensors sends the same head again and again.
    """
    outputs = parsed.output_options[1] or ()
    are_bytes = all(one.size is not None and one.data is None for one in parsed.described)
    if are_bytes and len(outputs) <= _KNOWN_OUTPUTS:
        if len(_head_cache) >= _KNOWN_HEADS:
            _head_cache.clear()
        _head_cache[head] = parsed


def _to_columns(tensors: Mapping[str, np.ndarray], interface: ModelInterface) -> Arrays:
    """Returns the tensors of all columns, as `serving_raw` takes them."""
    known = interface.by_request
    for name in tensors:
        if name not in known:
            raise unknown_name("inputs", name, known)
    rows = {len(tensor) for tensor in tensors.values()}
    if len(rows) > 1:
        raise RequestError(f"the inputs have different numbers of rows: {sorted(rows)}.")
    if tensors.keys() != known.keys():
        from_columns({name: [] for name in tensors}, interface)  # Raises for missing columns.
    return {name: _as_column(tensors[name], column) for name, column in known.items()}


def _as_column(tensor: np.ndarray, column: RawColumn) -> np.ndarray:
    _check_shape(tensor.shape, column)
    is_text = tensor.dtype == object
    reader = column.text_reader
    if reader is not None and not is_text:
        tensor, is_text = _as_texts(tensor, column.request, reader), True
    if is_text != (column.dtype == "string"):
        right = _DATATYPE_OF[column.dtype]
        raise RequestError(f"input {column.request!r} has another datatype, expected {right}.")
    if not is_text and tensor.dtype.kind != np.dtype(column.dtype).kind:
        _check_numbers(tensor, column)  # Other tensors are checked after the conversion.
    shape = [len(tensor)] if column.width == 1 else [len(tensor), tensor.size // len(tensor)]
    return tensor.reshape(shape) if is_text else tensor.astype(column.dtype).reshape(shape)


def _as_texts(tensor: np.ndarray, name: str, reader: TextReader) -> np.ndarray:
    """Returns numbers or booleans as the texts that the model parses."""
    texts = [b"" if value != value else reader.write(value) for value in tensor.ravel().tolist()]
    if None in texts:
        value = tensor.ravel()[texts.index(None)]
        raise RequestError(f"input {name!r} holds {value}, expected {reader.right}.")
    return np.array(texts, object).reshape(tensor.shape)


def check_tensors(tensors: Arrays, interface: ModelInterface) -> None:
    """Checks the numbers in tensors that `serving_raw` is to take.

    Raises:
      RequestError: a number is infinite, or fractional in a column of whole numbers.
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
    """Raises RequestError unless each row of a tensor has as many values as the column."""
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


_OutputOptions = tuple[str | None, tuple[tuple[str, bool], ...] | None, bool]


def _read_output_options(body: Mapping[str, Any]) -> _OutputOptions:
    """Returns what a request specifies for its response: the last fields of `Inference`."""
    given, parameters, outputs = (body.get(key) for key in ("id", "parameters", "outputs"))
    if given is not None and not (isinstance(given, str | int) and len(str(given)) <= _LONGEST_ID):
        raise RequestError(f"`id` must be a string of at most {_LONGEST_ID} characters.")
    default = isinstance(parameters, dict) and bool(parameters.get("binary_data_output"))
    if outputs and not isinstance(outputs, list):
        raise RequestError("`outputs` must be a list of objects with a `name`.")
    wanted = dict(_read_output(one, default) for one in outputs or ())
    if outputs and len(wanted) < len(outputs):
        raise RequestError("`outputs` names an output twice.")
    return None if given is None else str(given), tuple(wanted.items()) or None, default


def _read_output(output: Any, default: bool) -> tuple[str, bool]:
    title = output.get("name") if isinstance(output, dict) else None
    own = output.get("parameters") if isinstance(output, dict) else None
    own = own if isinstance(own, dict) else {}
    for name in ("classification", "shared_memory_region"):
        if name in own:  # Ignoring the parameter would give the client an unexpected response.
            raise RequestError(f"output {title!r} has the unsupported parameter {name!r}.")
    return title if isinstance(title, str) else str(title), bool(own.get("binary_data", default))


@dataclass(frozen=True, slots=True)
class Inference:
    """The format of the response to an `infer` request."""

    name: str
    """The name of the model."""
    number: int
    """The number of its version."""
    id: str | None
    """The id of the request."""
    outputs: tuple[tuple[str, bool], ...] | None
    """The names of requested outputs, and whether each is binary; None for all outputs."""
    are_bytes: bool
    """Whether outputs are binary if the request names none."""

    def part(self, answer: ResultSlice) -> Arrays:
        """Returns the requested outputs of some rows, in the requested order.

        Raises:
          RequestError: a requested output does not exist.
        """
        answers, wanted = answer.arrays, self.outputs
        if wanted is None:
            return answers
        for title, _ in wanted:
            if title not in answers:
                raise unknown_name("outputs", title, answers)
        return {title: answers[title] for title, _ in wanted}

    def reply(self, parts: Sequence[Arrays]) -> Reply:
        """Returns the response: JSON, followed by the binary outputs."""
        are_bytes = dict(self.outputs or ())
        described, tail = [], []
        for title in parts[0]:
            values = np.concatenate([part[title] for part in parts])
            output, data = _to_output(title, values, are_bytes.get(title, self.are_bytes))
            described.append(output)
            tail.append(data)
        head: dict[str, Any] = {
            "model_name": self.name,
            "model_version": str(self.number),
            "outputs": described,
        }
        if self.id is not None:
            head["id"] = self.id
        text = orjson.dumps(head)
        if not any("parameters" in output for output in described):
            return Reply(text)
        length = (HEADER_LENGTH.encode(), b"%d" % len(text))
        return Reply(b"".join([text, *tail]), BYTES, (length,))


class _InputDescription(NamedTuple):
    """The description of a tensor in a request."""

    name: str
    shape: list[int]
    values: int
    """The number of values."""
    datatype: Any
    size: int | None
    """The number of bytes of a binary tensor; None if the values are in the JSON."""
    data: Any
    """The values in the JSON; None for a binary tensor."""


def _describe(tensor: Any) -> _InputDescription:
    if not isinstance(tensor, dict) or not isinstance(name := tensor.get("name"), str):
        raise RequestError("every input must be an object with a `name`.")
    parameters, shape = tensor.get("parameters") or {}, tensor.get("shape")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None and (type(size) is not int or size < 0):
        raise RequestError(f"binary_data_size of input {name!r} must be a non-negative integer.")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise RequestError(f"`shape` of input {name!r} must be a list of non-negative integers.")
    if len(shape) > _MOST_SIZES:
        raise RequestError(
            f"`shape` of input {name!r} has {len(shape)} sizes, expected at most {_MOST_SIZES}."
        )
    if not shape or not shape[0]:
        raise RequestError(f"`shape` of input {name!r} is {shape}, expected [rows] or [rows, n].")
    return _InputDescription(
        name, shape, math.prod(shape), tensor.get("datatype"), size, tensor.get("data")
    )


def from_tensors(described: list[Any], tail: bytes) -> Arrays:
    """Returns tensors by name, from their descriptions and the bytes that follow the JSON.

    Raises:
      RequestError: the descriptions or bytes are invalid.
    """
    return _read_tensors(list(map(_describe, described)), tail)


def _read_tensors(described: list[_InputDescription], tail: bytes) -> Arrays:
    tensors, place = {}, 0
    for name, shape, expected, datatype, size, data in described:
        if name in tensors:
            raise RequestError(f"input {name!r} occurs twice.")
        if size is None:
            values = _from_list(name, datatype, data)
        else:
            start, place = place, place + size
            if place > len(tail):
                raise RequestError(f"input {name!r} has fewer bytes than its binary_data_size.")
            values = _from_bytes(name, datatype, tail[start:place])
        if values.size != expected:
            raise RequestError(
                f"input {name!r} has {counted(values.size, 'value')}, expected {expected} for"
                f" {shape}."
            )
        tensors[name] = values.reshape(shape)
    if place != len(tail):
        raise RequestError(f"{len(tail) - place} bytes after the last input belong to no input.")
    return tensors


def _from_bytes(name: str, datatype: Any, data: bytes) -> np.ndarray:
    if datatype == _BYTES:
        return np.array(_split_bytes(name, data), object)
    dtype = _dtype_of(name, datatype)
    if len(data) % dtype.itemsize:
        raise RequestError(
            f"input {name!r} has {len(data)} bytes, not a multiple of {datatype}'s size."
        )
    return np.frombuffer(data, dtype)


def _split_bytes(name: str, data: bytes) -> list[bytes]:
    values, place = [], 0
    while place < len(data):
        start = place + _LENGTH_BYTES
        place = start + int.from_bytes(data[place:start], "little")
        if place > len(data):
            raise RequestError(f"the bytes of input {name!r} end within a value.")
        values.append(data[start:place])
    return values


def _from_list(name: str, datatype: Any, data: Any) -> np.ndarray:
    if not isinstance(data, list):
        raise RequestError(f"input {name!r} has neither `data` nor a binary_data_size.")
    flat = _flat(data)
    if datatype == _BYTES:
        if not all(value is None or isinstance(value, str) for value in flat):
            raise RequestError(
                f"`data` of input {name!r} must have only strings, as its datatype is BYTES."
            )
        return np.array([(v or "").encode(errors="replace") for v in flat], object)
    dtype = _dtype_of(name, datatype)
    # NumPy converts None to NaN, which integers cannot represent.
    kinds = _NUMBERS if dtype.kind == "f" else _NUMBERS - {type(None)}
    if not kinds.issuperset(map(type, flat)):
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


def _flat(data: list[Any]) -> list[Any]:
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
    """Returns the descriptions and bytes of binary tensors, the inverse of `from_tensors`."""
    written = [_to_output(name, values, is_binary=True) for name, values in tensors.items()]
    return [described for described, _ in written], b"".join(tail for _, tail in written)


def _to_output(name: str, values: np.ndarray, is_binary: bool) -> tuple[dict[str, Any], bytes]:
    """Returns the description of a tensor, and its bytes if it is binary."""
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
    """Returns texts with their lengths, the inverse of `_split_bytes`."""
    if values.ndim > 1 and len(values) > 1 and (values == values[0]).all():
        return _join_bytes(values[0]) * len(values)
    flat = values.ravel().tolist()
    known = {one: len(one).to_bytes(_LENGTH_BYTES, "little") + one for one in set(flat)}
    return b"".join([known[one] for one in flat])


def describe_tensors(name: str, number: int, model: Servable) -> dict[str, Any]:
    """Returns Open Inference's metadata of a model: names, datatypes and shapes of its tensors."""
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
