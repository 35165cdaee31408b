"""Web servers for notifications: one that keeps requests, and one that never answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "s3cret-of-the-tests"  # noqa: S105


class Hook(ThreadingHTTPServer):
    """A web server that keeps its requests, and answers with the given statuses."""

    daemon_threads = True

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.requests: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?token={SECRET}"

    def messages(self, occasion: str) -> list[str]:
        """The messages about an occasion, in the order they came."""
        contents = [json.loads(body) for _, body in self.requests]
        return [content["message"] for content in contents if content["occasion"] == occasion]


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((dict(self.headers), body))
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def hook(*statuses: int) -> Iterator[Hook]:
    with Hook(*statuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def mute(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """A server that handles each connection by a function; yields its port."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connections = []
            while not stop.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    break
                connections.append(connection)
                threading.Thread(target=answer, args=(connection, stop), daemon=True).start()
            for connection in connections:
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            stop.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=5)


def say_nothing(connection: socket.socket, stop: threading.Event) -> None:
    stop.wait()
