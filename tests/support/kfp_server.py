"""A small Kubeflow Pipelines: the calls of its API that Scopeline makes, over real HTTP.

Bodies and queries are built by kfp's own client, so what is checked here is what they refer to.
Everything is kept in memory, and every request is kept too. Runs play the scripts of `played_runs`.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

import yaml

from tests.support.played_runs import Play

V2 = "/apis/v2beta1"
Things = dict[str, dict[str, Any]]


@dataclass
class Request:
    """One that came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    """Read, if it is JSON."""
    headers: dict[str, str]

    @property
    def call(self) -> str:
        return f"{self.method} {self.path.removeprefix(V2)}"


class RefusedError(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Answer:
    """What is sent back in place of the right answer."""

    status: int
    body: str = ""
    kind: str = "application/json"
    drops: bool = False
    """Whether the connection is closed without an answer."""


@dataclass(kw_only=True)
class KfpServer:
    """The state of it."""

    token: str | None = None
    tls: ssl.SSLContext | None = None
    multi_user: bool = False
    is_old: bool = False
    """Whether it is of before 2.14."""
    page_size: int = 2
    """At most so many items are in a page."""
    play: Play = field(default_factory=Play)
    """What new runs do."""
    changes_left: int | None = None
    """After so many changes, everything fails: as if whoever asks had been killed."""
    requests: list[Request] = field(default_factory=list)
    troubles: list[tuple[str, Answer]] = field(default_factory=list)
    pipelines: Things = field(default_factory=dict)
    versions: Things = field(default_factory=dict)
    uploads: dict[str, str] = field(default_factory=dict)
    experiments: Things = field(default_factory=dict)
    runs: Things = field(default_factory=dict)
    plays: dict[str, Play] = field(default_factory=dict)
    recurring: Things = field(default_factory=dict)
    created: int = 0

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # Head and body in one packet.

            def handle_any(self) -> None:
                server.handle(self)

            do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        if self.tls is not None:
            self._http.socket = self.tls.wrap_socket(self._http.socket, server_side=True)
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._http.server_address[1]}"

    @property
    def calls(self) -> list[str]:
        """The requests, without the ids of things."""
        return [re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", r.call) for r in self.requests]

    @property
    def changes(self) -> list[str]:
        """The requests that changed something."""
        return [call for call in self.calls if not call.startswith("GET ")]

    def trouble(self, call: str, *answers: Answer) -> None:
        """Answers the next requests that match the pattern otherwise."""
        self.troubles += [(call, answer) for answer in answers]

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        url, headers = urlsplit(http.path), dict(http.headers)
        body: Any = http.rfile.read(int(headers.get("Content-Length") or 0))
        if body and "json" in headers["Content-Type"]:
            body = json.loads(body)
        request = Request(
            http.command, unquote(url.path), dict(parse_qsl(url.query)), body, headers
        )
        self.requests.append(request)
        for i, (call, trouble) in enumerate(self.troubles):
            if re.search(call, request.call):
                del self.troubles[i]
                if trouble.drops:
                    http.close_connection = True
                    http.connection.close()
                else:
                    _send(http, trouble.status, trouble.body, trouble.kind)
                return
        try:
            answer = self._answer(request)
        except RefusedError as error:
            told = {"error": str(error), "code": 3, "message": str(error), "details": []}
            _send(http, error.status, json.dumps(told), "application/json")
            return
        if isinstance(answer, str):
            _send(http, 200, answer, "text/plain; charset=utf-8")
        else:
            _send(http, 200, json.dumps(answer), "application/json")

    def _answer(self, request: Request) -> Any:
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            raise RefusedError(401, "Request header error: there is no user identity header.")
        if self.changes_left == 0:
            raise RefusedError(500, "nothing goes any more")
        if self.changes_left is not None and request.method != "GET":
            self.changes_left -= 1
        for pattern, handler in self._routes().items():
            if found := re.fullmatch(pattern, request.call):
                return handler(request, *found.groups())
        raise RefusedError(404, "Not Found")

    def _routes(self) -> dict[str, Callable[..., Any]]:
        part = "([^/:]+)"
        return {
            "GET /healthz": lambda _: self._health(),
            "GET /pipelines": lambda r: self._page(r, "pipelines", self.pipelines),
            "POST /pipelines": self._create_pipeline,
            "POST /pipelines/upload_version": self._upload,
            f"GET /pipelines/{part}/versions": self._list_versions,
            f"GET /pipelines/{part}/versions/{part}": lambda _, __, v: _get(self.versions, v),
            "GET /experiments": lambda r: self._page(r, "experiments", self.experiments),
            "POST /experiments": self._create_experiment,
            "GET /runs": self._list_runs,
            "POST /runs": self._create_run,
            f"GET /runs/{part}": lambda _, run: self._run(run),
            f"POST /runs/{part}:terminate": lambda _, run: self._terminate(run),
            "GET /recurringruns": lambda r: self._page(r, "recurringRuns", self.recurring),
            "POST /recurringruns": self._create_recurring,
            f"POST /recurringruns/{part}:(enable|disable)": self._switch,
            f"DELETE /recurringruns/{part}": self._delete_recurring,
            f"GET /apis/v1alpha1/runs/{part}/nodes/{part}/log": self._log,
        }

    def _health(self) -> dict[str, Any]:
        """As backend/src/apiserver/main.go has it: 2.5.0 names no store of pipelines yet."""
        health = {"commit_sha": "unknown", "tag_name": "unknown", "multi_user": self.multi_user}
        return health | ({} if self.is_old else {"pipeline_store": "database"})

    def _page(self, request: Request, items: str, things: Things, namespace: str = "") -> Any:
        """One page of the things that a filter names, in the requested order."""
        query = request.query
        self._check_namespace(query.get("namespace") or namespace)
        chosen = list(things.values())
        if "filter" in query:
            [predicate] = json.loads(query["filter"])["predicates"]
            assert (predicate["operation"], predicate["key"]) == ("EQUALS", "display_name")
            chosen = [t for t in chosen if t["display_name"] == predicate["stringValue"]]
        order = query.get("sort_by", "created_at")
        assert order in ("created_at", "created_at desc")
        chosen.sort(key=lambda t: t["created_at"], reverse=order.endswith("desc"))
        begin = int(query.get("page_token") or 0)
        end = begin + min(self.page_size, int(query["page_size"]))
        page = {items: chosen[begin:end]} if chosen[begin:end] else {}
        return page | ({"next_page_token": str(end)} if end < len(chosen) else {})

    def _check_namespace(self, namespace: str | None) -> None:
        if self.multi_user and not namespace:
            raise RefusedError(400, "A namespace is required in multi-user mode")

    def _add(self, things: Things, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        self.created += 1
        minutes, seconds = divmod(self.created, 60)
        key, made = str(uuid4()), {"created_at": f"2026-01-05T03:{minutes:02}:{seconds:02}Z"}
        things[key] = body | made | {f"{kind}_id": key}
        return things[key]

    def _create_pipeline(self, request: Request) -> Any:
        self._check_namespace(request.body.get("namespace"))
        _check_new(self.pipelines.values(), request.body["display_name"])
        return self._add(self.pipelines, "pipeline", request.body)

    def _upload(self, request: Request) -> Any:
        pipeline, name = request.query["pipelineid"], request.query["name"]
        _get(self.pipelines, pipeline)
        _check_new((v for v in self.versions.values() if v["pipeline_id"] == pipeline), name)
        head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
        [part] = BytesParser(policy=HTTP).parsebytes(head + request.body).iter_parts()
        text = part.get_payload(decode=True).decode()
        assert next(yaml.safe_load_all(text))["pipelineInfo"]
        self.uploads[name] = text
        body = {"display_name": name, "pipeline_id": pipeline}
        return self._add(self.versions, "pipeline_version", body)

    def _list_versions(self, request: Request, pipeline: str) -> Any:
        of = {key: v for key, v in self.versions.items() if v["pipeline_id"] == pipeline}
        return self._page(request, "pipeline_versions", of, pipeline)

    def _create_experiment(self, request: Request) -> Any:
        self._check_namespace(request.body.get("namespace"))
        _check_new(self.experiments.values(), request.body["display_name"])
        return self._add(self.experiments, "experiment", request.body)

    def _check_references(self, body: dict[str, Any]) -> dict[str, Any]:
        """The version that a body names."""
        _get(self.experiments, body["experiment_id"])
        reference = body["pipeline_version_reference"]
        version = _get(self.versions, reference["pipeline_version_id"])
        assert version["pipeline_id"] == reference["pipeline_id"]
        return version

    def _list_runs(self, request: Request) -> Any:
        experiment = request.query["experiment_id"]
        of = {key: r for key, r in self.runs.items() if r["experiment_id"] == experiment}
        return self._page(request, "runs", of, experiment)

    def _create_run(self, request: Request) -> Any:
        version = self._check_references(request.body)
        run = self._add(self.runs, "run", request.body | {"state": "PENDING"})
        key, parameters = run["run_id"], request.body["runtime_config"].get("parameters") or {}
        try:
            self.plays[key] = self.begin(key, self.uploads[version["display_name"]], parameters)
        except RefusedError:
            del self.runs[key]
            raise
        return run

    def begin(self, _run: str, _specification: str, _parameters: dict[str, Any]) -> Play:
        """What a new run does, of the pipeline that was uploaded."""
        return self.play

    def _run(self, key: str) -> Any:
        run = _get(self.runs, key, "Run")
        state, tasks = self.plays[key].look(key)
        run["state"] = "CANCELED" if run["state"] == "CANCELING" else state
        return run | {"run_details": {"task_details": tasks}}

    def _terminate(self, key: str) -> Any:
        _get(self.runs, key, "Run")["state"] = "CANCELING"
        return {}

    def _create_recurring(self, request: Request) -> Any:
        body = {"service_account": "pipeline-runner"} | request.body
        self._check_references(body)
        fields = body["trigger"]["cron_schedule"]["cron"].split()
        if len(fields) != 6 or "7" in fields[5]:
            raise RefusedError(400, f"Schedule cron is not supported: {' '.join(fields)}")
        if not body["runtime_config"].get("parameters"):
            del body["runtime_config"]
        # A number of 64 bits is text in what the API answers.
        body |= {"status": f"{body['mode']}D", "max_concurrency": str(body["max_concurrency"])}
        return self._add(self.recurring, "recurring_run", body)

    def _switch(self, _: Request, key: str, how: str) -> Any:
        item = _get(self.recurring, key)
        item |= {"mode": how.upper(), "status": f"{how.upper()}D"}
        return {}

    def _delete_recurring(self, request: Request, key: str) -> Any:
        _get(self.recurring, key)
        del self.recurring[key]
        if request.query.get("propagation_policy") != "ORPHAN":
            # Kubernetes deletes what the recurring run owns.
            for run in self.runs.values():
                if run.get("recurring_run_id") == key:
                    run["state"] = "FAILED"
        return {}

    def _log(self, _: Request, run: str, pod: str) -> Any:
        log = self.plays[run].log(pod) if run in self.plays else None
        if log is None:
            # With status 200, which the real one has sent when it notices.
            message = f"Failed to read logs for run {run}"
            return json.dumps({"error_message": message, "error_details": "a stack trace"})
        return log


def _get(things: Things, key: str, kind: str = "Thing") -> dict[str, Any]:
    if key not in things:
        raise RefusedError(404, f"{kind} {key} not found")
    return things[key]


def _check_new(things: Iterable[dict[str, Any]], name: str) -> None:
    if any(thing["display_name"] == name for thing in things):
        raise RefusedError(409, f"Already exist error: {name}")


def _send(http: BaseHTTPRequestHandler, status: int, body: str, kind: str) -> None:
    data = body.encode()
    http.send_response(status)
    http.send_header("Content-Type", kind)
    http.send_header("Content-Length", str(len(data)))
    http.end_headers()
    http.wfile.write(data)
