"""One client cannot take memory, time or the model from the others."""

from __future__ import annotations

import gzip
import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
import requests

from components.serving.model import Model
from components.serving.requests import Arrays
from components.serving.server.batching import QUICK_SECONDS
from components.serving.server.options import ServeOptions, check_options
from components.serving.server.reading import estimate_json_memory
from tests.support.served_trips import Pushed
from tests.support.servers import running, wait_until
from trainer_module.errors import ConfigError

Rows = list[dict[str, Any]]
MEGABYTE = 1 << 20
PREDICT = "/v1/models/trips:predict"


class HeldModel:
    """A model that can be held, and counts the rows of each call."""

    def __init__(self, model: Model) -> None:
        self.model, self.batches = model, list[int]()
        self.is_open, self.is_called = threading.Event(), threading.Event()
        self.is_open.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        self.batches.append(len(columns["fare"]))
        self.is_called.set()
        assert self.is_open.wait(60)
        time.sleep(QUICK_SECONDS)  # So it is not called in the thread of the event loop.
        return self.model.predict(columns)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.is_open.clear()
        self.is_called.clear()
        self.batches.clear()
        try:
            yield
        finally:
            self.is_open.set()


@pytest.fixture(scope="module")
def held_model(model: Model) -> HeldModel:
    return HeldModel(model)


@pytest.fixture(scope="module")
def options(pushed: Pushed) -> ServeOptions:
    return ServeOptions(
        "trips",
        pushed.serving,
        max_bytes=8 * MEGABYTE,
        max_rows=4000,
        memory_bytes=48 * MEGABYTE,
        body_seconds=0.5,
    )


@pytest.fixture(scope="module")
def server(options: ServeOptions, held_model: HeldModel) -> Iterator[str]:
    with running(options, held_model) as address:
        yield address


@pytest.fixture
def body(instances: Rows) -> bytes:
    return json.dumps({"instances": instances[:2]}).encode()


def send(
    server: str, path: str, body: bytes, *headers: str, chunked: bool = False, lacks: int = 0
) -> socket.socket:
    """Sends a request without its last bytes, and leaves its answer."""
    host, _, port = server.removeprefix("http://").partition(":")
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body) + lacks}"
    lines = [f"POST {path} HTTP/1.1", "Host: x", length, *headers]
    connection = socket.create_connection((host, int(port)), timeout=30)
    content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    return connection


def status_of(server: str, path: str, body: bytes, *headers: str, chunked: bool = False) -> int:
    with send(server, path, body, *headers, chunked=chunked) as connection:
        return int(connection.recv(100).split()[1])


def ask(server: str, content: Any, path: str = PREDICT) -> requests.Response:
    return requests.post(server + path, json=content, timeout=60)


def metric(server: str, name: str) -> float:
    text = requests.get(f"{server}/metrics", timeout=30).text
    found = re.search(rf"^scopeline_{name} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_requests_of_closed_connections_are_not_computed(
    server: str, body: bytes, held_model: HeldModel
) -> None:
    with held_model.held():
        first = send(server, PREDICT, body)
        assert held_model.is_called.wait(30)
        others = [send(server, PREDICT, body, chunked=bool(n % 2)) for n in range(5)]
        wait_until(lambda: metric(server, "queue_rows") == 10)
        for one in others:
            one.close()
        wait_until(lambda: metric(server, "queue_rows") == 0)
    assert first.recv(100).startswith(b"HTTP/1.1 200")
    first.close()
    assert held_model.batches == [2]


def assert_same(found: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]]) -> None:
    """Batches of other sizes add up in another order on some processors."""
    assert [row["class"] for row in found] == [row["class"] for row in right]
    scores, others = ([row["scores"] for row in rows] for rows in (found, right))
    np.testing.assert_allclose(scores, others, rtol=1e-5)


def test_large_request_does_not_block_small_ones(
    server: str, instances: Rows, held_model: HeldModel
) -> None:
    many = (instances * 15)[:3000]
    right = ask(server, {"instances": instances[:50]}).json()["predictions"]
    with held_model.held():
        found: list[Any] = []
        asking = threading.Thread(
            target=lambda: found.append(ask(server, {"instances": many}).json()["predictions"])
        )
        asking.start()
        assert held_model.is_called.wait(30)
        other = send(server, PREDICT, json.dumps({"instances": instances[:3]}).encode())
        wait_until(lambda: metric(server, "queue_rows") == 3)
    assert other.recv(100).startswith(b"HTTP/1.1 200")
    other.close()
    asking.join(60)
    assert len(found[0]) == 3000
    assert_same(found[0][:50], right)
    assert held_model.batches.index(3) == 1, "after the first part"
    assert max(held_model.batches) <= 1024


@pytest.mark.slow
def test_large_bodies_are_read_in_another_process(server: str, instances: Rows) -> None:
    large = [{**row, "company": row["company"] or ""} for row in (instances * 20)[:3900]]
    found = ask(server, {"instances": [{**row, "note": 1} for row in large]})
    assert "has 'note', which the model does not take" in found.json()["error"]
    answers = ask(server, {"instances": large}).json()["predictions"]
    assert_same(answers[:50], ask(server, {"instances": large[:50]}).json()["predictions"])
    children = psutil.Process().children()
    (reader,) = [one for one in children if any("reading_process" in a for a in one.cmdline())]
    # More than it may take: objects of 3 bytes, which would be a hundred times as many.
    many = b'{"instances": [%b{}]}' % (b"{}," * (2 * MEGABYTE))
    headers = {"Content-Encoding": "gzip"}
    refusal = requests.post(f"{server}{PREDICT}", gzip.compress(many), headers=headers, timeout=60)
    assert refusal.status_code == 413
    assert "takes too much memory" in refusal.json()["error"]
    reader.kill()
    answers = ask(server, {"instances": large}).json()
    # Unless its death is noticed before the request is handed to it.
    assert "takes too much memory" in answers.get("error", "") or "predictions" in answers
    assert len(ask(server, {"instances": large}).json()["predictions"]) == 3900


def test_estimated_memory_ignores_brackets_in_texts() -> None:
    plain = json.dumps(["abcdefgh" * 1000]).encode()
    texts = json.dumps(['{[,\\"[{' * 1000, "é{,\\\\"]).encode()
    assert estimate_json_memory(plain) < 8 * len(plain)
    assert estimate_json_memory(texts) < 8 * len(texts)
    assert estimate_json_memory(b"[" + b"{}," * 1000) > 100 * 3000


@pytest.fixture
def patient_server(options: ServeOptions, held_model: HeldModel) -> Iterator[str]:
    with running(replace(options, body_seconds=20), held_model) as address:
        yield address


def test_requests_beyond_the_memory_are_answered_503(patient_server: str, body: bytes) -> None:
    server, begun = patient_server, []
    try:
        for _ in range(20):
            begun.append(send(server, PREDICT, b"x" * 3 * MEGABYTE, lacks=1))
        answers = [one.recv(1000) for one in select.select(begun, [], [], 10)[0]]
        late = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
        assert late
        assert all(b"retry-after: 1" in one for one in late)
    finally:
        for one in begun:
            one.close()
    assert status_of(server, PREDICT, body) == 200


def test_memory_limit_below_one_request_is_refused(pushed: Pushed) -> None:
    options = ServeOptions("trips", pushed.serving, memory_bytes=100 * MEGABYTE)
    with pytest.raises(ConfigError, match="--memory-megabytes 100"):
        check_options(options, False)
    check_options(replace(options, max_bytes=20 * MEGABYTE), False)
