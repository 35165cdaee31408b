"""Answers as JSON: written once for all requests that were asked together."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from components.serving.requests import Arrays

Lists = dict[str, list[Any]]
"""Answers by name, one a row."""
Texts = list[bytes]
"""The JSON of each row."""


def to_lists(answers: Arrays) -> Lists:
    """Answers as `to_column_texts` writes them."""
    return {name: _to_list(name, values) for name, values in answers.items()}


def to_column_texts(answers: Arrays) -> dict[str, Texts]:
    """Each output of each row, by name.

    Numbers are as short as they can be and still be the same in their own dtype; NaN is null.
    Bytes are text, or base64 where the name of the output ends with `_bytes`, as TF Serving has it.
    """
    return {name: _to_texts(name, values) for name, values in answers.items()}


def to_row_texts(columns: dict[str, Texts]) -> Texts:
    """Rows as objects; of a single output they are its values."""
    if len(columns) == 1:
        return next(iter(columns.values()))
    keys = [orjson.dumps(name).replace(b"%", b"%%") for name in columns]
    row = b"{" + b",".join(key + b":%b" for key in keys) + b"}"
    return [row % values for values in zip(*columns.values(), strict=True)]


def _to_texts(name: str, values: np.ndarray) -> Texts:
    if values.ndim > 2 or not values.size:
        return [orjson.dumps(row) for row in _to_list(name, values)]
    if values.dtype == object:
        return _of_bytes(name, values)
    written = _write_numbers(values)
    if values.ndim == 1:
        return written[1:-1].split(b",")
    return written[1:-1].replace(b"],[", b"]\n[").split(b"\n")


def _write_numbers(values: np.ndarray) -> bytes:
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _to_list(name: str, values: np.ndarray) -> list[Any]:
    if values.dtype != object:
        numbers: list[Any] = orjson.loads(_write_numbers(values))
        return numbers
    return [_mapped(name, row) for row in values.tolist()]


def _mapped(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_mapped(name, one) for one in value]
    return _to_json(name, value)


def _of_bytes(name: str, values: np.ndarray) -> Texts:
    """Of few different values, and few different rows, as classes are."""
    listed = values.tolist()
    known = {value: orjson.dumps(_to_json(name, value)) for value in set(values.ravel().tolist())}
    if values.ndim == 1:
        return [known[value] for value in listed]
    if (values == values[0]).all():  # As the names of all classes are.
        return [_join(known, listed[0])] * len(listed)
    rows = list(map(tuple, listed))
    written = {row: _join(known, row) for row in set(rows)}
    return [written[row] for row in rows]


def _join(known: Mapping[bytes, bytes], row: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(known[value] for value in row)


def _to_json(name: str, value: bytes) -> str | dict[str, str]:
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value).decode()}
    return value.decode(errors="replace")
