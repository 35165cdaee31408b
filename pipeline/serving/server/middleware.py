"""What happens to every request: it is measured, and a key is asked for."""

from __future__ import annotations

import hmac
import time

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.serving.server.metrics import Metrics

OPEN = ("/healthz", "/v2/health/live", "/v2/health/ready")
"""What asks whether a server lives has no key."""
_BEARER = "bearer "
_VERBS = ("predict", "classify", "regress", "infer", "metadata", "ready", "metrics", "healthz")


class Measured:
    """Measures how long requests take, by what they ask."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            # Of no path that a client makes up there is a metric.
            verb = scope["path"].rpartition("/")[2].rpartition(":")[2]
            route = verb if verb in _VERBS else "other"
            seconds = time.perf_counter() - began
            self._metrics.seconds.labels(route, str(status)).observe(seconds)


class Keyed:
    """Refuses requests without the key, where there is one."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on that has the key."""
        if (
            scope["type"] != "http"
            or not self._key
            or scope["path"] in OPEN
            or hmac.compare_digest(_given_key(scope), self._key)
        ):
            await self._app(scope, receive, send)
        else:
            await _refuse(send)


def _given_key(scope: Scope) -> bytes:
    headers = {name.lower(): value for name, value in scope["headers"]}
    authorization: bytes = headers.get(b"authorization", b"")
    if authorization[: len(_BEARER)].lower() == _BEARER.encode():
        return authorization[len(_BEARER) :].strip()
    return bytes(headers.get(b"x-api-key", b""))


async def _refuse(send: Send) -> None:
    body = orjson.dumps({"error": "a key is needed: Authorization: Bearer KEY, or X-API-Key."})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
