"""Serves the reports of all runs below an output folder, to this machine only.

Browsers let every website send requests to this machine. The server therefore answers only requests
whose Host header names this machine, which also stops attacks that let a name of the attacker's
resolve to this machine. It changes nothing, and serves only pages that it makes from runs.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.records.run_folders import StoredRun, list_pipelines, list_runs
from pipeline.report.overview import Query, make_comparison, make_list
from pipeline.report.page import read_report
from pipeline.report.rendering import render
from trainer_module.errors import ConfigError, DataError

HOST = "127.0.0.1"
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class _WithHeaders:
    """Middleware that adds `_HEADERS` to each response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def make_app(output: Path) -> Starlette:
    """Returns the application of the runs below an output folder."""

    def show_list(request: Request) -> Response:
        return HTMLResponse(make_list(output, Query.of(dict(request.query_params))))

    def show_run(request: Request) -> Response:
        run = _find(output, request.path_params["pipeline"], request.path_params["run"])
        if run is None:
            return _problem("There is no such run.", 404)
        try:
            return HTMLResponse(read_report(run))
        except DataError as error:
            return _problem(str(error), 500)

    def show_comparison(request: Request) -> Response:
        summaries = []
        for key in ("first", "second"):
            pipeline, _, run_id = request.query_params.get(key, "").partition("/")
            run = _find(output, pipeline, run_id)
            if run is None:
                return _problem("Choose a first and a second run in the list of runs.", 404)
            try:
                summaries.append(run.read())
            except DataError as error:
                return _problem(str(error), 500)
        return HTMLResponse(make_comparison(*summaries))

    def show_nothing(request: Request, error: Exception) -> Response:
        del request, error
        return _problem("There is no page at this address.", 404)

    return Starlette(
        exception_handlers={404: show_nothing},
        routes=[
            Route("/", show_list),
            Route("/runs/{pipeline}/{run}", show_run),
            Route("/compare", show_comparison),
        ],
        middleware=[
            Middleware(_WithHeaders),
            Middleware(
                TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False
            ),
        ],
    )


def _find(output: Path, pipeline: str, run_id: str) -> StoredRun | None:
    """Returns a run by names from an address, which are only compared with names of folders."""
    if pipeline not in list_pipelines(output):
        return None
    runs = list_runs(output, pipeline)
    return next((run for run in runs if run.id == run_id), None)


def _problem(text: str, code: int) -> Response:
    return HTMLResponse(render("problem.html.j2", title="No page", text=text), code)


def serve_reports(output: Path, port: int) -> None:
    """Serves the reports until a signal ends the process.

    Args:
      port: the port on this machine; 0 chooses a free port.

    Raises:
      ConfigError: the port cannot be used.
    """
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigError(
            f"--port {port}: the port cannot be used ({reason}); give another port, such as 8601"
        ) from None
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    print(f"{address} shows the runs below {output}; Ctrl-C ends the server", flush=True)  # noqa: T201
    config = uvicorn.Config(make_app(output), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])
