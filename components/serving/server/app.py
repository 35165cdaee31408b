"""The application: which path is answered by what."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from components.serving.model import Servable
from components.serving.server.connections.quick import Application, Quick
from components.serving.server.metrics import CONTENT_TYPE
from components.serving.server.middleware import Direct, Guarded
from components.serving.server.options import ServeOptions
from components.serving.server.predictions import Predictions
from components.serving.server.protocols import rest
from components.serving.server.protocols.metadata import describe_signatures, describe_tensors
from components.serving.server.replies import Failing, RequestError, status_and_headers
from components.serving.server.repository import Repository
from components.serving.server.workers import WorkerPlace

logger = logging.getLogger(__name__)

_V1 = re.compile(
    r"(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r"(?P<verb>:(predict|classify|regress))?(/(?P<metadata>metadata))?"
)

_TELL_SECONDS = 0.5
"""How old what a worker says of another may be."""


def make_app(
    options: ServeOptions, repository: Repository, place: WorkerPlace | None = None
) -> Application:
    """The application for a model.

    Args:
      options: checked.
      repository: of its versions; followed while the application runs.
      place: of this process among several workers.
    """
    predictions = Predictions(options, repository, is_shared=place is not None)
    server = _Server(options, repository, predictions, place)
    model = "/v2/models/{name}"
    paths = {
        "/healthz": server.live,
        "/metrics": server.show_metrics,
        "/v1/models/{rest:path}": server.tf_serving,
        "/v2": server.describe_server,
        "/v2/health/live": server.live,
        "/v2/health/ready": server.ready,
        **{f"{model}{of}": server.describe_model for of in ("", "/versions/{version}")},
        **{f"{model}{of}/ready": server.model_ready for of in ("", "/versions/{version}")},
    }
    app = Starlette(
        routes=[Route(path, endpoint) for path, endpoint in paths.items()],
        exception_handlers={
            RequestError: _refuse,
            HTTPException: _refuse_path,
            Exception: _fail,
        },
        lifespan=server.lifespan,
    )
    app.router.redirect_slashes = False  # Clients of predictions do not follow where they post.
    direct = Direct(app, predictions, options)
    return Application(
        Guarded(direct, predictions.metrics, options.key), Quick(predictions, options)
    )


class _Server:
    """The endpoints, and what they share."""

    def __init__(
        self,
        options: ServeOptions,
        repository: Repository,
        predictions: Predictions,
        place: WorkerPlace | None,
    ) -> None:
        self._options, self._repository, self._place = options, repository, place
        self._predictions = predictions

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Follows the versions, and writes requests down, while the server runs."""
        log = self._predictions.log
        self._repository.start()
        if log is not None:
            log.start()
        telling = asyncio.create_task(self._tell(self._place)) if self._place else None
        yield
        if telling is not None:
            telling.cancel()
        self._repository.stop()
        if log is not None:
            log.close()

    async def _tell(self, place: WorkerPlace) -> None:
        """Lets the other workers know how things are here, again and again.

        A worker that does not follow the versions any more ends, and is started again.
        """
        failing = Failing("to tell the other workers of this one")
        while self._repository.is_following:
            with failing.survived():
                place.tell(self._repository.number)
                self._predictions.metrics.refresh()
            await asyncio.sleep(_TELL_SECONDS)
        logger.error("the versions are not followed any more: worker %d ends", place.number)
        signal.raise_signal(signal.SIGTERM)

    async def live(self, request: Request) -> Response:
        """The process answers and follows the versions, and each worker if there are several."""
        self._check_following(503)
        if self._place is not None:
            self._check_workers(self._place.workers.up, 503)
        return _json({"live": True})

    def _check_following(self, status: int) -> None:
        """Raises RequestError where a version that is withdrawn would answer for ever."""
        if not self._repository.is_following:
            raise RequestError("the versions are not followed any more: start it again.", status)

    def _check_workers(self, there: int, status: int) -> None:
        """Raises RequestError unless all workers are there."""
        if there < self._options.workers:
            raise RequestError(f"{there} of {self._options.workers} workers are ready.", status)

    async def ready(self, request: Request) -> Response:
        """A version answers, in each worker."""
        self._check_ready()
        return _json({"ready": True})

    def _check_ready(self) -> None:
        """Raises RequestError while no version answers, with the status that Triton gives then."""
        if self._repository.number is None:
            raise RequestError("no version has been pushed and loaded yet.", 400)
        self._check_following(400)
        if self._place is not None:
            self._check_workers(self._place.workers.ready, 400)

    async def show_metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(self._predictions.metrics.text(), media_type=CONTENT_TYPE)

    async def describe_server(self, request: Request) -> Response:
        """What v2 asks of a server."""
        extensions = ["binary_tensor_data"]
        server = {"name": "scopeline", "version": version("scopeline"), "extensions": extensions}
        return _json(server)

    async def describe_model(self, request: Request) -> Response:
        """What v2 asks of a model."""
        number, model = self._named(request.path_params)
        return _json(describe_tensors(self._options.name, number, model))

    async def model_ready(self, request: Request) -> Response:
        """Whether v2 may ask a model."""
        self._check_ready()
        number, _ = self._named(request.path_params)
        return _json({"name": self._options.name, "version": str(number), "ready": True})

    def _named(self, path: dict[str, str]) -> tuple[int, Servable]:
        return self._predictions.named(path["name"], path.get("version"), path.get("label"))

    async def tf_serving(self, request: Request) -> Response:
        """TF Serving's paths, but for predictions."""
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
        number, _ = self._predictions.named(path["name"] or "", label=path["label"])
        asked = path["version"] if path["label"] is None else str(number)
        states = [s for s in self._repository.states if asked in (None, str(s.number))]
        if not states:
            raise RequestError(f"there is no version {path['version']}.", 404)
        return _json(rest.to_status([(s.number, s.state, s.message) for s in states]))


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    status, headers = status_and_headers(error)
    return _json({"error": str(error)}, status, headers)


async def _refuse_path(request: Request, error: Exception) -> Response:
    status, headers = 404, None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers
    said = f"{request.method} {request.url.path} is nothing that is answered here."
    return _json({"error": said}, status, headers)


async def _fail(request: Request, error: Exception) -> Response:
    """What uvicorn logs with its traceback."""
    return _json({"error": "the server failed; its log says more."}, 500)
