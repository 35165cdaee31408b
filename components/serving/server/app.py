"""The ASGI application of the server: routes, authentication, metrics and errors."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components import release
from components.compat.uvicorn import check_uvicorn
from components.serving.failure_log import FailureLog
from components.serving.model import Servable
from components.serving.server.api_document import ApiDocuments
from components.serving.server.batching import AsyncResponseFuture
from components.serving.server.connections import (
    OPEN_PATHS,
    ClientConnection,
    OpenConnections,
    has_key,
)
from components.serving.server.metrics import CLIENT_GONE, CONTENT_TYPE
from components.serving.server.options import ServeOptions
from components.serving.server.page.page import make_page
from components.serving.server.predictions import Predictions
from components.serving.server.protocols import rest
from components.serving.server.protocols.open_inference import describe_tensors
from components.serving.server.protocols.rest import describe_signatures
from components.serving.server.reading import (
    PredictionPath,
    PredictionRequest,
    Reservation,
    read_body,
    read_path,
)
from components.serving.server.replies import (
    Reply,
    RequestError,
    error_reply,
    identify,
    request_id,
)
from components.serving.server.repository import Repository
from components.serving.server.workers import WorkerSlot

logger = logging.getLogger(__name__)

_V1 = re.compile(
    r"(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r"(?P<verb>:(predict|classify|regress))?(/(?P<metadata>metadata))?"
)

_SHARE_SECONDS = 0.5
"""The seconds between two updates of a worker's state for the other workers."""


def make_config(
    options: ServeOptions, repository: Repository, slot: WorkerSlot | None = None, **settings: Any
) -> uvicorn.Config:
    """Returns uvicorn's configuration for serving a model.

    Args:
      repository: the model's versions. Their folder is watched while the application runs.
      slot: the number of this worker and the state of all workers, or None for a single process.
      settings: further settings of uvicorn.

    Raises:
      InternalError: the version of uvicorn is incompatible.
    """
    check_uvicorn()
    predictions = Predictions(options, repository, is_shared=slot is not None)
    endpoints = _Endpoints(options, repository, predictions, slot)
    connections = OpenConnections(options.connections)
    return uvicorn.Config(
        _PredictionMiddleware(_make_app(endpoints, options.page), predictions, options),
        http=cast("Any", partial(ClientConnection, predictions, options, connections)),
        ws="none",
        loop="uvloop",
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=options.keep_alive_seconds,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.private_key,
        **settings,
    )


def _make_app(endpoints: _Endpoints, has_page: bool) -> Starlette:
    model = "/v2/models/{name}"
    paths = {
        **({PAGE_PATH: endpoints.show_page} if has_page else {}),
        "/openapi.json": endpoints.describe_api,
        "/healthz": endpoints.live,
        "/metrics": endpoints.show_metrics,
        "/v1/models/{rest:path}": endpoints.tf_serving,
        "/v2": endpoints.describe_server,
        "/v2/health/live": endpoints.live,
        "/v2/health/ready": endpoints.ready,
        model: endpoints.describe_model,
        f"{model}/versions/{{version}}": endpoints.describe_model,
        f"{model}/ready": endpoints.model_ready,
        f"{model}/versions/{{version}}/ready": endpoints.model_ready,
    }
    app = Starlette(
        routes=[Route(path, endpoint) for path, endpoint in paths.items()],
        exception_handlers={
            RequestError: _refuse,
            HTTPException: _refuse_path,
            Exception: _fail,
        },
        lifespan=endpoints.lifespan,
    )
    app.state.model_name = endpoints.model_name
    app.router.redirect_slashes = False  # Clients do not follow redirects of POST requests.
    return app


PAGE_PATH = "/"
"""The path of the page, which needs no API key, as it contains nothing about the model."""
_PIECE_BYTES = 1 << 18
_VERBS = ("predict", "classify", "regress", "infer", "metadata", "ready", "metrics", "healthz")
_DOCUMENT_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
_NO_KEY = Reply(
    orjson.dumps({"error": "send the header Authorization: Bearer KEY, or X-API-Key: KEY."}),
    headers=((b"www-authenticate", b"Bearer"),),
    status=401,
)


