"""The application: which path is answered by what."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline.serving.model import EXAMPLES, RAW, Model
from pipeline.serving.request_log.ids import Identified
from pipeline.serving.request_log.log import RequestLog
from pipeline.serving.server import open_inference, rest
from pipeline.serving.server.batching import Arrays, Batcher
from pipeline.serving.server.bodies import parse_json, read_body
from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.metrics import CONTENT_TYPE, Metrics
from pipeline.serving.server.middleware import Keyed, Measured
from pipeline.serving.server.options import ServeOptions
from pipeline.serving.server.repository import Repository
from pipeline.serving.server.workers import WorkerPlace
from trainer_module.errors import DataError

_V1 = re.compile(
    r"(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r"(:(?P<verb>predict|classify|regress)|/(?P<metadata>metadata))?"
)

_TELL_SECONDS = 0.5
"""How old what a worker says of another may be."""


def make_app(
    options: ServeOptions, repository: Repository, place: WorkerPlace | None = None
) -> Starlette:
    """The application for a model.

    Args:
      options: checked.
      repository: of its versions; followed while the application runs.
      place: of this process among several workers.
    """
    server = _Server(options, repository, place)
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
    posts = {f"{model}{of}/infer": server.infer for of in ("", "/versions/{version}")}
    return Starlette(
        routes=[
            *(Route(path, endpoint, methods=_methods(path)) for path, endpoint in paths.items()),
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
        ],
        middleware=[
            Middleware(Identified),
            Middleware(Measured, metrics=server.metrics),
            Middleware(Keyed, key=options.key),
        ],
        exception_handlers={
            RequestError: _refuse,
            HTTPException: _refuse_path,
            DataError: _refuse,
            Exception: _fail,
        },
        lifespan=server.lifespan,
    )


def _methods(path: str) -> list[str]:
    """Under TF Serving's paths the verb tells."""
    return ["GET", "POST"] if path.startswith("/v1/") else ["GET"]


