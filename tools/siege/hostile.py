"""Hostile requests: a function per kind, which sends them and returns the statuses."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import random
import time
import zlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from tools.siege import pictures
from tools.siege.connection import (
    ANSWER_SECONDS,
    CLOSED,
    Connection,
    exchange,
    request,
    send_slowly,
)
from tools.siege.models import HEADER_LENGTH, INFER, PREDICT, Row, tensor
from tools.siege.server import KEY

REFUSED = (CLOSED, *range(400, 500), 503)
"""The acceptable statuses of an invalid request."""
TAKEN = (200, *REFUSED)
"""The acceptable statuses of a request that a server may answer or refuse."""
_MAX_BODY_BYTES = 64 << 20
"""The size limit of a body, according to docs/serving.md."""
_SLOW_SECONDS = 20.0
"""The seconds within which a complete request must arrive, according to docs/serving.md."""
_LONG_SECONDS = 30.0
"""The seconds within which a valid long request is answered, according to docs/serving.md."""
_GONE_SECONDS = 0.5


class UnexpectedError(Exception):
    """An answer that is wrong even if its status is acceptable."""


@dataclass(frozen=True)
class Target:
    """The target of an attack, and its source of rows and random numbers."""

    port: int
    rows: Sequence[Row]
    chance: random.Random

    @property
    def row(self) -> Row:
        """A randomly chosen valid row."""
        return self.chance.choice(self.rows)

    def predict(self, body: bytes, *headers: tuple[str, str]) -> int:
        """Sends a request of TF Serving's REST API over a new connection; returns the status."""
        return exchange(self.port, post(body, *headers))[0]

    def predict_gzipped(self, body: bytes) -> int:
        """Sends a gzipped request of TF Serving's REST API; returns the status."""
        return self.predict(gzip.compress(body, 6), ("Content-Encoding", "gzip"))

    def infer(self, inputs: Any, tail: bytes = b"", length: str = "") -> int:
        """Sends a request of Open Inference with bytes after the JSON; returns the status."""
        head = json.dumps({"inputs": inputs}).encode()
        return exchange(self.port, infer(head, tail, length))[0]

    def send_picture(self, picture: bytes) -> int:
        """Sends a row with a picture, over one of the protocols; returns the status."""
        if self.chance.random() < 0.5:
            return self.predict(instances([self.with_picture(picture)]))
        head, tail = replace(self.row, photo=picture).tensors()
        return self.infer(json.loads(head)["inputs"], tail)

    def with_picture(self, picture: bytes) -> dict[str, Any]:
        """Returns a valid row with another picture."""
        return {**self.row.instance(), "photo": {"b64": base64.b64encode(picture).decode()}}

    def send_raw(self, data: bytes, count: int = 1) -> list[int]:
        """Sends bytes over a new connection; returns the statuses of `count` responses."""
        return exchange(self.port, data, count)


def post(body: bytes, *headers: tuple[str, str]) -> bytes:
    """Returns a request for `:predict`."""
    return request(PREDICT, body, [("Authorization", f"Bearer {KEY}"), *headers])


def infer(head: bytes, tail: bytes = b"", length: str = "") -> bytes:
    """Returns a request of Open Inference."""
    length_header = (HEADER_LENGTH, length or str(len(head)))
    return request(INFER, head + tail, [("Authorization", f"Bearer {KEY}"), length_header])


def instances(rows: Any) -> bytes:
    """Returns the body of a request for rows."""
    return json.dumps({"signature_name": "serving_raw", "instances": rows}).encode()


Attack = Callable[[Target], Sequence[int]]


@dataclass(frozen=True)
class Kind:
    """A kind of hostile request."""

    attack: Attack
    allowed: Collection[int] = REFUSED
    """The acceptable statuses."""
    is_slow: bool = False
    """Whether the attack lasts as long as the server's timeouts; such attacks run in parallel."""


KINDS: dict[str, Kind] = {}


def hostile(
    allowed: Collection[int] = REFUSED, is_slow: bool = False
) -> Callable[[Attack], Attack]:
    """Returns a decorator that registers a kind of hostile request."""

    def register(attack: Attack) -> Attack:
        KINDS[attack.__name__] = Kind(attack, allowed, is_slow)
        return attack

    return register