class _PredictionMiddleware:
    """Middleware that answers prediction requests, and passes other requests to the application.

    For all requests, the middleware sets the request id, checks the API key and records the time.
    """

    def __init__(self, app: ASGIApp, predictions: Predictions, options: ServeOptions) -> None:
        self._app, self._predictions, self._options = app, predictions, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a prediction request, or passes another request to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, path = time.perf_counter(), CLIENT_GONE, scope["path"]
        id_header = identify(scope["headers"])

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), id_header]
            await send(message)

        try:
            if not self._is_open(scope) and not has_key(dict(scope["headers"]), self._options.key):
                await _send_reply(send_with_id, _NO_KEY)
            elif scope["method"] == "POST" and (prediction := read_path(path)) is not None:
                await self._predict(prediction, scope, receive, send_with_id)
            else:
                await self._app(scope, receive, send_with_id)
        except Exception:
            status = 500
            raise
        finally:
            # Unknown paths share the label "other", so that clients cannot create new metrics.
            verb = path.rpartition("/")[2].rpartition(":")[2]
            route = verb if verb in _VERBS else "other"
            self._predictions.metrics.observe(route, status, time.perf_counter() - start)

    def _is_open(self, scope: Scope) -> bool:
        """Returns whether a request needs no key: for a health check, and for the page."""
        is_page = scope["path"] == PAGE_PATH and scope["method"] in ("GET", "HEAD")
        return scope["path"] in OPEN_PATHS or (is_page and self._options.page)

    async def _predict(
        self, path: PredictionPath, scope: Scope, receive: Receive, send: Send
    ) -> None:
        with Reservation(self._predictions.memory) as reservation:
            try:
                reply = await self._answer(path, scope, receive, reservation)
                reservation.release(reservation.size)
                # The response is reserved until the client has read most of it.
                reservation.take(len(reply.body))
            except ClientDisconnect:
                return
            except Exception as error:
                reply = error_reply(error)
            await _send_reply(send, reply)

    async def _answer(
        self, path: PredictionPath, scope: Scope, receive: Receive, reservation: Reservation
    ) -> Reply:
        headers = dict(scope["headers"])
        body = await read_body(headers, receive, self._options, reservation)
        request = PredictionRequest(path, headers, body, request_id.get())
        future = AsyncResponseFuture(scope["client"])
        self._predictions.answer(request, future, reservation)
        del body, request  # Their memory is freed while the request waits.
        try:
            reply: Reply = await future
            return reply
        finally:
            self._predictions.drop(future)


async def _send_reply(send: Send, reply: Reply) -> None:
    """Sends a response over ASGI."""
    headers = [
        (b"content-type", reply.content_type),
        (b"content-length", b"%d" % len(reply.body)),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    # Each piece is sent after the client has read enough of the earlier pieces.
    remaining = memoryview(reply.body)
    while len(remaining) > _PIECE_BYTES:
        piece, remaining = bytes(remaining[:_PIECE_BYTES]), remaining[_PIECE_BYTES:]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)  # The event loop sends written data in its next step.
    await send({"type": "http.response.body", "body": bytes(remaining)})


