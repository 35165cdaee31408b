"""A small Kubeflow Pipelines: the calls of its API that Scopeline makes, over real HTTP.

Requests are checked as the real one does: paths, query parameters, and bodies by the models of
kfp's own generated client; what it does not know it refuses. Everything is kept in memory, and
every request is kept too. Runs play the scripts of `played_runs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import yaml
from kfp_http import V2, HttpApi, RefusedError, Request, Route, multipart, parse
from played_runs import Play

LIST = {"page_token", "page_size", "sort_by", "filter"}
RUN = r"/runs/(?P<id>[^/:]+)"
RECURRING = r"/recurringruns/(?P<id>[^/:]+)"


@dataclass(kw_only=True)
class KfpServer(HttpApi):
    """The state of it."""

    multi_user: bool = False
    is_old: bool = False
    """Whether it is of before 2.14."""
    page_size: int = 2
    """At most so many items are in a page."""
    pipelines: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    uploads: dict[str, str] = field(default_factory=dict)
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    recurring: dict[str, dict[str, Any]] = field(default_factory=dict)
    play: Play = field(default_factory=Play)
    """What new runs do."""
    plays: dict[str, Play] = field(default_factory=dict)
    created: int = 0

    def routes(self) -> list[Route]:
        return [
            ("GET", f"{V2}/healthz", set(), lambda _: self._health()),
            (
                "GET",
                f"{V2}/pipelines",
                LIST | {"namespace"},
                self._list(self.pipelines, "pipelines"),
            ),
            ("POST", f"{V2}/pipelines", set(), self._create_pipeline),
            ("POST", f"{V2}/pipelines/upload_version", {"name", "pipelineid"}, self._upload),
            ("GET", f"{V2}/pipelines/([^/]+)/versions", LIST, self._list_versions),
            ("GET", f"{V2}/pipelines/([^/]+)/versions/([^/]+)", set(), self._version),
            (
                "GET",
                f"{V2}/experiments",
                LIST | {"namespace"},
                self._list(self.experiments, "experiments"),
            ),
            ("POST", f"{V2}/experiments", set(), self._create_experiment),
            ("GET", f"{V2}/runs", LIST | {"namespace", "experiment_id"}, self._list_runs),
            ("POST", f"{V2}/runs", {"experiment_id"}, self._create_run),
            ("GET", V2 + RUN, {"experiment_id"}, self._run),
            ("POST", V2 + RUN + ":terminate", {"experiment_id"}, self._terminate),
            (
                "GET",
                f"{V2}/recurringruns",
                LIST | {"namespace", "experiment_id"},
                self._list(self.recurring, "recurringRuns"),
            ),
            ("POST", f"{V2}/recurringruns", set(), self._create_recurring),
            ("POST", V2 + RECURRING + ":enable", set(), self._mode("ENABLE")),
            ("POST", V2 + RECURRING + ":disable", set(), self._mode("DISABLE")),
            ("DELETE", V2 + RECURRING, {"propagation_policy"}, self._delete_recurring),
            ("GET", "/apis/v1alpha1" + RUN + "/nodes/([^/]+)/log", set(), self._log),
        ]

    def _health(self) -> dict[str, Any]:
        """As backend/src/apiserver/main.go has it: 2.5.0 names no store of pipelines yet."""
        health = {"commit_sha": "unknown", "tag_name": "unknown", "multi_user": self.multi_user}
        return health | ({} if self.is_old else {"pipeline_store": "database"})

    def _list(
        self, things: dict[str, dict[str, Any]], items: str, key: str = "", of: str = ""
    ) -> Callable[[Request], Any]:
        def answer(request: Request) -> Any:
            query = request.query
            self._check_namespace(query.get("namespace", "") or of)
            chosen = [t for t in things.values() if not key or t[key] == of]
            if "filter" in query:
                [predicate] = json.loads(query["filter"])["predicates"]
                if set(predicate) != {"operation", "key", "stringValue"}:
                    raise RefusedError(400, f"unknown filter {predicate}")
                if (predicate["operation"], predicate["key"]) != ("EQUALS", "display_name"):
                    raise RefusedError(400, f"unknown filter {predicate}")
                chosen = [t for t in chosen if t["display_name"] == predicate["stringValue"]]
            order = query.get("sort_by") or "created_at"
            if order not in ("created_at", "created_at desc"):
                raise RefusedError(400, f"unknown order {order}")
            chosen.sort(key=lambda t: t["created_at"], reverse=order.endswith("desc"))
            begin = int(query.get("page_token") or 0)
            end = begin + min(self.page_size, int(query["page_size"]))
            page = {items: chosen[begin:end]} if chosen[begin:end] else {}
            return page | ({"next_page_token": str(end)} if end < len(chosen) else {})

        return answer

    def _check_namespace(self, namespace: str | None) -> None:
        if self.multi_user and not namespace:
            raise RefusedError(400, "A namespace is required in multi-user mode")

    def _new(self, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        self.created += 1
        minutes, seconds = divmod(self.created, 60)
        return str(uuid4()), body | {"created_at": f"2026-01-05T03:{minutes:02}:{seconds:02}Z"}

    def _create_pipeline(self, request: Request) -> Any:
        body = parse(request, "V2beta1Pipeline")
        self._check_namespace(body.get("namespace"))
        if any(p["display_name"] == body["display_name"] for p in self.pipelines.values()):
            raise RefusedError(409, f"The name {body['display_name']} already exists")
        key, made = self._new(body)
        self.pipelines[key] = made | {"pipeline_id": key}
        return self.pipelines[key]

    def _upload(self, request: Request) -> Any:
        pipeline, name = request.query["pipelineid"], request.query["name"]
        if pipeline not in self.pipelines:
            raise RefusedError(404, f"Pipeline {pipeline} not found")
        if any(v["display_name"] == name for v in self._versions_of(pipeline)):
            raise RefusedError(409, f"The name {name} already exists")
        [part] = multipart(request)
        assert part.get_param("name", header="content-disposition") == "uploadfile"
        text = part.get_payload(decode=True).decode()
        assert next(yaml.safe_load_all(text))["pipelineInfo"]
        key, made = self._new({"display_name": name, "pipeline_id": pipeline})
        self.versions[key] = made | {"pipeline_version_id": key}
        self.uploads[name] = text
        return self.versions[key]

    def _versions_of(self, pipeline: str) -> list[dict[str, Any]]:
        return [v for v in self.versions.values() if v["pipeline_id"] == pipeline]

    def _list_versions(self, request: Request, pipeline: str) -> Any:
        return self._list(self.versions, "pipeline_versions", "pipeline_id", pipeline)(request)

    def _version(self, _: Request, pipeline: str, version: str) -> Any:
        found = self.versions.get(version)
        if found is None or found["pipeline_id"] != pipeline:
            raise RefusedError(404, f"PipelineVersion {version} not found")
        return found

    def _create_experiment(self, request: Request) -> Any:
        body = parse(request, "V2beta1Experiment")
        self._check_namespace(body.get("namespace"))
        key, made = self._new(body)
        self.experiments[key] = made | {"experiment_id": key}
        return self.experiments[key]

    def _check_references(self, body: dict[str, Any]) -> None:
        reference = body["pipeline_version_reference"]
        version = self.versions.get(reference["pipeline_version_id"])
        if version is None or version["pipeline_id"] != reference["pipeline_id"]:
            raise RefusedError(404, f"there is no version {reference}")
        if body["experiment_id"] not in self.experiments:
            raise RefusedError(404, f"there is no experiment {body['experiment_id']}")

    def _list_runs(self, request: Request) -> Any:
        experiment = request.query["experiment_id"]
        return self._list(self.runs, "runs", "experiment_id", experiment)(request)

    def _create_run(self, request: Request) -> Any:
        body = parse(request, "V2beta1Run")
        self._check_references(body)
        key, made = self._new(body)
        version = self.versions[body["pipeline_version_reference"]["pipeline_version_id"]]
        parameters = (body.get("runtime_config") or {}).get("parameters") or {}
        text = self.uploads[version["display_name"]]
        self.plays[key] = self.begin(key, text, parameters)
        self.runs[key] = made | {"run_id": key, "state": "PENDING"}
        return self.runs[key]

    def begin(self, _run: str, _specification: str, _parameters: dict[str, Any]) -> Play:
        """What a new run does, of the pipeline that was uploaded."""
        return self.play

    def _find_run(self, key: str) -> dict[str, Any]:
        if key not in self.runs:
            raise RefusedError(404, f"Run {key} not found")
        return self.runs[key]

    def _run(self, _: Request, key: str) -> Any:
        run = self._find_run(key)
        state, tasks = self.plays[key].look(key)
        run["state"] = "CANCELED" if run["state"] == "CANCELING" else state
        return run | {"run_details": {"task_details": tasks}}

    def _terminate(self, _: Request, key: str) -> Any:
        self._find_run(key)["state"] = "CANCELING"
        return {}

    def _create_recurring(self, request: Request) -> Any:
        body = parse(request, "V2beta1RecurringRun")
        self._check_references(body)
        fields = body["trigger"]["cron_schedule"]["cron"].split()
        if len(fields) != 6 or "7" in fields[5]:
            raise RefusedError(400, f"Schedule cron is not supported: {' '.join(fields)}")
        key, made = self._new({"service_account": "pipeline-runner"} | body)
        self.recurring[key] = made | {"recurring_run_id": key, "status": f"{body['mode']}D"}
        if not made["runtime_config"].get("parameters"):
            del self.recurring[key]["runtime_config"]
        return self.recurring[key]

    def _mode(self, mode: str) -> Callable[..., Any]:
        def answer(_: Request, key: str) -> Any:
            if key not in self.recurring:
                raise RefusedError(404, f"Recurring run {key} not found")
            self.recurring[key] |= {"mode": mode, "status": f"{mode}D"}
            return {}

        return answer

    def _delete_recurring(self, request: Request, key: str) -> Any:
        if self.recurring.pop(key, None) is None:
            raise RefusedError(404, f"Recurring run {key} not found")
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
