"""Our base of connections is called where uvicorn's is, and answers as it does."""

from __future__ import annotations

import importlib.util
import re
import socket
import threading
import time
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from components.compat.uvicorn import HttpConnection

# A copy of the module that nothing in this process has changed.
SPEC = importlib.util.find_spec("uvicorn.protocols.http.httptools_impl")
STOCK = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(STOCK)

ASKED = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n"
    b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)


def answers(protocol: Any) -> bytes:
    """What a server with connections of a class sends, but for the time of day."""

    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await request.body())

    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            with socket.create_connection(listening.getsockname(), timeout=30) as connection:
                connection.sendall(ASKED)
                received = b"".join(iter(lambda: connection.recv(65536), b""))
        finally:
            server.should_exit = True
            thread.join()
    return re.sub(rb"date: [^\r]*\r\n", b"", received)


def test_connections_answer_as_those_of_uvicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    ended: list[Any] = []

    class Watched(HttpConnection):
        def begin_answer(self, cycle: Any, app: Any) -> None:
            begun.append(cycle.scope["method"])
            super().begin_answer(cycle, app)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            ended.append(self.timeout_keep_alive_task)
            self.end_wait()
            assert self.timeout_keep_alive_task is None

    found = answers(Watched)
    assert found == answers(STOCK.HttpToolsProtocol)
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert begun == ["GET", "POST", "POST", "GET"]
    assert ended
