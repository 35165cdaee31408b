"""A server of pictures refuses those that would end it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests

from components.serving.server.protocols.open_inference import HEADER_LENGTH, to_tensors
from tests.support.served_pictures import (
    chunk,
    encode,
    example,
    png,
    push_pictures,
    top_down_bmp,
)
from tests.support.servers import free_port, serve_process, wait_until_ready

pytestmark = pytest.mark.slow

GOOD = encode()
BOMB = png(12_000, 12_000)
"""140 KB."""
TEXTS = png(8, 8, *[chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(7_900_000)))] * 400)
"""Of 64 pixels, whose texts are 3 GB."""


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return push_pictures(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def address(version: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log, port = tmp_path_factory.mktemp("log") / "log.txt", free_port()
    with serve_process(log, port, "--name", "photos", "--model", version) as process:
        wait_until_ready(port, process)
        yield f"http://127.0.0.1:{port}"
        assert process.poll() is None, log.read_text()


def by_rows(address: str, *photos: bytes) -> requests.Response:
    rows = [{"photo": {"b64": base64.b64encode(photo).decode()}} for photo in photos]
    return requests.post(
        f"{address}/v1/models/photos:predict", json={"instances": rows}, timeout=60
    )


def by_examples(address: str, *photos: bytes) -> requests.Response:
    rows = [{"b64": base64.b64encode(example(photo)).decode()} for photo in photos]
    body = {"signature_name": "serving_default", "instances": rows}
    return requests.post(f"{address}/v1/models/photos:predict", json=body, timeout=60)


def by_tensors(address: str, *photos: bytes) -> requests.Response:
    import orjson

    inputs, tail = to_tensors({"photo": np.array(photos, object)})
    head = orjson.dumps({"inputs": inputs})
    headers = {HEADER_LENGTH: str(len(head))}
    url = f"{address}/v2/models/photos/infer"
    return requests.post(url, head + tail, headers=headers, timeout=60)


WAYS = [by_rows, by_examples, by_tensors]


@pytest.mark.parametrize("ask", WAYS)
def test_picture_that_would_crash_the_server_is_refused(ask, address: str) -> None:
    assert ask(address, GOOD, GOOD).ok
    for hostile, reason in (
        (BOMB, "25,000,000"),
        (TEXTS, "compressed texts"),
        (top_down_bmp(), "BMP"),
        (b"GIF89a", "ends within"),
        (encode("WEBP"), "not a PNG"),
    ):
        answer = ask(address, GOOD, hostile)
        assert answer.status_code == 400
        assert "'photo' of row 1 cannot be decoded as a picture" in answer.json()["error"]
        assert reason in answer.json()["error"]
    assert ask(address, GOOD).ok


def test_picture_hidden_from_one_protobuf_parser_is_refused(address: str) -> None:
    """TensorFlow's takes the first kind of a feature, and protobuf the last: an empty list here."""
    feature = _field(1, _field(1, top_down_bmp())) + _field(3, b"")
    entry = _field(1, b"photo") + _field(2, feature)
    body = {"instances": [{"b64": base64.b64encode(_field(1, _field(1, entry))).decode()}]}
    answer = requests.post(f"{address}/v1/models/photos:predict", json=body, timeout=60)
    assert answer.status_code == 400
    assert by_examples(address, GOOD).ok


def _field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message."""
    length, size = b"", len(content)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content
