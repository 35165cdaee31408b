"""What happens to every request: it gets an id, a key is asked for, and it is measured."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Mapping

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.serving.server.batching import FutureAnswer
from components.serving.server.bodies import read_body
from components.serving.server.metrics import CLIENT_GONE, Metrics
from components.serving.server.options import ServeOptions
from components.serving.server.predictions import Predictions
from components.serving.server.reading import PredictionPath, PredictionRequest, read_path
from components.serving.server.replies import Reply, identify, refusal, request_id
from components.serving.server.room import Held

_PIECE_BYTES = 1 << 18


class Direct:
    """Answers what asks for predictions; everything else is for the application behind it."""

    def __init__(self, app: ASGIApp, predictions: Predictions, options: ServeOptions) -> None:
        self._app, self._predictions, self._options = app, predictions, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it on."""
        path = read_path(scope["path"]) if scope["type"] == "http" else None
        if path is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        with self._predictions.room.held() as held:
            try:
                reply = await self._answer(path, scope, receive, held)
                held.give_back(held.size)
                held.take(len(reply.body))  # Until the client has read most of it.
            except ClientDisconnect:
                return
            except Exception as error:
                reply = refusal(error)
            await send_reply(send, reply)

    async def _answer(
        self, path: PredictionPath, scope: Scope, receive: Receive, held: Held
    ) -> Reply:
        headers = dict(scope["headers"])
        body = await read_body(headers, receive, self._options, held)
        request = PredictionRequest(path, headers, body, request_id.get())
        answer = FutureAnswer[Reply](scope["client"])
        self._predictions.answer(request, answer, held)
        del body, request  # Which are not needed until there is an answer.
        try:
            return await answer.future
        finally:
            self._predictions.drop(answer)


async def send_reply(send: Send, reply: Reply) -> None:
    """Answers by ASGI."""
    headers = [
        (b"content-type", reply.content_type),
        (b"content-length", b"%d" % len(reply.body)),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    # In pieces, each of which waits until the client has read of those before.
    rest = memoryview(reply.body)
    while len(rest) > _PIECE_BYTES:
        piece, rest = bytes(rest[:_PIECE_BYTES]), rest[_PIECE_BYTES:]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)  # What is written is sent when this step of the loop is over.
    await send({"type": "http.response.body", "body": bytes(rest)})


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
