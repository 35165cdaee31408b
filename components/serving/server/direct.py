"""Requests for predictions by ASGI, answered without the framework's routing."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from components.serving.request_log.ids import request_id
from components.serving.server.batching import FutureAnswer
from components.serving.server.bodies import read_body
from components.serving.server.options import ServeOptions
from components.serving.server.predictions import Predictions
from components.serving.server.protocols.paths import PredictionPath, read_path
from components.serving.server.protocols.replies import Reply, refusal
from components.serving.server.reading import PredictionRequest
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
