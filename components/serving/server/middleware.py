"""What happens to every request: it gets an id, a key is asked for, and it is measured."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.serving.request_log.ids import identify
from components.serving.server.direct import send_reply
from components.serving.server.metrics import CLIENT_GONE, Metrics
from components.serving.server.protocols.replies import Reply

OPEN = ("/healthz", "/v2/health/live", "/v2/health/ready")
"""What asks whether a server lives has no key."""
_BEARER = b"bearer "
_VERBS = ("predict", "classify", "regress", "infer", "metadata", "ready", "metrics", "healthz")
_REFUSAL = Reply(
    orjson.dumps({"error": "a key is needed: Authorization: Bearer KEY, or X-API-Key."}),
    headers=((b"www-authenticate", b"Bearer"),),
    status=401,
)


class Guarded:
    """Hands requests with the key on, where there is one; gives each an id, and measures it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, key: str) -> None:
        """Args:
        app: answers.
        metrics: are told how long that takes, by what is asked.
        key: that clients have to give; empty where none is asked for.
        """
        self._app, self._metrics, self._key = app, metrics, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, path = time.perf_counter(), CLIENT_GONE, scope["path"]
        id_header = identify(scope["headers"])

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), id_header]
            await send(message)

        try:
            if path in OPEN or has_key(dict(scope["headers"]), self._key):
                await self._app(scope, receive, watch)
            else:
                await send_reply(watch, _REFUSAL)
        except Exception:
            status = 500
            raise
        finally:
            # Of no path that a client makes up there is a metric.
            verb = path.rpartition("/")[2].rpartition(":")[2]
            route = verb if verb in _VERBS else "other"
            self._metrics.observe(route, status, time.perf_counter() - began)


def has_key(headers: Mapping[bytes, bytes], key: str) -> bool:
    """Whether a request gives the key, or needs none."""
    return not key or hmac.compare_digest(_given_key(headers), key.encode())


def _given_key(headers: Mapping[bytes, bytes]) -> bytes:
    authorization = headers.get(b"authorization", b"")
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    return headers.get(b"x-api-key", b"")
