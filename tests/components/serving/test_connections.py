"""Requests over one connection: in pieces, at once, half closed, malformed, idle, or too many."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme

from components.serving.server import connections
from components.serving.server.options import ServeOptions
from tests.support import hostile
from tests.support.served_trips import Pushed
from tests.support.servers import running, wait_until

Rows = list[dict[str, Any]]


@pytest.fixture
def body(instances: Rows) -> bytes:
    return json.dumps({"instances": instances[:2]}).encode()


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


@pytest.mark.parametrize(("version", "headers"), [("1.1", ["Connection: close"]), ("1.0", [])])
def test_connection_close_is_obeyed(
    server: str, body: bytes, version: str, headers: list[str]
) -> None:
    with connected(server) as connection:
        connection.sendall(post(body, *headers, version=version))
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.getheader("connection") == "close"
        assert len(json.loads(answer.read())["predictions"]) == 2
        assert connection.recv(1) == b""


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


def test_head_up_to_64_kib_is_accepted(server: str, body: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(post(body, f"X-A: {'a' * 60_000}"))
        assert read_answer(connection)[0].status == 200
        head = post(body, f"X-A: {'a' * 200_000}")
        for start in range(0, 80_000, 10_000):
            connection.sendall(head[start : start + 10_000])
            time.sleep(0.02)
        answer, content = read_answer(connection)
        assert answer.status == 431
        assert "65,536 bytes" in content["error"]


@pytest.mark.parametrize("begin", [b"POST /v1/models/trips:pre", b"\r\n"])
def test_slow_head_is_answered_408(server: str, begin: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(begin)
        assert read_answer(connection)[0].status == 408
        assert connection.recv(1) == b""


def test_idle_connection_is_closed(server: str) -> None:
    with connected(server) as connection:
        assert connection.recv(100) == b""


def test_offered_upgrade_is_ignored(server: str, body: bytes) -> None:
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


def test_bytes_that_are_not_http_are_refused(server: str, body: bytes) -> None:
    for nonsense in (b"\x16\x03\x01", b"POST /v1/models/trips:predict\r\n\r\n"):
        with connected(server) as connection:
            connection.sendall(nonsense + b"\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400 Bad Request")
    length = f"Content-Length: {len(body) - 3}"
    with connected(server) as connection:  # Two lengths: a proxy may have believed the other.
        connection.sendall(post(body, length))
        assert connection.recv(100).startswith(b"HTTP/1.1 400 Bad Request")


def test_server_with_a_certificate_answers_https_and_stops(
    pushed: Pushed, instances: Rows, tmp_path: Path
) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    pair.write_to_path(tmp_path / "pair.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    both = tmp_path / "pair.pem"
    options = ServeOptions("trips", pushed.serving, certificate=both, private_key=both)
    with requests.Session() as session, running(options) as address:
        url = f"{address}/v1/models/trips:predict"
        ca = str(tmp_path / "ca.pem")
        given = session.post(url, json={"instances": instances[:2]}, timeout=30, verify=ca)
        assert (address[:5], given.status_code) == ("https", 200)


LIVE = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: live\r\n\r\n"


class Noted(logging.Handler):
    """Keeps what is logged that somebody would have to look at."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()} {record.exc_info or ''}")


@pytest.fixture(autouse=True)
def noted() -> Iterator[Noted]:
    handler = Noted()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def read_to_end(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", received) if status != b"100"]


def ids(received: bytes) -> list[bytes]:
    return re.findall(rb"x-request-id: (\S{1,20})\r\n", received)


def test_mutated_requests_are_answered_behind_good_ones(
    server: str, body: bytes, noted: Noted
) -> None:
    good = post(body, "X-Request-Id: good")
    for one in hostile.mutated(good, 60):
        with connected(server) as connection:
            connection.sendall(one.sent)
            connection.shutdown(socket.SHUT_WR)
            received = read_to_end(connection)
        answered = statuses(received)
        assert ids(received)[: one.good] == [b"good%d" % n for n in range(one.good)], one
        assert answered[: one.good] == [200] * one.good, one
        assert set(answered) <= {200, 400, 404, 405, 413, 414, 415, 431, 501, 505}, one
    assert requests.get(f"{server}/healthz", timeout=30).ok
    assert not noted.lines


CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Content-Length: " + "9" * 5000], 400),
        (["Transfer-Encoding: xchunked"], 400),
        (["Transfer-Encoding: chunked;q=1"], 400),
        (["Transfer-Encoding: chunked, chunked"], 400),
        (["Transfer-Encoding: chunked, gzip"], 400),
        (["Transfer-Encoding: chunked", "Content-Length: 2"], 400),
        (["Transfer-Encoding: gzip, chunked"], 501),
    ],
)
def test_ambiguous_body_lengths_are_refused(
    server: str, body: bytes, headers: list[str], status: int
) -> None:
    head = ["POST /v1/models/trips:predict HTTP/1.1", "Host: x", *headers, "", ""]
    with connected(server) as connection:
        connection.sendall(LIVE + post(body) + "\r\n".join(head).encode() + CHUNKS)
        received = read_to_end(connection)
    assert statuses(received) == [200, 200, status]
    assert received.count(b"connection: close") == 1


