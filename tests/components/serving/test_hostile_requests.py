"""What one client sends does not take the server from the others: memory, time and the model."""

from __future__ import annotations

import gc
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
from typing import Any, cast

import numpy as np
import psutil
import pytest
import requests

from components.serving.model import Model
from components.serving.requests import Arrays
from components.serving.server.batching import QUICK_SECONDS
from components.serving.server.options import ServeOptions, check_options
from components.serving.server.reading import PredictionRequest, estimate_json_memory
from components.serving.server.replies import Reply, ResultSlice
from tests.support.served_trips import Pushed
from tests.support.servers import asked_of, raw_call, running, wait_until
from trainer_module.errors import ConfigError

Rows = list[dict[str, Any]]
MEGABYTE = 1 << 20
PREDICT, INFER = "/v1/models/trips:predict", "/v2/models/trips/infer"


class HeldModel:
    """A model that answers while it is let; with how many rows it was asked for at once."""

    def __init__(self, model: Model) -> None:
        self.model, self.batches = model, list[int]()
        self.is_let, self.is_asked = threading.Event(), threading.Event()
        self.is_let.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        self.batches.append(len(columns["fare"]))
        self.is_asked.set()
        assert self.is_let.wait(60)
        time.sleep(QUICK_SECONDS)  # So it is not asked in the thread of the event loop.
        return self.model.predict(columns)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.is_let.clear()
        self.is_asked.clear()
        self.batches.clear()
        try:
            yield
        finally:
            self.is_let.set()


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


@pytest.fixture(scope="module")
def impatient_server(options: ServeOptions, held_model: HeldModel) -> Iterator[str]:
    with running(replace(options, answer_seconds=0.5), held_model) as address:
        yield address


@pytest.fixture
def body(asked: Rows) -> bytes:
    return json.dumps({"instances": asked[:2]}).encode()


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


def column_tensors(rows: Rows) -> list[dict[str, Any]]:
    kinds = {"company": "BYTES", "tags": "BYTES"}
    return [
        {
            "name": name,
            "datatype": kinds.get(name, "FP64"),
            "shape": [len(rows), 0] if name == "tags" else [len(rows)],
            "data": [] if name == "tags" else [row[name] for row in rows],
        }
        for name in rows[0]
    ]


def refused(asked: Rows) -> Iterator[tuple[str, bytes, int]]:
    """Requests that are refused in all places where one can be: the path, the body, the status."""
    row, padding = {**asked[1], "tags": []}, " " * 100_000
    for content, status in (
        ({}, 400),
        ({"instances": [{**row, "fares": 1}]}, 400),
        ({"instances": [{**row, "fare": "x"}]}, 400),
        ({"inputs": {name: ["x", []] for name in row}}, 400),
        ({"instances": [{"b64": "iVBORw0KGgo="}]}, 400),
        ({"instances": [row] * 4001}, 413),
        ({"instances": [row] * 3000 + [{**row, "fare": "x"}]}, 400),
        ({"instances": [{**row, "tags": ["a"] * 100_000}, *[row] * 90]}, 413),
    ):
        yield PREDICT, (json.dumps(content) + padding).encode(), status
    tensors = column_tensors([row])
    for content, status in (
        ({"inputs": [{**tensors[0], "shape": [2]}, *tensors[1:]]}, 400),
        ({"inputs": tensors, "outputs": [{"name": "nothing"}]}, 400),
        ({"inputs": tensors, "outputs": [{"name": "class"}, {"name": "class"}]}, 400),
        ({"inputs": tensors, "id": "x" * 10_000}, 400),
        ({"inputs": [{**one, "shape": [1] * 100} for one in tensors]}, 400),
    ):
        yield INFER, (json.dumps(content) + padding).encode(), status
    yield "/v1/models/trips:regress", json.dumps({"examples": [row]}).encode(), 400
    context = {"examples": [{}] * 9000, "context": {"company": "x" * 10_000}}
    yield "/v1/models/trips:classify", json.dumps(context).encode(), 413
    yield (
        "/v1/models/trips:classify",
        json.dumps({"examples": [1], "context": {"x": 1}}).encode(),
        400,
    )
    yield "/v1/models/others:predict", b"{}", 404
    yield PREDICT, b"[" * 2000, 400
    yield PREDICT, b'{"instances": [NaN, 1}', 400


def left_behind() -> list[Any]:
    """Errors and requests in memory."""
    kinds = (PredictionRequest, Exception)
    return [one for one in gc.get_objects() if isinstance(one, kinds)]