def _in_parallel(times: int, ask: Callable[[], int]) -> list[int]:
    """Sends a request several times in parallel; returns the statuses."""
    with ThreadPoolExecutor(times) as pool:
        return [future.result() for future in [pool.submit(ask) for _ in range(times)]]


# Requests that grow many times when they are decompressed or parsed.


@hostile()
def gzip_of_empty_rows(target: Target) -> list[int]:
    """Sends 64 MiB of `{}` compressed to 65 KB, from two clients in parallel."""
    body = _packed_rows(b"{}", target.chance.choice([_MAX_BODY_BYTES, _MAX_BODY_BYTES // 4]))
    return _in_parallel(2, lambda: target.predict(body, ("Content-Encoding", "gzip")))


@hostile()
def gzip_of_numbers(target: Target) -> list[int]:
    """Sends rows that are numbers, lists, strings or null."""
    row = target.chance.choice([b"0", b"[]", b"null", b"[[0]]", b'""'])
    packed = _packed_rows(row, _MAX_BODY_BYTES // 2)
    return [target.predict(packed, ("Content-Encoding", "gzip"))]


@functools.cache
def _packed_rows(row: bytes, size: int) -> bytes:
    """Returns a gzipped request of equal rows, whose decompressed size is at most `size` bytes."""
    count = (size - 100) // (len(row) + 1)
    return gzip.compress(b'{"instances":[' + (row + b",") * count + row + b"]}")


@hostile()
def gzip_beyond_the_limit(target: Target) -> list[int]:
    """Sends a gigabyte of blanks compressed to a megabyte."""
    return [target.predict(_packed_blanks(), ("Content-Encoding", "gzip"))]


@functools.cache
def _packed_blanks() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(b" " * (1 << 20)) for _ in range(1024)) + packer.flush()


@hostile()
def no_gzip(target: Target) -> list[int]:
    """Sends bodies that do not match their Content-Encoding."""
    complete = gzip.compress(target.row.rest_body())
    body = target.chance.choice(
        [complete[:-9], complete + b"more", gzip.compress(complete), b"", b"x" * 99]
    )
    encoding = target.chance.choice(["gzip", "deflate", "br", "gzip, gzip", "x" * 5000])
    return [target.predict(body, ("Content-Encoding", encoding))]


@hostile()
def nested_json(target: Target) -> list[int]:
    """Sends lists and objects that are nested millions deep."""
    opening = target.chance.choice([b"[", b'{"a":', b"[NaN,", b'{"instances":['])
    return [
        target.predict_gzipped(
            opening * (target.chance.choice([1, 16, 60]) * (1 << 20) // len(opening))
        )
    ]


@hostile()
def nan_rows(target: Target) -> list[int]:
    """Sends NaN, which only the slower JSON parser accepts."""
    return [target.predict(_packed_rows(b"NaN", 16 << 20), ("Content-Encoding", "gzip"))]


@hostile()
def many_keys(target: Target) -> list[int]:
    """Sends an object with half a million keys."""
    names = b",".join(b'"k%d":0' % number for number in range(500_000))
    return [target.predict_gzipped(b'{"instances":[{' + names + b"}]}")]


@hostile()
def long_number(target: Target) -> list[int]:
    """Sends a number with three million digits."""
    digits = target.chance.choice([b"9", b"0.1", b"1e"]) + b"1" * 3_000_000
    row = target.row.rest_body().replace(b'"size": ', b'"size": ' + digits)
    return [target.predict(row), target.predict(b'{"instances":' + digits + b"}")]


@hostile(TAKEN)
def long_text(target: Target) -> list[int]:
    """Sends a category of 30 MB."""
    row = {**target.row.instance(), "colour": "x" * (30 << 20)}
    return [target.predict(instances([row]))]


@hostile(TAKEN)
def many_rows(target: Target) -> list[int]:
    """Sends 50,000 valid rows by REST, with the timeout of long valid requests."""
    body = post(instances([target.row.instance()] * 50_000))
    return exchange(target.port, body, seconds=_LONG_SECONDS)


@hostile(TAKEN)
def many_rows_by_columns(target: Target) -> list[int]:
    """Sends gzipped columns of 200,000 values."""
    row, count = target.row.instance(), 200_000
    columns = {name: [value] * count for name, value in row.items() if name != "photo"}
    photo = base64.b64encode(pictures.png(1, 1)).decode()
    columns["photo"] = [{"b64": photo}] * count
    return [target.predict_gzipped(json.dumps({"inputs": columns}).encode())]


# Pictures.


@hostile()
def huge_picture(target: Target) -> list[int]:
    """Sends a picture of 12,000 x 12,000 pixels of one colour."""
    return [target.send_picture(pictures.huge(target.chance.choice(["PNG", "JPEG", "GIF"])))]


@hostile()
def huge_pictures_together(target: Target) -> list[int]:
    """Sends a huge picture from four clients in parallel."""
    body = instances([target.with_picture(pictures.huge("PNG"))])
    return _in_parallel(4, lambda: target.predict(body))


@hostile()
def huge_picture_among_good_rows(target: Target) -> list[int]:
    """Sends a huge picture in a row among valid ones."""
    rows = [target.row.instance() for _ in range(16)]
    rows.insert(target.chance.randrange(16), target.with_picture(pictures.huge("PNG")))
    return [target.predict(instances(rows))]


@hostile()
def huge_picture_as_example(target: Target) -> list[int]:
    """Sends a huge picture in a serialised tf.Example."""
    photo = _field(1, _field(1, pictures.huge("PNG")))  # A Feature, of a BytesList.
    example = _field(1, _field(1, _field(1, b"photo") + _field(2, photo)))
    row = {"b64": base64.b64encode(example).decode()}
    return [target.predict(json.dumps({"instances": [row]}).encode())]


def _field(number: int, data: bytes) -> bytes:
    """Returns a length-delimited field of a protocol buffer."""
    size, length = len(data), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + data


@hostile()
def large_refused_rows(target: Target) -> list[int]:
    """Sends eight bodies of 20 MB with a row whose picture is random bytes."""
    body = instances([target.with_picture(target.chance.randbytes(15 << 20))])
    return [target.predict(body) for _ in range(8)]


@hostile(TAKEN)
def deep_picture(target: Target) -> list[int]:
    """Sends a PNG with eight bytes per pixel."""
    return [target.send_picture(pictures.deep_png())]


@hostile(TAKEN)
def wide_picture(target: Target) -> list[int]:
    """Sends a very wide or very high picture."""
    sides = target.chance.choice([(200_000, 1), (1, 200_000), (1_000_000, 40)])
    return [target.send_picture(pictures.png(*sides))]


@hostile()
def many_large_pictures(target: Target) -> list[int]:
    """Sends 64 pictures of 9 megapixels in one request."""
    body = post(instances([target.with_picture(pictures.png(3000, 3000))] * 64))
    return exchange(target.port, body)


@hostile()
def lying_picture(target: Target) -> list[int]:
    """Sends a small file whose header claims a huge picture."""
    return [target.send_picture(pictures.lying(target.chance))]


@hostile()
def damaged_picture(target: Target) -> list[int]:
    """Sends truncated, damaged or invalid pictures."""
    return [target.send_picture(pictures.damaged(target.chance)) for _ in range(4)]


@hostile()
def damaged_pictures_in_batches(target: Target) -> list[int]:
    """Sends rows, some with damaged pictures, from four clients in parallel."""
    rows = [target.row.instance() for _ in range(60)]
    rows += [target.with_picture(pictures.damaged(target.chance)) for _ in range(4)]
    target.chance.shuffle(rows)
    return _in_parallel(4, lambda: target.predict(instances(rows)))


# Invalid HTTP.


@hostile()
def number_of_5000_digits(target: Target) -> list[int]:
    """Sends a length of 5,000 digits in a header."""
    digits = target.chance.choice("123456789") * 5000
    with_long_length = post(target.row.rest_body()).replace(
        b"Content-Length: ", f"Content-Length: {digits}".encode()
    )
    head, tail = target.row.tensors()
    return [*target.send_raw(with_long_length), *target.send_raw(infer(head, tail, digits))]


@hostile(TAKEN)
def pipelined_upgrades(target: Target) -> list[int]:
    """Sends 800 pipelined offers to upgrade to another protocol."""
    offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c")]
    return target.send_raw(post(target.row.rest_body(), *offer) * 800, 800)[-1:]


@hostile()
def unknown_transfer_encoding(target: Target) -> list[int]:
    """Sends an unknown Transfer-Encoding such as `xchunked`."""
    coding = target.chance.choice(["xchunked", "chunked, xchunked", "gzip", "chunked chunked", ""])
    return target.send_raw(
        post(b"").replace(b"Content-Length: 0", f"Transfer-Encoding: {coding}".encode())
    )


@hostile(TAKEN)
def garbage_behind_good_requests(target: Target) -> list[int]:
    """Sends valid requests followed by garbage."""
    count = target.chance.randrange(1, 8)
    garbage = target.chance.choice([b"\0" * 99, b"nothing\r\n\r\n", target.chance.randbytes(300)])
    statuses = target.send_raw(post(target.row.rest_body()) * count + garbage, count + 1)
    if statuses[:count] != [200] * count:
        raise UnexpectedError(f"{count} good requests before garbage: the statuses were {statuses}")
    return statuses


@hostile(is_slow=True)
def slow_head(target: Target) -> list[int]:
    """Sends heads at a byte per second over 20 connections."""
    return _send_slowly(
        target, request(PREDICT, b"", [(f"X-{n}", "y" * 50) for n in range(9)]), b""
    )


@hostile(is_slow=True)
def slow_body(target: Target) -> list[int]:
    """Sends bodies at a byte per second over 20 connections."""
    complete = post(target.row.rest_body())
    head = complete[: complete.index(b"\r\n\r\n") + 4]
    return _send_slowly(target, complete[len(head) :], head)


def _send_slowly(target: Target, data: bytes, head: bytes) -> list[int]:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(target.port)) for _ in range(20)]
        for connection in connections:
            connection.send(head)
        send_slowly(connections, data, _SLOW_SECONDS + ANSWER_SECONDS)
        return [connection.statuses(1, 1.0)[0] for connection in connections]


@hostile()
def endless_body(target: Target) -> list[int]:
    """Sends chunks without an end, as fast as the server reads."""
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    with Connection(target.port) as connection:
        connection.send(head)
        for _ in range(2 * _MAX_BODY_BYTES >> 20):
            if not connection.send(chunk):
                break
        return connection.statuses()


@hostile(TAKEN)
def never_read(target: Target) -> list[int]:
    """Sends requests without reading the responses."""
    status = request("/metrics", headers=[("Authorization", f"Bearer {KEY}")], method="GET")
    with ExitStack() as stack:
        with suppress(OSError):
            for _ in range(4):
                connection = stack.enter_context(Connection(target.port))
                connection.send((post(target.row.rest_body()) + status) * 500)
        time.sleep(_GONE_SECONDS)
    return []


@hostile()
def huge_head(target: Target) -> list[int]:
    """Sends an extremely long header, path or method, or thousands of headers."""
    good = post(target.row.rest_body())
    long, many = b"x" * (2 << 20), b"".join(b"X-%d: y\r\n" % number for number in range(20_000))
    changed = target.chance.choice(
        [
            good.replace(b"Host: ", b"Host: " + long),
            good.replace(b"Host: siege", many + b"Host: siege"),
            good.replace(b"/v1/", b"/v1/" + long),
            good.replace(b"POST", long),
        ]
    )
    return target.send_raw(changed)


@hostile()
def bad_chunks(target: Target) -> list[int]:
    """Sends chunks with invalid, negative or huge sizes."""
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    size = target.chance.choice([b"-1", b"xyz", b"f" * 40, b"5;" + b"x" * 100_000, b"", b"0x5"])
    return target.send_raw(head + size + b"\r\nhello\r\n0\r\n\r\n")


@hostile()
def two_lengths(target: Target) -> list[int]:
    """Sends two different lengths, or a length and chunks, as in request smuggling."""
    more = target.chance.choice(
        ["Content-Length: 3", "Content-Length: +5", "Transfer-Encoding: chunked"]
    )
    good = post(target.row.rest_body())
    return target.send_raw(good.replace(b"Host: siege", f"Host: siege\r\n{more}".encode()))


@hostile()
def no_http(target: Target) -> list[int]:
    """Sends TLS, HTTP/2, invalid HTTP, or unknown paths and methods."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + target.chance.randbytes(500)
    return target.send_raw(
        target.chance.choice(
            [
                hello,
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + target.chance.randbytes(100),
                b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /v1/models/%00%ff/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
                b"DELETE /v1/models/siege HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
                b"POST " + PREDICT.encode() + b" HTTP/1.1\nHost: x\nContent-Length: -5\n\n",
            ]
        )
    )


@hostile()
def wrong_key(target: Target) -> list[int]:
    """Sends API keys that are wrong, empty, long or not text."""
    key = target.chance.choice(["", "x", "Bearer", "\xff" * 100, "x" * 30_000])
    body, where = target.row.rest_body(), target.chance.choice(["Authorization", "X-API-Key"])
    return target.send_raw(request(PREDICT, body, [(where, key)]))


# Ids and tensors.


@hostile(TAKEN)
def huge_id(target: Target) -> list[int]:
    """Sends ids of 60 KB or 10 MB, or with invalid characters."""
    head, tail = target.row.tensors()
    name = target.chance.choice(["x" * 60_000, "\xff" * 100, "a\tb"])
    named = json.dumps({"id": "x" * (10 << 20), **json.loads(head)}).encode()
    return [
        target.predict(target.row.rest_body(), ("X-Request-Id", name)),
        *target.send_raw(infer(named, tail)),
    ]


@hostile()
def lying_shape(target: Target) -> list[int]:
    """Sends a tensor whose shape does not match its values."""
    shapes: list[Any] = [
        [1 << 40],
        [-1],
        [0],
        [1] * 10_000,
        [1 << 32, 1 << 32],
        [2],
        [1.5],
        "x",
        {},
    ]
    size = tensor("size", "FP32", [1.0], target.chance.choice(shapes))
    row = target.row.instance()
    others = [tensor("photo", data=[row["photo"]["b64"]]), tensor("colour", data=["red"])]
    return [target.infer([size, *others])]


@hostile()
def lying_length(target: Target) -> list[int]:
    """Sends more or fewer bytes after the JSON than the JSON declares."""
    head, tail = target.row.tensors()
    (photo, *others) = json.loads(head)["inputs"]
    declared = target.chance.choice([len(tail) + 1, 1 << 40, -1, 0, 1 << 70, "x"])
    lying = {**photo, "parameters": {"binary_data_size": declared}}
    prefix = target.chance.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b""])
    length = target.chance.choice(["-1", "x", f"{1 << 40}", f"{len(head) + len(tail) + 1}"])
    return [
        target.infer([lying, *others], tail),
        target.infer([photo, *others], prefix + tail[4:]),
        *target.send_raw(infer(head, tail, length)),
    ]


@hostile()
def wrong_tensor(target: Target) -> list[int]:
    """Sends tensors with a wrong type or name, duplicates, or thousands of tensors."""
    photo = tensor("photo", data=["x"])
    wrong: list[list[Any]] = [
        [tensor("photo", "FP64", [1.0])],
        [photo, tensor("size", "FP8", [1.0]), tensor("colour", data=["red"])],
        [photo] * 3,
        [tensor(f"t{number}", "FP32", [1.0]) for number in range(20_000)],
        [tensor("photo", data=[[["x"]]]), tensor("size", "FP32", [1e400])],
        [{}] * 100_000,
        [],
    ]
    return [target.infer(target.chance.choice(wrong))]


# Disconnecting clients, and thousands of connections.


@hostile()
def vanishing_clients(target: Target) -> list[int]:
    """Sends requests from 40 clients that disconnect before the response."""
    body = post(instances([target.row.instance()] * target.chance.choice([1, 64, 512])))
    with suppress(OSError):
        for _ in range(40):
            with Connection(target.port) as connection:
                connection.send(body[: target.chance.choice([len(body), len(body) // 2])])
                connection.reset()
    return []


@hostile()
def shut_after_asking(target: Target) -> list[int]:
    """Sends a body that ends before its declared length."""
    complete = post(target.row.rest_body())
    with Connection(target.port) as connection:
        connection.send(complete[: target.chance.randrange(1, len(complete) - 1)])
        connection.close_sending()
        return connection.statuses()


@hostile()
def many_connections(target: Target) -> list[int]:
    """Opens 3,000 connections without sending anything."""
    with ExitStack() as stack:
        with suppress(OSError):  # The server may refuse connections.
            for _ in range(3000):
                stack.enter_context(Connection(target.port))
        time.sleep(_GONE_SECONDS)
    return []


@hostile()
def connections_that_come_and_go(target: Target) -> list[int]:
    """Opens 2,000 connections and closes them immediately."""
    with suppress(OSError):
        for _ in range(2000):
            with Connection(target.port) as connection:
                connection.reset()
    return []