class _Server:
    """The endpoints, and what they share."""

    def __init__(
        self, options: ServeOptions, repository: Repository, place: WorkerPlace | None
    ) -> None:
        self._options, self._repository, self._place = options, repository, place
        self._executor = ThreadPoolExecutor(thread_name_prefix="model")
        self.metrics = Metrics(
            lambda: self._batcher.waiting_rows,
            lambda: repository.number or 0,
            lambda: repository.failures,
            is_shared=place is not None,
        )
        threads = max(1, (os.cpu_count() or 1) // options.workers)
        self._batcher = Batcher(self._executor, self.metrics.batch_rows.observe, threads=threads)
        self._log = RequestLog(options.log, self.metrics.registry) if options.log else None

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Follows the versions, and writes requests down, while the server runs."""
        self._repository.start()
        if self._log is not None:
            self._log.start()
        telling = asyncio.create_task(self._tell(self._place)) if self._place else None
        yield
        if telling is not None:
            telling.cancel()
        self._repository.stop()
        if self._log is not None:
            self._log.close()

    async def _tell(self, place: WorkerPlace) -> None:
        """Lets the other workers know how things are here, again and again."""
        while True:
            place.tell(self._repository.number)
            self.metrics.refresh()
            await asyncio.sleep(_TELL_SECONDS)

    async def live(self, request: Request) -> Response:
        """The process answers, and each worker if there are several."""
        if self._place is not None:
            self._check_workers(self._place.workers.up, 503)
        return _json({"live": True})

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
        if self._place is not None:
            self._check_workers(self._place.workers.ready, 400)

    async def show_metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    async def describe_server(self, request: Request) -> Response:
        """What v2 asks of a server."""
        extensions = ["binary_tensor_data"]
        server = {"name": "scopeline", "version": version("scopeline"), "extensions": extensions}
        return _json(server)

    async def describe_model(self, request: Request) -> Response:
        """What v2 asks of a model."""
        number, model = self._named(request.path_params)
        return _json(open_inference.to_metadata(self._options.name, number, model))

    async def model_ready(self, request: Request) -> Response:
        """Whether v2 may ask a model."""
        self._check_ready()
        number, _ = self._named(request.path_params)
        return _json({"name": self._options.name, "version": str(number), "ready": True})

    def _named(self, path: dict[str, str | None]) -> tuple[int, Model]:
        """The version that a path names."""
        if path["name"] != self._options.name:
            raise RequestError(
                f"there is no model {path['name']!r} here; {self._options.name!r} is served.", 404
            )
        return self._repository.find(path.get("version"), path.get("label"))

    async def infer(self, request: Request) -> Response:
        """Predictions by v2."""
        body = await read_body(request, self._options)
        number, model = self._named(request.path_params)
        length = request.headers.get(open_inference.HEADER_LENGTH)
        if length is not None and not (length.isdigit() and int(length) <= len(body)):
            raise RequestError(f"{open_inference.HEADER_LENGTH} is {length!r}, not a length.")
        end = len(body) if length is None else int(length)
        asked = parse_json(body[:end])
        signature, columns = open_inference.to_request(asked, body[end:], model.interface)
        answers = await self._ask(model, signature, columns)
        content, head = open_inference.to_response(asked, answers, self._options.name, number)
        if head is None:
            return Response(content, media_type="application/json")
        headers = {open_inference.HEADER_LENGTH: str(head)}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def tf_serving(self, request: Request) -> Response:
        """TF Serving's paths, which end in a verb behind a colon."""
        path = _V1.fullmatch(request.path_params["rest"])
        if path is None:
            raise HTTPException(404)
        verb = path["verb"]
        if (request.method == "POST") != (verb is not None):
            raise HTTPException(405)
        if verb is not None:
            body = await read_body(request, self._options)
            return await self._predict(verb, body, *self._named(path.groupdict()))
        if path["metadata"]:
            number, model = self._named(path.groupdict())
            return _json(rest.to_metadata(self._options.name, number, model))
        return self._status(path.groupdict())

    def _status(self, path: dict[str, str | None]) -> Response:
        self._named({"name": path["name"], "label": path["label"]})
        states = [s for s in self._repository.states if path["version"] in (None, str(s.number))]
        if not states:
            raise RequestError(f"there is no version {path['version']}.", 404)
        return _json(rest.to_status([(s.number, s.state, s.message) for s in states]))

    async def _predict(self, verb: str, body: bytes, number: int, model: Model) -> Response:
        asked = parse_json(body)
        if verb == "predict":
            signature, columns, are_rows = rest.to_request(asked, model.interface)
            answers = await self._ask(model, signature, columns)
            return _json(rest.to_predictions(answers, are_rows))
        columns = rest.to_examples_request(asked, model.interface)
        answers = await self._ask(model, RAW, columns)
        return _json(rest.to_classes(answers) if verb == "classify" else rest.to_numbers(answers))

    async def _ask(self, model: Model, signature: str, columns: Arrays) -> Arrays:
        ask = model.predict_examples if signature == EXAMPLES else model.predict
        try:
            async with asyncio.timeout(self._options.answer_seconds):
                answers = await self._batcher.ask(ask, columns)
        except TimeoutError:
            seconds = self._options.answer_seconds
            raise RequestError(f"there was no answer within {seconds:g} seconds.", 504) from None
        self.metrics.count(answers)
        if self._log is not None:
            self._log.note(model, signature, columns, answers)
        return answers


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, RequestError) else 400
    return _json({"error": str(error)}, status, {"retry-after": "1"} if status == 503 else None)


async def _refuse_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    said = f"{request.method} {request.url.path} is nothing that is answered here."
    return _json({"error": said}, status)


async def _fail(request: Request, error: Exception) -> Response:
    """What uvicorn logs with its traceback."""
    return _json({"error": "the server failed; its log says more."}, 500)
