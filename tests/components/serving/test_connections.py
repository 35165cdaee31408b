"""What comes over one connection: in pieces, one behind the other, and as few clients send it."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
from running_server import running
from served_trips import Pushed
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from components.serving.server.app import make_config
from components.serving.server.options import ServeOptions
from trainer_module.errors import InternalError

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server(pushed: Pushed) -> Iterator[str]:
    with running(ServeOptions("trips", pushed.serving, body_seconds=2)) as address:
        yield address


@pytest.fixture
def body(asked: Rows) -> bytes:
    return json.dumps({"instances": asked[:2]}).encode()


@contextmanager
def connected(server: str) -> Iterator[socket.socket]:
    host, _, port = server.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        yield connection


def post(body: bytes, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"POST /v1/models/trips:predict HTTP/{version}", "Host: x", *headers]
    if not any("chunked" in header for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def read_answer(connection: socket.socket) -> tuple[HTTPResponse, Any]:
    answer = HTTPResponse(connection)
    answer.begin()
    return answer, json.loads(answer.read())


def test_pieces_chunks_and_a_whole_are_answered_alike(server: str, body: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(post(body))
        answer, right = read_answer(connection)
        assert (answer.status, len(right["predictions"])) == (200, 2)
        whole = post(body)
        head = whole.index(b"\r\n\r\n") + 4
        for cuts in ((10, head - 2), (head,), (head + 5, head + 60)):
            for start, end in zip((0, *cuts), (*cuts, len(whole)), strict=True):
                connection.sendall(whole[start:end])
                time.sleep(0.02)
            assert read_answer(connection)[1] == right
        chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (7, body[:7], len(body) - 7, body[7:])
        connection.sendall(post(chunks, "Transfer-Encoding: chunked"))
        assert read_answer(connection)[1] == right
        connection.sendall(post(body, "Expect: 100-continue")[: -len(body)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert read_answer(connection)[1] == right


def test_requests_behind_each_other_are_answered_in_order(server: str, body: bytes) -> None:
    live = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: 2\r\n\r\n"
    wrong = post(b"{}", "X-Request-Id: 3")
    with connected(server) as connection:
        first, last = (post(body, f"X-Request-Id: {name}") for name in (1, 4))
        connection.sendall(first + live + wrong + last)
        received = b""
        while received.count(b"x-request-id") < 4 or not received.endswith(b"]}"):
            received += connection.recv(65536)
    assert re.findall(rb"x-request-id: (\d)", received) == [b"1", b"2", b"3", b"4"]
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200", b"400", b"200"]


@pytest.mark.parametrize(
    ("version", "headers"), [("1.1", ["Connection: close"]), ("1.0", []), ("1.0", ["X: y"])]
)
def test_connection_ends_where_the_client_asks_for_it(
    server: str, body: bytes, version: str, headers: list[str]
) -> None:
    with connected(server) as connection:
        connection.sendall(post(body, *headers, version=version))
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.getheader("connection") == "close"
        assert len(json.loads(answer.read())["predictions"]) == 2
        assert connection.recv(1) == b""


def test_client_that_goes_early_is_no_trouble(server: str, body: bytes) -> None:
    for end in (20, -5, None):
        with connected(server) as connection:
            connection.sendall(post(body)[:end])
    with connected(server) as connection:
        connection.sendall(post(body))
        assert read_answer(connection)[0].status == 200


def test_head_without_end_is_refused_and_costs_no_memory(server: str, body: bytes) -> None:
    begin = post(body).partition(b"\r\n\r\n")[0]
    for head in (b"GET /", begin + b"\r\nX-A: ", begin + b"\r\nTransfer-Encoding: chunked"):
        with connected(server) as connection:
            connection.sendall(head)
            received = b""
            try:
                for _ in range(64):
                    connection.sendall(b"a" * (1 << 20))
                received = connection.recv(1000)
            except OSError:  # It is closed while there is more to come.
                continue
            assert received.split()[1] in (b"431", b"400")
            raise AssertionError("64 MiB of a head were taken")


def test_head_that_is_large_or_comes_in_time_is_taken(server: str, body: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(post(body, f"X-A: {'a' * 60_000}"))
        assert read_answer(connection)[0].status == 200
        head = post(body, f"X-A: {'a' * 200_000}")
        for start in range(0, 80_000, 10_000):
            connection.sendall(head[start : start + 10_000])
            time.sleep(0.02)
        answer, said = read_answer(connection)
        assert (answer.status, said["error"]) == (
            431, "the head of the request is larger than 65,536 bytes."
        )  # fmt: skip


@pytest.mark.parametrize("begin", [b"POST /v1/models/trips:pre", b"\r\n"])
def test_head_that_does_not_come_is_given_up(server: str, begin: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(begin)
        answer, said = read_answer(connection)
        assert (answer.status, said["error"]) == (408, "the head did not come within 2 seconds.")
        assert connection.recv(1) == b""


def test_connection_that_nothing_is_asked_by_ends_without_words(server: str) -> None:
    with connected(server) as connection:
        assert connection.recv(100) == b""


def test_offer_of_another_protocol_is_passed_over(server: str, body: bytes) -> None:
    """As Java's client makes it with each request that is not over TLS."""
    upgrade = "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQA"
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with connected(server) as connection:
        connection.sendall(post(body))
        right = read_answer(connection)[1]
        connection.sendall(post(body, *upgrade))
        assert read_answer(connection)[1] == right
        whole = post(chunks, "Transfer-Encoding: chunked", *upgrade)
        for start in range(0, len(whole), 50):
            connection.sendall(whole[start : start + 50])
            time.sleep(0.005)
        assert read_answer(connection)[1] == right
        connection.sendall(post(body, *upgrade) + post(body, "Connection: close"))
        received = b"".join(iter(lambda: connection.recv(65536), b""))
        assert received.count(json.dumps(right, separators=(",", ":")).encode()) == 2
    with connected(server) as connection:
        connection.sendall(b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answer(connection)[0].status == 405


def test_what_is_no_http_is_refused(server: str, body: bytes) -> None:
    for nonsense in (b"\x16\x03\x01", b"POST /v1/models/trips:predict\r\n\r\n"):
        with connected(server) as connection:
            connection.sendall(nonsense + b"\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400 Bad Request")
    length = f"Content-Length: {len(body) - 3}"
    with connected(server) as connection:  # Two lengths: a proxy may have believed the other.
        connection.sendall(post(body, length))
        assert connection.recv(100).startswith(b"HTTP/1.1 400 Bad Request")


def test_row_with_another_column_is_named(server: str, asked: Rows) -> None:
    other = {("companies" if name == "company" else name): v for name, v in asked[1].items()}
    answer = requests.post(
        f"{server}/v1/models/trips:predict", json={"instances": [asked[0], other]}, timeout=60
    )
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("instances[1] has 'companies', which the model does")


def test_clients_are_told_when_to_come_again_while_nothing_is_loaded(
    tmp_path: Path, body: bytes
) -> None:
    with running(ServeOptions("trips", tmp_path, waits=True)) as server:
        url = f"{server}/v1/models/trips"
        for answer in (
            requests.post(f"{url}:predict", data=body, timeout=60),
            requests.post(f"{url}:predict", data=iter([body]), timeout=60),
            requests.get(f"{url}/metadata", timeout=60),
            requests.get(f"{server}/v2/models/trips", timeout=60),
        ):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json() == {"error": "no version is loaded yet: come again later."}


def test_a_client_that_is_idle_over_tls_does_not_hold_up_the_end(
    pushed: Pushed, asked: Rows, tmp_path: Path
) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    pair.write_to_path(tmp_path / "pair.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    both = tmp_path / "pair.pem"
    options = ServeOptions("trips", pushed.serving, certificate=both, private_key=both)
    with requests.Session() as session:
        with running(options) as address:
            url = f"{address}/v1/models/trips:predict"
            ca = str(tmp_path / "ca.pem")
            given = session.post(url, json={"instances": asked[:2]}, timeout=30, verify=ca)
            assert (address[:5], given.status_code) == ("https", 200)
            began = time.monotonic()
        # uvloop waits half a minute for a client to say that it has seen the end, too.
        assert time.monotonic() - began < 10


def test_a_server_whose_limits_may_not_hold_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: Any = None
    repository: Any = None
    start = HttpToolsProtocol._start_asgi_task
    monkeypatch.setattr(HttpToolsProtocol, "_start_asgi_task", lambda *given: start(*given))
    with pytest.raises(InternalError, match=r"limits of connections cannot be relied on .*_start"):
        make_config(options, repository)