def test_answers_before_a_broken_request_arrive(server: str, body: bytes) -> None:
    """A socket that is closed with something to read is reset, and its peer's answers are gone."""
    broken = post(b"zz\r\n", "Transfer-Encoding: chunked")
    for end in (b"garbage\r\n\r\n" + b"a" * 300_000, broken + b"a" * 300_000):
        with connected(server) as connection:
            connection.sendall(post(body) + LIVE + post(b"{}") + end)
            time.sleep(0.05)
            assert statuses(read_to_end(connection)) == [200, 200, 400, 400]
    with connected(server) as connection:  # The answer comes before the body is wrong.
        connection.sendall(b"POST /no HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert read_answer(connection)[0].status == 404
        connection.sendall(b"zz\r\n")
        assert connection.recv(100) == b""


def test_trailer_behind_a_chunked_body_is_no_header(server: str, body: bytes) -> None:
    chunks = b"%x;a=b\r\n%b\r\n0\r\nContent-Encoding: gzip\r\nX: y\r\n\r\n" % (len(body), body)
    with connected(server) as connection:
        connection.sendall(post(chunks, "Transfer-Encoding: chunked") + LIVE)
        answer, content = read_answer(connection)
        assert (answer.status, list(content)) == (200, ["predictions"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["live", "predict"])
def test_client_that_reads_nothing_is_disconnected(server: str, instances: Rows, kind: str) -> None:
    """The system's buffers hold a few MiB; 50 MiB of requests took 1.2 GB of ours."""
    many = json.dumps({"instances": instances[:100]}).encode()
    one = LIVE if kind == "live" else post(many)
    host, _, port = server.removeprefix("http://").partition(":")
    taken, most = 0, 32 << 20
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        connection.connect((host, int(port)))
        connection.settimeout(120)
        sent = one * (most // len(one))
        try:
            while taken < len(sent):
                taken += connection.send(sent[taken : taken + (1 << 16)])
        except ConnectionError:
            assert taken < most / 2
        else:
            raise AssertionError("all of it was taken")


def test_body_behind_a_404_has_a_time_limit(server: str) -> None:
    with connected(server) as connection:
        connection.sendall(b"POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert read_answer(connection)[0].status == 404
        ended = threading.Event()
        threading.Thread(target=lambda: (drip(connection), ended.set())).start()
        assert ended.wait(5)


def drip(connection: socket.socket) -> None:
    """A byte at a time, until the other side has gone."""
    try:
        while True:
            connection.sendall(b"a")
            time.sleep(0.05)
    except OSError:
        pass


@contextmanager
def crowded(pushed: Pushed, count: int) -> Iterator[tuple[str, list[socket.socket]]]:
    """A server of which all connections are taken."""
    with (
        running(ServeOptions("trips", pushed.serving, connections=count)) as server,
        ExitStack() as stack,
    ):
        taken = [stack.enter_context(connected(server)) for _ in range(count)]
        for connection in taken:
            connection.sendall(LIVE)
            assert read_answer(connection)[0].status == 200
        yield server, taken


def test_connections_beyond_the_limit_get_health_alone(
    pushed: Pushed, body: bytes, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SPARE_CONNECTIONS", 2)
    with crowded(pushed, 3) as (server, taken):
        refused = requests.post(f"{server}/v1/models/trips:predict", body, timeout=30)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["connection"] == "close"
        for path in ("/healthz", "/v2/health/ready"):
            health = requests.get(server + path, timeout=30)
            assert (health.status_code, health.headers["connection"]) == (200, "close")
        with connected(server), connected(server), connected(server) as third:
            assert third.recv(100).startswith(b"HTTP/1.1 503 ")  # It need not say anything.
        taken[0].sendall(post(body))
        assert read_answer(taken[0])[0].status == 200
        taken.pop().close()
        wait_until(lambda: requests.post(f"{server}/v1/models/trips:predict", body, timeout=30).ok)
    (line,) = noted.lines
    assert "all 3 connections" in line


def test_idle_connections_give_way_to_new_ones(
    pushed: Pushed, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_IDLE_SECONDS", 0.0)
    with crowded(pushed, 3) as (server, taken), requests.Session() as session:
        time.sleep(0.05)
        taken[0].sendall(LIVE)
        assert read_answer(taken[0])[0].status == 200
        taken[2].sendall(post(body)[:-1])  # It is in use.
        time.sleep(0.05)
        for _ in range(2):
            assert session.post(f"{server}/v1/models/trips:predict", body, timeout=30).ok
        assert taken[1].recv(100) == b""  # The one that has been idle for longest.
        taken[2].sendall(post(body)[-1:])
        assert read_answer(taken[2])[0].status == 200
