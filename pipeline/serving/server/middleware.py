"""What happens to every request: it gets an id, a key is asked for, and it is measured."""

from __future__ import annotations

import hmac
import time

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.serving.request_log.ids import identify
from pipeline.serving.server.metrics import Metrics

OPEN = ("/healthz", "/v2/health/live", "/v2/health/ready")
"""What asks whether a server lives has no key."""
_BEARER = "bearer "
_VERBS = ("predict", "classify", "regress", "infer", "metadata", "ready", "metrics", "healthz")


class Guarded:
    """Hands requests with the key on, where there is one; gives each an id, and measures it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, key: str) -> None:
        """Args:
        app: answers.
        metrics: are told how long that takes, by what is asked.
        key: that clients have to give; empty where none is asked for.
        """
        self._app, self._metrics, self._key = app, metrics, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, path = time.perf_counter(), 500, scope["path"]
        id_header = identify(scope["headers"])

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), id_header]
            await send(message)

        try:
            if self._may_ask(scope):
                await self._app(scope, receive, watch)
            else:
                await _refuse(watch)
        finally:
            # Of no path that a client makes up there is a metric.
            verb = path.rpartition("/")[2].rpartition(":")[2]
            route = verb if verb in _VERBS else "other"
            seconds = time.perf_counter() - began
            self._metrics.seconds.labels(route, str(status)).observe(seconds)

    def _may_ask(self, scope: Scope) -> bool:
        if not self._key or scope["path"] in OPEN:
            return True
        return hmac.compare_digest(_given_key(scope), self._key)


def _given_key(scope: Scope) -> bytes:
    headers = dict(scope["headers"])
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
