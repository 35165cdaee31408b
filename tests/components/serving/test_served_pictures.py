"""A server of pictures, within the memory of deploy/kubernetes/server.yaml."""

from __future__ import annotations

import base64
import resource
import subprocess
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests
import yaml

from components.serving.model import load_model
from components.serving.requests import EXAMPLES_INPUT, measure_pictures
from components.serving.server.protocols.open_inference import HEADER_LENGTH, to_tensors
from tests.support.served_pictures import (
    INTERFACE,
    chunk,
    encode,
    example,
    png,
    push_pictures,
    top_down_bmp,
)
from tests.support.served_trips import ROOT
from tests.support.servers import free_port, serve_process, wait_until_ready
from trainer_module.errors import DataError

GOOD = encode()
BOMB = png(12_000, 12_000)
"""140 KB."""
LARGE = "it is a PNG of 12,000 x 12,000 pixels, more than the 25,000,000 that max_pixels allows"
TEXTS = png(8, 8, *[chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(7_900_000)))] * 400)
"""Of 64 pixels, whose texts are 3 GB."""
MANIFEST = ROOT / "deploy" / "kubernetes" / "server.yaml"


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return push_pictures(tmp_path_factory.mktemp("photos"))


def limit_memory(process: subprocess.Popen[bytes]) -> None:
    """Gives a process as much data as the shipped manifest gives it memory."""
    documents = yaml.safe_load_all(MANIFEST.read_text())
    pod = next(d for d in documents if d["kind"] == "Deployment")["spec"]["template"]["spec"]
    said = pod["containers"][0]["resources"]["limits"]["memory"]
    most = int(said.removesuffix("Gi")) << 30
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (most, most))


@pytest.fixture(scope="module")
def address(version: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log, port = tmp_path_factory.mktemp("log") / "log.txt", free_port()
    with serve_process(log, port, "--name", "photos", "--model", version) as process:
        limit_memory(process)
        wait_until_ready(port, process)
        yield f"http://127.0.0.1:{port}"
        assert process.poll() is None, log.read_text()


def by_rows(address: str, *photos: bytes) -> requests.Response:
    rows = [{"photo": {"b64": base64.b64encode(photo).decode()}} for photo in photos]
    return requests.post(
        f"{address}/v1/models/photos:predict", json={"instances": rows}, timeout=60
    )


def by_columns(address: str, *photos: bytes) -> requests.Response:
    values = [{"b64": base64.b64encode(photo).decode()} for photo in photos]
    body = {"inputs": {"photo": values}}
    return requests.post(f"{address}/v1/models/photos:predict", json=body, timeout=60)


def by_examples(address: str, *photos: bytes) -> requests.Response:
    rows = [{"b64": base64.b64encode(example(photo)).decode()} for photo in photos]
    body = {"signature_name": "serving_default", "instances": rows}
    return requests.post(f"{address}/v1/models/photos:predict", json=body, timeout=60)


def by_tensors(address: str, *photos: bytes, name: str = "photo") -> requests.Response:
    import orjson

    inputs, tail = to_tensors({name: np.array(photos, object)})
    head = orjson.dumps({"inputs": inputs})
    headers = {HEADER_LENGTH: str(len(head))}
    url = f"{address}/v2/models/photos/infer"
    return requests.post(url, head + tail, headers=headers, timeout=60)


def by_tensors_of_examples(address: str, *photos: bytes) -> requests.Response:
    return by_tensors(address, *map(example, photos), name=EXAMPLES_INPUT)


WAYS = [by_rows, by_columns, by_examples, by_tensors, by_tensors_of_examples]


@pytest.mark.parametrize("ask", WAYS)
def test_picture_that_would_end_the_server_is_refused(ask, address: str) -> None:
    assert ask(address, GOOD, GOOD).ok
    for hostile, reason in (
        (BOMB, LARGE),
        (TEXTS, "its compressed texts may have megabytes"),
        (top_down_bmp(), "it is a BMP whose rows are stored from the top"),
        (b"GIF89a", "it ends within its header"),
        (encode("WEBP"), "and is not a PNG, JPEG, GIF or BMP"),
    ):
        answer = ask(address, GOOD, hostile)
        assert answer.status_code == 400
        assert "'photo' of row 1 cannot be decoded as a picture" in answer.json()["error"]
        assert reason in answer.json()["error"]
    assert ask(address, GOOD).ok


def test_many_at_once_end_no_server(address: str) -> None:
    """Large ones that are allowed wait for each other; others are refused, each by itself."""
    large = encode("JPEG", (5000, 5000))
    photos = [GOOD, BOMB, GOOD, TEXTS, large] * 4
    with ThreadPoolExecutor(len(photos)) as pool:
        answers = list(pool.map(lambda photo: by_rows(address, photo), photos))
    assert [answer.status_code for answer in answers] == [200, 400, 200, 400, 200] * 4
    assert by_rows(address, *[large] * 4).json() == {"predictions": [1.0] * 4}
    refusal = by_rows(address, *[large] * 5)
    assert refusal.status_code == 413
    assert "the pictures have 125,000,000 pixels in total" in refusal.json()["error"]


def test_what_one_parser_of_examples_sees_another_does_not_miss(address: str) -> None:
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


def test_model_decodes_a_picture_only_if_it_was_measured(version: Path) -> None:
    """Whoever asks a model: there is no way around."""
    model = load_model(version)
    with pytest.raises(DataError, match="'photo' of row 0 cannot be decoded"):
        model.predict({"photo": np.array([top_down_bmp()], object)})
    photos = np.array([GOOD, encode("JPEG", (4000, 5000)), encode("GIF", (4000, 4000))], object)
    answers = model.predict({"photo": photos})["value"]
    np.testing.assert_allclose(answers, [1, 1, 1], atol=0.01)
    measured = measure_pictures({"photo": photos}, INTERFACE, are_examples=False)
    assert measured is not None
    assert [pixels for _, pixels in measured.portions()] == [20_000_016, 32_000_000]