def test_refused_requests_leave_nothing_in_memory(
    server: str, impatient_server: str, asked: Rows, held_model: HeldModel
) -> None:
    corpus = list(refused(asked))
    for path, content, status in corpus:  # What is made once, such as caches, is made here.
        assert status_of(server, path, content) == status, content[:200]
    gc.collect()
    gc.disable()
    try:
        before = {id(one) for one in left_behind()}
        for path, content, status in corpus:
            for chunked in (False, True):
                assert status_of(server, path, content, chunked=chunked) == status
        packed = gzip.compress(b" " * (9 * MEGABYTE))
        assert status_of(server, PREDICT, packed, "Content-Encoding: gzip") == 413
        assert status_of(server, PREDICT, packed[:-9], "Content-Encoding: gzip") == 413
        assert status_of(server, PREDICT, b"x", "Content-Encoding: deflate") == 400
        assert status_of(server, PREDICT, b"", "Content-Encoding: br") == 415
        with send(server, PREDICT, b"{", lacks=9) as one:
            assert one.recv(100).startswith(b"HTTP/1.1 408")
        with held_model.held():
            content = json.dumps({"instances": asked[:1]}).encode()
            for chunked in (False, True):
                assert status_of(impatient_server, PREDICT, content, chunked=chunked) == 504
        wait_until(lambda: not [one for one in left_behind() if id(one) not in before])
    finally:
        gc.enable()


def test_requests_that_are_given_up_are_not_computed(
    impatient_server: str, body: bytes, held_model: HeldModel
) -> None:
    with held_model.held():
        first = send(impatient_server, PREDICT, body)
        assert held_model.is_asked.wait(30)
        others = [send(impatient_server, PREDICT, body, chunked=bool(n % 2)) for n in range(5)]
        for one in (first, *others):
            assert one.recv(100).startswith(b"HTTP/1.1 504")
            one.close()
        assert metric(impatient_server, "queue_rows") == 0
    assert status_of(impatient_server, PREDICT, body) == 200
    assert held_model.batches == [2, 2], "the five are not asked"


def test_requests_whose_client_has_gone_are_not_computed(
    server: str, body: bytes, held_model: HeldModel
) -> None:
    with held_model.held():
        first = send(server, PREDICT, body)
        assert held_model.is_asked.wait(30)
        others = [send(server, PREDICT, body, chunked=bool(n % 2)) for n in range(5)]
        wait_until(lambda: metric(server, "queue_rows") == 10)
        for one in others:
            one.close()
        wait_until(lambda: metric(server, "queue_rows") == 0)
    assert first.recv(100).startswith(b"HTTP/1.1 200")
    first.close()
    assert held_model.batches == [2]


class Faulty:
    """A model that fails for negative fares; with how many rows it was asked."""

    def __init__(self, model: Model) -> None:
        self.interface, self.batches = model.interface, list[int]()

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        self.batches.append(len(columns["fare"]))
        if (columns["fare"] < 0).any():
            raise ValueError("a fare is negative")
        return {"twice": columns["fare"] * 2}


def call(model: Model, requested: Sequence[Rows]) -> tuple[Faulty, list[ResultSlice | Reply]]:
    faulty = Faulty(model)
    return faulty, raw_call(faulty)([asked_of(rows) for rows in requested])


def test_one_request_of_sixteen_that_fails_costs_few_questions(model: Model, asked: Rows) -> None:
    requested = [[{**asked[n], "fare": -1.0 if n == 11 else n}] for n in range(16)]
    faulty, answers = call(model, requested)
    assert len(faulty.batches) == 9, "not one for each request"
    for place, answer in enumerate(answers):
        if place == 11:
            assert isinstance(answer, Reply)
            assert answer.status == 500
        else:
            assert isinstance(answer, ResultSlice)
            assert answer.arrays["twice"].tolist() == [2 * place]


def test_long_lists_are_not_joined_with_those_of_others(model: Model, asked: Rows) -> None:
    long = [{**asked[0], "tags": ["a"] * 100_000}]
    faulty, answers = call(model, [long, *([row] for row in asked[1:100])])
    assert all(isinstance(answer, ResultSlice) for answer in answers)
    assert max(faulty.batches) < 100
    _, (answer,) = call(model, [long + asked[1:100]])
    assert isinstance(answer, Reply)
    assert answer.status == 413
    assert b"send rows with long lists in separate requests" in answer.body


