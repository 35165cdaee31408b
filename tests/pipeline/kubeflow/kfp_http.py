"""The HTTP side of a small Kubeflow Pipelines: requests are taken in, kept, checked and routed."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import kfp_server_api

V2 = "/apis/v2beta1"
Route = tuple[str, str, set[str], Callable[..., Any]]
"""A method, a pattern of paths, the query parameters that there are, and what answers."""


@dataclass
class Request:
    """One that came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]

    @property
    def call(self) -> str:
        return f"{self.method} {self.path.removeprefix(V2)}"


class RefusedError(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Answer:
    """What is sent back in place of the right answer."""

    status: int
    body: str = ""
    kind: str = "application/json"
    drops: bool = False
    """Whether the connection is closed without an answer."""


@dataclass(kw_only=True)
class HttpApi:
    """A server whose subclass says what answers which request."""

    token: str | None = None
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    troubles: list[tuple[str, Answer]] = field(default_factory=list)
    """Answers to the next requests whose call matches, in order."""
    changes_left: int | None = None
    """After so many changes, everything fails: as if whoever asks had been killed."""

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # Head and body in one packet.

            def handle_any(self) -> None:
                server.handle(self)

            do_GET = do_POST = do_DELETE = do_PATCH = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        if self.tls is not None:
            self._http.socket = self.tls.wrap_socket(self._http.socket, server_side=True)
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._http.server_address[1]}"

    @property
    def calls(self) -> list[str]:
        """What was asked for, without the ids of things."""
        return [re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", r.call) for r in self.requests]

    @property
    def changes(self) -> list[str]:
        """The requests that changed something."""
        return [call for call in self.calls if not call.startswith("GET ")]

    def trouble(self, call: str, *answers: Answer) -> None:
        """Answers the next requests that match the pattern otherwise."""
        self.troubles += [(call, answer) for answer in answers]

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        url = urlsplit(http.path)
        body = http.rfile.read(int(http.headers.get("content-length") or 0))
        request = Request(
            http.command, unquote(url.path), dict(parse_qsl(url.query)), body, dict(http.headers)
        )
        self.requests.append(request)
        for i, (call, trouble) in enumerate(self.troubles):
            if re.search(call, request.call):
                del self.troubles[i]
                if trouble.drops:
                    http.close_connection = True
                    http.connection.close()
                else:
                    self._send(http, trouble.status, trouble.body, trouble.kind)
                return
        try:
            if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
                raise RefusedError(401, "Request header error: there is no user identity header.")
            answer = self._route(request)
        except RefusedError as error:
            message = {"error": str(error), "code": 3, "message": str(error), "details": []}
            self._send(http, error.status, json.dumps(message), "application/json")
            return
        if isinstance(answer, str):
            self._send(http, 200, answer, "text/plain; charset=utf-8")
        else:
            self._send(http, 200, json.dumps(answer), "application/json")

    def _send(self, http: BaseHTTPRequestHandler, status: int, body: str, kind: str) -> None:
        data = body.encode()
        http.send_response(status)
        http.send_header("Content-Type", kind)
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)

    def routes(self) -> list[Route]:
        raise NotImplementedError

    def _route(self, request: Request) -> Any:
        if self.changes_left == 0:
            raise RefusedError(500, "nothing goes any more")
        if self.changes_left is not None and request.method != "GET":
            self.changes_left -= 1
        for method, pattern, queries, handler in self.routes():
            found = re.fullmatch(pattern, request.path)
            if found and method == request.method:
                unknown = set(request.query) - queries
                if unknown:
                    raise RefusedError(400, f"unknown query parameters: {unknown}")
                return handler(request, *found.groups())
        raise RefusedError(404, "Not Found")


def parse(request: Request, model: str) -> dict[str, Any]:
    """A body that kfp's own model takes; a key that it does not know is refused."""
    body = json.loads(request.body)
    _check_keys(body, model)
    try:
        kfp_server_api.ApiClient().deserialize(SimpleNamespace(data=request.body), model)
    except ValueError as error:
        raise RefusedError(400, str(error)) from None
    request.body = body
    return body


def _check_keys(value: Any, model: str) -> None:
    cls = getattr(kfp_server_api.models, model, None)
    if cls is None or not isinstance(value, dict):
        return
    types = {cls.attribute_map[name]: kind for name, kind in cls.openapi_types.items()}
    for key, child in value.items():
        if key not in types:
            raise RefusedError(400, f"unknown field `{key}` in {model}")
        _check_keys(child, types[key])


def multipart(request: Request) -> list[EmailMessage]:
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    return list(BytesParser(policy=HTTP).parsebytes(head + request.body).iter_parts())
