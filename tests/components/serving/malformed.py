"""Requests that nobody should send: a path, headers and a body each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

PREDICT, CLASSIFY = "/v1/models/trips:predict", "/v1/models/trips:classify"
INFER = "/v2/models/trips/infer"
_VALUES: list[Any] = [
    "many", True, [], [1.0, 2.0], [[1.0]], {}, {"b64": "AA=="}, 1e400, -1e400, 2**70, {"a": {}},
]  # fmt: skip


@dataclass(frozen=True)
class Malformed:
    """A request."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def corpus(row: dict[str, Any], seed: int = 7) -> Iterator[Malformed]:
    """Some two hundred of them.

    Args:
      row: what the model takes, by column.
      seed: of the bytes that are made up.
    """
    yield from (Malformed(path, body) for path in (PREDICT, CLASSIFY, INFER) for body in _NO_JSON)
    yield from (Malformed(PREDICT, _dump(body)) for body in _bodies(row))
    yield from (Malformed(INFER, _dump(body)) for body in _inferences(row))
    yield from _tails(row)
    yield from _cut_and_garbled(row, seed)


def _dump(body: Any) -> bytes:
    return json.dumps(body).encode()


_NO_JSON = [
    *(b"", b"{", b"}", b"[", b"null", b"1", b'"a"', b"[]", b"{}", b"nul", b"\xff\xfe", b"\0" * 10),
    *(b'{"instances": [}', b'{"instances": NaN}', b'{"instances": [NaN]}', b"[" * 100_000),
    *(b'{"a":' * 50_000, b"[NaN," * 50_000, b'{"instances": "x", "inputs": NaN', b"\xef\xbb\xbf{}"),
]


def _bodies(row: dict[str, Any]) -> Iterator[Any]:
    for rows in ([], {}, "x", 1, None, [1], ["x"], [[]], [None], [{}], [row, 1], [{**row, "x": 1}]):
        yield {"instances": rows}
    for columns in ([], "x", 1, None, {}, {"fare": 1}, {"fare": [1]}, {k: [] for k in row}):
        yield {"inputs": columns}
    yield {"instances": [row], "inputs": {}}
    for signature in ("no", 1, None, [], "serving"):
        yield {"instances": [row], "signature_name": signature}
    for name in row:
        yield {"instances": [{k: v for k, v in row.items() if k != name}]}
        yield {"instances": [{**row, f"{name}s": 1}]}
        for value in _VALUES:
            if _is_wrong(row[name], value):
                yield {"instances": [{**row, name: value}], "signature_name": "serving_raw"}
    yield {"inputs": {k: [v] * (2 if k == "fare" else 1) for k, v in row.items()}}
    for encoded in ("***", "A", 1, None, [], "AAA"):
        yield {"instances": [{"b64": encoded}]}
        yield {"instances": [{**row, "company": {"b64": encoded}}]}
    # Base64 that is right, of what is no tf.Example; the second is the beginning of a PNG.
    for encoded in ("AAECAwQFBgc=", "iVBORw0KGgo="):
        yield {"instances": [{"b64": encoded}]}


def _is_wrong(right: Any, value: Any) -> bool:
    """Whether a column does not take a value instead of its own."""
    if isinstance(right, list):
        return not (isinstance(value, list) and not value)
    if isinstance(right, str):
        return not (isinstance(value, str) or value == {"b64": "AA=="})
    # A number of any size is one.
    return not (isinstance(right, float) and value == 2**70)


def _inferences(row: dict[str, Any]) -> Iterator[Any]:
    good = tensors(row)
    others = [good[:1], [*good, good[0] | {"name": "x"}]]
    for inputs in ([], {}, "x", None, [1], [{}], [{"name": 1}], *others):
        yield {"inputs": inputs}
    for key, values in _CHANGES.items():
        for value in values:
            yield {"inputs": [t | {key: value} if t["name"] == "fare" else t for t in good]}
    yield {"inputs": good, "outputs": [{"name": "nothing"}]}
    yield {"inputs": good, "outputs": [1]}
    yield {"inputs": good, "outputs": 1}


def tensors(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row as v2 has it."""
    given = []
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        datatype = "BYTES" if isinstance(values[0], str) else "FP64"
        shape = [1, len(values)] if isinstance(value, list) else [1]
        given.append({"name": name, "datatype": datatype, "shape": shape, "data": values})
    return given


_CHANGES: dict[str, list[Any]] = {
    "shape": [[], "x", [2], [-1], [0], None, [1, 1, 1], [1.0], [1 << 40]],
    "datatype": ["FP8", None, "BYTES", []],
    "data": ["x", ["x"], None, [[1], 2], [1e400]],
    "parameters": [{"binary_data_size": size} for size in (4, "x", -1)],
}


def _tails(row: dict[str, Any]) -> Iterator[Malformed]:
    body = _dump({"inputs": tensors(row)})
    for length in ("x", "-1", str(len(body) + 1), "1", "0", ""):
        yield Malformed(INFER, body, {"Inference-Header-Content-Length": length})
    yield Malformed(INFER, body + b"rest", {"Inference-Header-Content-Length": str(len(body))})
    good = {t["name"]: t for t in tensors(row)}
    text = {k: v for k, v in good["company"].items() if k != "data"}
    for tail in (b"\1", b"\5\0\0\0ab", b"\xff\xff\xff\xff", b"\1\0\0\0ab\0\0"):
        of_tail = text | {"parameters": {"binary_data_size": len(tail)}}
        head = _dump({"inputs": list((good | {"company": of_tail}).values())})
        headers = {"Inference-Header-Content-Length": str(len(head))}
        yield Malformed(INFER, head + tail, headers)


def _cut_and_garbled(row: dict[str, Any], seed: int) -> Iterator[Malformed]:
    generator = random.Random(seed)  # noqa: S311
    for path, body in (
        (PREDICT, _dump({"instances": [row]})),
        (INFER, _dump({"inputs": tensors(row)})),
    ):
        for _ in range(20):
            yield Malformed(path, body[: generator.randrange(len(body) - 1)])
            yield Malformed(path, generator.randbytes(generator.randrange(1, 200)))