def assert_same(found: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]]) -> None:
    """Batches of other sizes add up in another order on some processors."""
    assert [row["class"] for row in found] == [row["class"] for row in right]
    scores, others = ([row["scores"] for row in rows] for rows in (found, right))
    np.testing.assert_allclose(scores, others, rtol=1e-5)


def test_many_rows_are_asked_in_parts_between_which_others_are_answered(
    server: str, asked: Rows, held_model: HeldModel
) -> None:
    many = (asked * 15)[:3000]
    right = ask(server, {"instances": asked[:50]}).json()["predictions"]
    with held_model.held():
        found: list[Any] = []
        asking = threading.Thread(
            target=lambda: found.append(ask(server, {"instances": many}).json()["predictions"])
        )
        asking.start()
        assert held_model.is_asked.wait(30)
        other = send(server, PREDICT, json.dumps({"instances": asked[:3]}).encode())
        wait_until(lambda: metric(server, "queue_rows") == 3)
    assert other.recv(100).startswith(b"HTTP/1.1 200")
    other.close()
    asking.join(60)
    assert len(found[0]) == 3000
    assert_same(found[0][:50], right)
    assert held_model.batches.index(3) == 1, "after the first part"
    assert max(held_model.batches) <= 1024
    columns = {name: [row[name] for row in many] for name in many[0]}
    outputs = ask(server, {"inputs": columns}).json()["outputs"]
    np.testing.assert_allclose([row["scores"] for row in found[0]], outputs["scores"], rtol=1e-5)
    examples = {"examples": many[:2500]}
    results = ask(server, examples, "/v1/models/trips:classify").json()["results"]
    others = [row["scores"][1] for row in found[0][:2500]]
    np.testing.assert_allclose([row[1][1] for row in results], others, rtol=1e-5)
    tensors = {"inputs": column_tensors([{**row, "tags": []} for row in many])}
    answer = ask(server, tensors, INFER).json()
    assert answer["outputs"][0]["shape"][0] == 3000


def test_large_bodies_are_read_in_another_process(server: str, asked: Rows) -> None:
    large = [{**row, "company": row["company"] or ""} for row in (asked * 20)[:3900]]
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


def test_texts_are_no_structure_in_the_memory_that_json_takes() -> None:
    plain = json.dumps(["abcdefgh" * 1000]).encode()
    texts = json.dumps(['{[,\\"[{' * 1000, "é{,\\\\"]).encode()
    assert estimate_json_memory(plain) < 8 * len(plain)
    assert estimate_json_memory(texts) < 8 * len(texts)
    assert estimate_json_memory(b"[" + b"{}," * 1000) > 100 * 3000


@pytest.fixture
def patient_server(options: ServeOptions, held_model: HeldModel) -> Iterator[str]:
    with running(replace(options, body_seconds=20), held_model) as address:
        yield address


def test_requests_beyond_the_memory_are_told_to_come_again(
    patient_server: str, body: bytes
) -> None:
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


class Wide:
    """A model of which the answer for a row is 100 KB."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        return {"scores": np.full((len(columns["fare"]), 20_000), 0.25, np.float32)}


@pytest.mark.parametrize("chunked", [False, True], ids=["shorter way", "by ASGI"])
def test_answers_that_are_not_read_take_room(
    options: ServeOptions, model: Model, asked: Rows, chunked: bool
) -> None:
    content = json.dumps({"instances": asked[:70]}).encode()
    patient = replace(options, body_seconds=20)  # With clients that do not read.
    with running(patient, cast("Model", Wide(model))) as server:
        begun, statuses = [], []
        for _ in range(8):
            begun.append(send(server, PREDICT, content, chunked=chunked))
            statuses.append(begun[-1].recv(12)[9:])
        assert statuses.count(b"200") in (4, 5), "7 MB each, and 36 MB for all"
        assert set(statuses) == {b"200", b"503"}
        for one in begun:
            one.close()
        wait_until(lambda: status_of(server, PREDICT, content, chunked=chunked) == 200)


def test_memory_has_to_suffice_for_a_request(pushed: Pushed) -> None:
    options = ServeOptions("trips", pushed.serving, memory_bytes=100 * MEGABYTE)
    with pytest.raises(ConfigError, match="--memory-megabytes 100 is too little"):
        check_options(options, False)
    check_options(replace(options, max_bytes=20 * MEGABYTE), False)
