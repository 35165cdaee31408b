"""Requests for predictions, which are most of them, answered without the framework's routing."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.serving.server.bodies import read_body
from pipeline.serving.server.errors import RequestError, status_and_headers
from pipeline.serving.server.options import ServeOptions
from pipeline.serving.server.predictions import Predictions, Reply
from trainer_module.errors import DataError

_PATHS = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r":(?P<verb>predict|classify|regress)"
    r"|/v2/models/(?P<name2>[^/]+)(/versions/(?P<version2>[^/]+))?/infer"
)
_KNOWN_PATHS = 128


@dataclass(frozen=True)
class _Path:
    """Which model is asked for what."""

    name: str
    version: str | None
    label: str | None
    verb: str | None
    """Of TF Serving; None by Open Inference."""


@functools.lru_cache(_KNOWN_PATHS)
def _read_path(path: str) -> _Path | None:
    found = _PATHS.fullmatch(path)
    if found is None:
        return None
    if found["verb"] is None:
        return _Path(found["name2"], found["version2"], None, None)
    return _Path(found["name"], found["version"], found["label"], found["verb"])


class Direct:
    """Answers what asks for predictions; everything else is for the application behind it."""

    def __init__(self, app: ASGIApp, predictions: Predictions, options: ServeOptions) -> None:
        self._app, self._predictions, self._options = app, predictions, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it on."""
        path = _read_path(scope["path"]) if scope["type"] == "http" else None
        if path is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            reply = await self._answer(path, dict(scope["headers"]), receive)
        except ClientDisconnect:
            return
        except (RequestError, DataError) as error:
            await refuse(send, error)
        except Exception:
            await send_json(send, 500, {"error": "the server failed; its log says more."})
            raise  # For the log.
        else:
            await _send(send, 200, reply)

    async def _answer(self, path: _Path, headers: Mapping[bytes, bytes], receive: Receive) -> Reply:
        body = await read_body(headers, receive, self._options)
        number, model = self._predictions.named(path.name, path.version, path.label)
        if path.verb is None:
            return await self._predictions.infer(number, model, headers, body)
        return await self._predictions.predict(path.verb, model, body)


async def refuse(send: Send, error: RequestError | DataError) -> None:
    """Answers with what is wrong."""
    status, headers = status_and_headers(error)
    encoded = tuple((name.encode(), value.encode()) for name, value in headers.items())
    await _send(send, status, Reply(orjson.dumps({"error": str(error)}), headers=encoded))


async def send_json(send: Send, status: int, content: Mapping[str, str]) -> None:
    """Answers with an object."""
    await _send(send, status, Reply(orjson.dumps(content)))


async def _send(send: Send, status: int, reply: Reply) -> None:
    headers = [
        (b"content-type", reply.content_type),
        (b"content-length", b"%d" % len(reply.body)),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
