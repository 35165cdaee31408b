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
from importlib.metadata import version
from typing import Any, cast

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.compat.uvicorn import check_uvicorn
from components.serving.failure_log import FailureLog
from components.serving.model import Servable
from components.serving.server.batching import AsyncResponseFuture
from components.serving.server.connections import (
    OPEN_PATHS,
    ClientConnection,
    OpenConnections,
    has_key,
)
from components.serving.server.metrics import CLIENT_GONE, CONTENT_TYPE
from components.serving.server.options import ServeOptions
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
from components.serving.server.workers import WorkerPlace

logger = logging.getLogger(__name__)

_V1 = re.compile(
    r"(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r"(?P<verb>:(predict|classify|regress))?(/(?P<metadata>metadata))?"
)

_SHARE_SECONDS = 0.5
"""The seconds between two updates of a worker's state for the other workers."""


def make_config(
    options: ServeOptions, repository: Repository, place: WorkerPlace | None = None, **settings: Any
) -> uvicorn.Config:
    """Returns uvicorn's configuration for serving a model.

    Args:
      options: the checked options.
      repository: the model's versions, followed while the application runs.
      place: the place of this process among several workers.
      settings: further settings of uvicorn, which are not common to all servers.

    Raises:
      InternalError: the version of uvicorn is incompatible.
    """
    check_uvicorn()
    predictions = Predictions(options, repository, is_shared=place is not None)
    endpoints = _Endpoints(options, repository, predictions, place)
    others = OpenConnections(options.connections)
    return uvicorn.Config(
        _PredictionMiddleware(_make_app(endpoints), predictions, options),
        http=cast("Any", partial(ClientConnection, predictions, options, others)),
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


def _make_app(endpoints: _Endpoints) -> Starlette:
    model = "/v2/models/{name}"
    paths = {
        "/healthz": endpoints.live,
        "/metrics": endpoints.show_metrics,
        "/v1/models/{rest:path}": endpoints.tf_serving,
        "/v2": endpoints.describe_server,
        "/v2/health/live": endpoints.live,
        "/v2/health/ready": endpoints.ready,
        **{f"{model}{of}": endpoints.describe_model for of in ("", "/versions/{version}")},
        **{f"{model}{of}/ready": endpoints.model_ready for of in ("", "/versions/{version}")},
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


_PIECE_BYTES = 1 << 18
_VERBS = ("predict", "classify", "regress", "infer", "metadata", "ready", "metrics", "healthz")
_NO_KEY = Reply(
    orjson.dumps({"error": "send the header Authorization: Bearer KEY, or X-API-Key: KEY."}),
    headers=((b"www-authenticate", b"Bearer"),),
    status=401,
)


class _PredictionMiddleware:
    """Middleware that sets request ids, checks the API key, measures, and answers prediction
    requests.

    All other requests are passed to the application behind it.
    """

    def __init__(self, app: ASGIApp, predictions: Predictions, options: ServeOptions) -> None:
        self._app, self._predictions, self._options = app, predictions, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a prediction request, or passes a request on."""
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
            if path not in OPEN_PATHS and not has_key(dict(scope["headers"]), self._options.key):
                await _send_reply(watch, _NO_KEY)
            elif scope["method"] == "POST" and (asked := read_path(path)) is not None:
                await self._predict(asked, scope, receive, watch)
            else:
                await self._app(scope, receive, watch)
        except Exception:
            status = 500
            raise
        finally:
            # Unknown paths share one label, so that clients cannot create metrics.
            verb = path.rpartition("/")[2].rpartition(":")[2]
            route = verb if verb in _VERBS else "other"
            self._predictions.metrics.observe(route, status, time.perf_counter() - began)

    async def _predict(
        self, path: PredictionPath, scope: Scope, receive: Receive, send: Send
    ) -> None:
        with Reservation(self._predictions.room) as reservation:
            try:
                reply = await self._answer(path, scope, receive, reservation)
                reservation.release(reservation.size)
                reservation.take(len(reply.body))  # Until the client has read most of it.
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
        answer = AsyncResponseFuture(scope["client"])
        self._predictions.answer(request, answer, reservation)
        del body, request  # Frees them while the request waits.
        try:
            reply: Reply = await answer
            return reply
        finally:
            self._predictions.drop(answer)


async def _send_reply(send: Send, reply: Reply) -> None:
    """Sends a response over ASGI."""
    headers = [
        (b"content-type", reply.content_type),
        (b"content-length", b"%d" % len(reply.body)),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    # Each piece waits until the client has read enough of the earlier ones.
    rest = memoryview(reply.body)
    while len(rest) > _PIECE_BYTES:
        piece, rest = bytes(rest[:_PIECE_BYTES]), rest[_PIECE_BYTES:]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)  # Written data is sent after this step of the event loop.
    await send({"type": "http.response.body", "body": bytes(rest)})


class _Endpoints:
    """The endpoints other than predictions, and their shared state."""

    def __init__(
        self,
        options: ServeOptions,
        repository: Repository,
        predictions: Predictions,
        place: WorkerPlace | None,
    ) -> None:
        self._options, self._repository, self._place = options, repository, place
        self._predictions = predictions
        self.model_name = options.name

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Follows the versions and writes the request log while the server runs."""
        log = self._predictions.log
        self._repository.start()
        if log is not None:
            log.start()
        reporting = asyncio.create_task(self._share_state(self._place)) if self._place else None
        yield
        if reporting is not None:
            reporting.cancel()
        self._repository.stop()
        if log is not None:
            log.close()

    async def _share_state(self, place: WorkerPlace) -> None:
        """Shares the state of this worker with the others, periodically.

        A worker that no longer follows the versions exits, and the supervisor restarts it.
        """
        failure_log = FailureLog(logger, "cannot report to the other workers, retrying")
        while self._repository.is_watching:
            with failure_log.suppressed():
                place.report(self._repository.number)
                self._predictions.metrics.refresh()
            await asyncio.sleep(_SHARE_SECONDS)
        logger.error("the thread that loads new versions has died: worker %d ends", place.number)
        signal.raise_signal(signal.SIGTERM)

    async def live(self, request: Request) -> Response:
        """Responds 200 while this process and all workers run and follow the versions, else 503."""
        self._check_following(503)
        if self._place is not None:
            self._check_workers(self._place.workers.running, 503)
        return _json({"live": True})

    def _check_following(self, status: int) -> None:
        """Raises RequestError if the thread that follows the versions has died.

        A withdrawn version would then be served indefinitely.
        """
        if not self._repository.is_watching:
            raise RequestError(
                "the thread that loads new versions has died: restart the server.", status
            )

    def _check_workers(self, count: int, status: int) -> None:
        """Raises RequestError unless all workers are present."""
        if count < self._options.workers:
            raise RequestError(f"{count} of {self._options.workers} workers are ready.", status)

    async def ready(self, request: Request) -> Response:
        """Responds 200 if each worker serves a version, else 400."""
        self._check_ready()
        return _json({"ready": True})

    def _check_ready(self) -> None:
        """Raises RequestError while no version is served, with Triton's status for that."""
        if self._repository.number is None:
            raise RequestError("no version has been pushed and loaded yet.", 400)
        self._check_following(400)
        if self._place is not None:
            self._check_workers(self._place.workers.ready, 400)

    async def show_metrics(self, request: Request) -> Response:
        """Returns the metrics in Prometheus's format."""
        return Response(self._predictions.metrics.text(), media_type=CONTENT_TYPE)

    async def describe_server(self, request: Request) -> Response:
        """Returns the server's metadata of Open Inference v2."""
        extensions = ["binary_tensor_data"]
        server = {"name": "scopeline", "version": version("scopeline"), "extensions": extensions}
        return _json(server)

    async def describe_model(self, request: Request) -> Response:
        """Returns the model's metadata of Open Inference v2."""
        number, model = self._named(request.path_params)
        return _json(describe_tensors(self._options.name, number, model))

    async def model_ready(self, request: Request) -> Response:
        """Returns whether a model is ready, by Open Inference v2."""
        self._check_ready()
        number, _ = self._named(request.path_params)
        return _json({"name": self._options.name, "version": str(number), "ready": True})

    def _named(self, path: dict[str, str]) -> tuple[int, Servable]:
        return self._predictions.find_version(path["name"], path.get("version"), path.get("label"))

    async def tf_serving(self, request: Request) -> Response:
        """Answers TF Serving's paths other than predictions: status and metadata."""
        path = _V1.fullmatch(request.path_params["rest"])
        if path is None:
            raise HTTPException(404)
        if path["verb"]:
            raise HTTPException(405, headers={"Allow": "POST"})
        if path["metadata"]:
            number, model = self._named(path.groupdict())
            return _json(describe_signatures(self._options.name, number, model))
        return self._status(path.groupdict())

    def _status(self, path: dict[str, str | None]) -> Response:
        number, _ = self._predictions.find_version(path["name"] or "", label=path["label"])
        asked = path["version"] if path["label"] is None else str(number)
        states = [s for s in self._repository.states if asked in (None, str(s.number))]
        if not states:
            raise RequestError(f"there is no version {path['version']}.", 404)
        return _json(rest.to_status([(s.number, s.state, s.message) for s in states]))


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    reply = error_reply(error)
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, headers, "application/json")


async def _refuse_path(request: Request, error: Exception) -> Response:
    status, headers = 404, None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers
    name = request.app.state.model_name
    paths = (
        f"/v1/models/{name}, /v1/models/{name}:predict, /v2/models/{name}/infer, /healthz, /metrics"
    )
    said = f"There is no {request.method} {request.url.path}; this server answers {paths}."
    return _json({"error": said}, status, headers)


async def _fail(request: Request, error: Exception) -> Response:
    """Returns the response for an unexpected error, whose traceback uvicorn logs."""
    return _json({"error": "internal server error; see the log of the server."}, 500)