class _Endpoints:
    """The endpoints other than predictions."""

    def __init__(
        self,
        options: ServeOptions,
        repository: Repository,
        predictions: Predictions,
        slot: WorkerSlot | None,
    ) -> None:
        self._options, self._repository, self._slot = options, repository, slot
        self._predictions = predictions
        self._documents = ApiDocuments(options)
        self.model_name = options.name

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Watches the folder of the versions and writes the request log while the server runs."""
        log = self._predictions.log
        self._repository.start()
        if log is not None:
            log.start()
        sharing = asyncio.create_task(self._share_state(self._slot)) if self._slot else None
        yield
        if sharing is not None:
            sharing.cancel()
        self._repository.stop()
        if log is not None:
            log.close()

    async def _share_state(self, slot: WorkerSlot) -> None:
        """Periodically shares the state of this worker with the other workers.

        If the thread that loads new versions has died, the worker exits, and the supervisor starts
        a new worker.
        """
        failure_log = FailureLog(
            logger, "the state cannot be shared with the other workers, retrying"
        )
        while self._repository.is_watching:
            with failure_log.suppressed():
                slot.report(self._repository.number)
                self._predictions.metrics.refresh()
            await asyncio.sleep(_SHARE_SECONDS)
        logger.error("the thread that loads new versions has died: worker %d ends", slot.number)
        signal.raise_signal(signal.SIGTERM)

    async def live(self, request: Request) -> Response:
        """Responds 200 if all workers and the thread that loads new versions run, else 503."""
        self._check_watching(503)
        if self._slot is not None:
            self._check_workers(self._slot.workers.running, 503)
        return _json({"live": True})

    def _check_watching(self, status: int) -> None:
        """Raises RequestError if the thread that loads new versions has died.

        Without the thread, a withdrawn version would be served indefinitely.
        """
        if not self._repository.is_watching:
            raise RequestError(
                "the thread that loads new versions has died: restart the server.", status
            )

    def _check_workers(self, count: int, status: int) -> None:
        """Raises RequestError if fewer workers are ready than the server has."""
        if count < self._options.workers:
            raise RequestError(f"{count} of {self._options.workers} workers are ready.", status)

    async def ready(self, request: Request) -> Response:
        """Responds 200 if each worker serves a version, else 400."""
        self._check_ready()
        return _json({"ready": True})

    def _check_ready(self) -> None:
        """Raises RequestError with status 400, as in Triton, if a worker serves no version."""
        if self._repository.number is None:
            raise RequestError("no version has been pushed and loaded yet.", 400)
        self._check_watching(400)
        if self._slot is not None:
            self._check_workers(self._slot.workers.ready, 400)

    async def show_metrics(self, request: Request) -> Response:
        """Returns the metrics in Prometheus's format."""
        return Response(self._predictions.metrics.text(), media_type=CONTENT_TYPE)

    async def show_page(self, request: Request) -> Response:
        """Returns the page with a form for predictions."""
        return _to_response(make_page())

    async def describe_api(self, request: Request) -> Response:
        """Returns the OpenAPI document of the server and the served version."""
        number, model = self._predictions.find_version(self._options.name)
        document = await self._documents.read(number, model)
        return Response(document, headers=_DOCUMENT_HEADERS, media_type="application/json")

    async def describe_server(self, request: Request) -> Response:
        """Returns the metadata of the server, for Open Inference v2."""
        server = {"name": release.NAME, "version": release.read_version()}
        return _json({**server, "extensions": ["binary_tensor_data"]})

    async def describe_model(self, request: Request) -> Response:
        """Returns the metadata of the model, for Open Inference v2."""
        number, model = self._find_version(request.path_params)
        return _json(describe_tensors(self._options.name, number, model))

    async def model_ready(self, request: Request) -> Response:
        """Responds 200 if the model is ready, for Open Inference v2."""
        self._check_ready()
        number, _ = self._find_version(request.path_params)
        return _json({"name": self._options.name, "version": str(number), "ready": True})

    def _find_version(self, path: dict[str, str]) -> tuple[int, Servable]:
        return self._predictions.find_version(path["name"], path.get("version"), path.get("label"))

    async def tf_serving(self, request: Request) -> Response:
        """Returns the status or the metadata of the model, for TF Serving's paths."""
        path = _V1.fullmatch(request.path_params["rest"])
        if path is None:
            raise HTTPException(404)
        if path["verb"]:
            raise HTTPException(405, headers={"Allow": "POST"})
        if path["metadata"]:
            number, model = self._find_version(path.groupdict())
            return _json(describe_signatures(self._options.name, number, model))
        return self._status(path.groupdict())

    def _status(self, path: dict[str, str | None]) -> Response:
        number, _ = self._predictions.find_version(path["name"] or "", label=path["label"])
        requested_version = path["version"] if path["label"] is None else str(number)
        states = [s for s in self._repository.states if requested_version in (None, str(s.number))]
        if not states:
            raise RequestError(f"there is no version {path['version']}.", 404)
        return _json(rest.to_status([(s.number, s.state, s.message) for s in states]))


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    return _to_response(error_reply(error))


def _to_response(reply: Reply) -> Response:
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, headers, reply.content_type.decode())


async def _refuse_path(request: Request, error: Exception) -> Response:
    status, headers = 404, None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers
    name = request.app.state.model_name
    paths = (
        f"/v1/models/{name}, /v1/models/{name}:predict, /v2/models/{name}/infer, /openapi.json,"
        " /healthz, /metrics"
    )
    message = f"There is no {request.method} {request.url.path}; this server answers {paths}."
    return _json({"error": message}, status, headers)


async def _fail(request: Request, error: Exception) -> Response:
    """Returns the response for an unexpected error, whose traceback uvicorn logs."""
    return _json({"error": "internal server error; see the log of the server."}, 500)
