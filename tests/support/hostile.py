"""Malformed requests, and good ones of which bytes are mutated at random."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_HEADERS = [
    *(b"Content-Length: " + text for text in (b"5", b"-1", b"0x5", b"5,5", b"", b"9" * 5000)),
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding:\tCHUNKED ", b"Transfer_Encoding: x",
    b"Transfer-Encoding : chunked", b" Transfer-Encoding: chunked", b"A: b\r\n folded",
    b"Host: y", b"X: \0", b"X: \r", b"X: \xff\xfe", b": empty", b"no colon",
    b"Connection: close", b"Connection: upgrade\r\nUpgrade: h2c", b"Expect: everything",
    b"Content-Encoding: \xff", b"Authorization: Bearer \xff", b"X: " + b"y" * 9000,
    b"\r\n".join(b"X-%d: y" % number for number in range(200)),
]  # fmt: skip
_TARGETS = [
    b"*", b"/", b"http://x/healthz", b"?x", b"/%ff%00", b"/\xff", b"/\0", b"/../../etc/passwd",
    b"/" + b"a" * 9000, b"/v1/models/trips/versions/" + b"9" * 5000, b"/v1/models/\xd9\xa1",
]  # fmt: skip
_METHODS = [b"GET", b"HEAD", b"CONNECT", b"PRI", b"get", b"G\0T", b"X" * 9000, b""]
_VERSIONS = [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1 ", b"HTTP/" + b"1" * 5000, b""]
_BODIES = [
    b"0\r\n\r\n", b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", b"zz\r\n", b"f" * 17 + b"\r\n",
    b"-5\r\nhello", b"5\nhello", b"5\r\nhello5\r\n", b"", b"5 ;\r\nhello\r\n0\r\n\r\n",
]  # fmt: skip
_WHOLE = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed" + b"a" * 60,
    b"\r\n" * 50, b"\0" * 50, b"garbage\r\n\r\n", b"GET / HTTP/1.1\nHost: x\n\n",
]  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    """What is sent by one connection."""

    good: int
    """Requests that are as they should be, before others; each says which it is."""
    sent: bytes


def mutated(post: bytes, count: int, seed: int = 7) -> Iterator[Hostile]:
    """Several good requests each, and one behind them that is mutated.

    Args:
      post: a good request, of which the head has `X-Request-Id: good`.
      count: of connections.
      seed: of the mutations.
    """
    generator = random.Random(seed)  # noqa: S311
    for _ in range(count):
        good = [
            generator.choice((post, _LIVE)).replace(b": good", b": good%d" % number)
            for number in range(generator.randrange(4))
        ]
        bad = generator.choice((_composed, _composed, _garbled, _whole))(generator, post)
        yield Hostile(len(good), b"".join(good) + bad)


_LIVE = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: good\r\n\r\n"


def _composed(generator: random.Random, post: bytes) -> bytes:
    """A request of which a few parts are odd."""
    head, _, body = post.partition(b"\r\n\r\n")
    line, *headers = head.replace(b"X-Request-Id: good", b"X: y").split(b"\r\n")
    method, target, version = line.split(b" ")
    if generator.random() < 0.3:
        method = generator.choice(_METHODS)
    if generator.random() < 0.3:
        target = generator.choice(_TARGETS)
    if generator.random() < 0.2:
        version = generator.choice(_VERSIONS)
    if generator.random() < 0.5:
        headers.pop(generator.randrange(len(headers)))
    for _ in range(generator.randrange(3)):
        headers.insert(generator.randrange(len(headers) + 1), generator.choice(_HEADERS))
    if generator.random() < 0.5:
        body = generator.choice(_BODIES)
    end = b"\n" if generator.random() < 0.05 else b"\r\n"
    return end.join([b" ".join((method, target, version)), *headers, b"", body])


def _garbled(generator: random.Random, post: bytes) -> bytes:
    """A request of which a few bytes are others, or are not there, or there twice."""
    sent = bytearray(post.replace(b"X-Request-Id: good", b"X: y"))
    for _ in range(generator.randrange(1, 4)):
        place = generator.randrange(len(sent))
        how = generator.randrange(4)
        if how == 0:
            sent[place] = generator.choice(b"\0\r\n \t:;,\x7f\xff09aA")
        elif how == 1:
            del sent[place : place + generator.randrange(1, 9)]
        elif how == 2:
            sent[place:place] = sent[place : place + generator.randrange(1, 30)]
        else:
            sent[place:place] = generator.randbytes(generator.randrange(1, 9))
    return bytes(sent)


def _whole(generator: random.Random, post: bytes) -> bytes:
    return generator.choice(_WHOLE)


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


def wrong(row: dict[str, Any], seed: int = 7) -> Iterator[Malformed]:
    """Some two hundred of them.

    Args:
      row: what the model takes, by column.
      seed: of the bytes that are made up.
    """
    yield from (Malformed(path, body) for path in (PREDICT, CLASSIFY, INFER) for body in _NO_JSON)
    yield from (Malformed(PREDICT, _dump(body)) for body in _bodies(row))
    yield from (Malformed(INFER, _dump(body)) for body in _inferences(row))
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
    # The beginning of a PNG, which is no tf.Example.
    yield {"instances": [{"b64": "iVBORw0KGgo="}]}


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
    "shape": [[], "x", [2], [-1], [1 << 40]],
    "datatype": ["FP8", None, "BYTES", []],
    "data": ["x", ["x"], None, [[1], 2], [1e400]],
    "parameters": [{"binary_data_size": size} for size in (4, "x", -1)],
}


def _cut_and_garbled(row: dict[str, Any], seed: int) -> Iterator[Malformed]:
    generator = random.Random(seed)  # noqa: S311
    for path, body in (
        (PREDICT, _dump({"instances": [row]})),
        (INFER, _dump({"inputs": tensors(row)})),
    ):
        for _ in range(5):
            yield Malformed(path, body[: generator.randrange(len(body) - 1)])
            yield Malformed(path, generator.randbytes(generator.randrange(1, 200)))
