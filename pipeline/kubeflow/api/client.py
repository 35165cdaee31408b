"""The calls of Kubeflow Pipelines' API that Scopeline makes, by kfp's own generated client."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kfp_server_api as kfp_api
import urllib3

from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.kubeflow.api.endpoint import find_api, user_namespace
from pipeline.kubeflow.api.errors import (
    OLDEST,
    WHERE,
    NotFoundError,
    UnavailableError,
    check_json,
    explained,
    message_of,
    shown_endpoint,
)
from trainer_module.errors import ConfigError, DataError, InternalError
from trainer_module.scratch import ScratchFolder

CONNECT_SECONDS, READ_SECONDS = 3, 30
"""Limits of one attempt to connect and to read; urllib3 makes several attempts."""
PAGE_SIZE = 100
_NEWEST_FIRST = "created_at desc"
_LOG = "/apis/v1alpha1/runs/{run_id}/nodes/{node_id}/log"
_ERROR_BEGINS = b'{"error_'


class NoLogError(DataError):
    """A log cannot be read, because its pod is gone for example."""


class Kubeflow:
    """An installation of Kubeflow Pipelines; every method raises as `explained` does."""

    def __init__(
        self, connection: Any, endpoint: str, namespace: str | None, lost_retries: int = 0
    ) -> None:
        """Wraps a connection that works; `connect` makes one.

        Args:
          connection: a generated API client, which has the credentials.
          endpoint: its address, as people may see it.
          namespace: that of the user where there are several; else None.
          lost_retries: how many retries of each step the config asks for, if there are none here.
        """
        self.endpoint = endpoint
        self._namespace = namespace
        self._lost_retries = lost_retries
        self._connection = connection
        self._pipelines = kfp_api.PipelineServiceApi(connection)
        self._uploads = kfp_api.PipelineUploadServiceApi(connection)
        self._experiments = kfp_api.ExperimentServiceApi(connection)
        self._runs = kfp_api.RunServiceApi(connection)
        self._recurring = kfp_api.RecurringRunServiceApi(connection)

    @classmethod
    def connect(cls, settings: KubeflowSettings) -> Kubeflow:
        """Finds the API as kfp does, and asks whether it is there.

        Args:
          settings: name the endpoint and the namespace, or leave it to the environment.

        Raises:
          ConfigError: nothing says where the API is, or what is there is none.
        """
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        connection = find_api(settings)
        shown = shown_endpoint(connection.configuration.host)
        method = kfp_api.HealthzServiceApi(connection).healthz_service_get_healthz_with_http_info
        try:
            health = _call(shown, "ask for its health", method)
        except NotFoundError:
            raise ConfigError(
                f"{shown}: this is no API of Kubeflow Pipelines {OLDEST} or newer (404); {WHERE}"
            ) from None
        namespace = user_namespace(settings) if health.multi_user else None
        # It says so from 2.14 on. Of its `tag_name` the images of 2.5 to 2.15 know nothing.
        is_older = health.pipeline_store is None
        return cls(connection, shown, namespace, settings.retries if is_older else 0)

    def check_retries(self) -> None:
        """Returns if steps that fail are tried again here, or need not be.

        Raises:
          ConfigError: they are not, and the config asks for that.
        """
        if self._lost_retries:
            raise ConfigError(
                f"kubeflow.retries: found {self._lost_retries}, but {self.endpoint} is older than "
                f"Kubeflow Pipelines {OLDEST} and tries no step again but the last; upgrade it, or "
                "set kubeflow.retries=0"
            )

    def pipeline_id(self, name: str) -> str | None:
        """The pipeline of a name; None if there is none."""
        found = self._all(
            f"look for the pipeline `{name}`",
            self._pipelines.pipeline_service_list_pipelines_with_http_info,
            "pipelines",
            filter=_named(name),
            **self._in_namespace(),
        )
        return next((item.pipeline_id for item in found), None)

    def create_pipeline(self, name: str) -> str:
        """A new pipeline, which has no version yet."""
        body = kfp_api.V2beta1Pipeline(display_name=name, namespace=self._namespace)
        method = self._pipelines.pipeline_service_create_pipeline_with_http_info
        return str(self._call(f"create the pipeline `{name}`", method, body).pipeline_id)

    def version_id(self, pipeline: str, name: str) -> str | None:
        """The version of a name; None if there is none."""
        found = self._all(
            f"look for the version `{name}`",
            self._pipelines.pipeline_service_list_pipeline_versions_with_http_info,
            "pipeline_versions",
            pipeline_id=pipeline,
            filter=_named(name),
        )
        return next((item.pipeline_version_id for item in found), None)

    def version_name(self, pipeline: str, version: str) -> str | None:
        """The name of a version; None if it was deleted."""
        method = self._pipelines.pipeline_service_get_pipeline_version_with_http_info
        try:
            return str(
                self._call(f"read the version {version}", method, pipeline, version).display_name
            )
        except NotFoundError:
            return None

    def upload_version(self, pipeline: str, name: str, specification: str) -> str:
        """A new version of a pipeline."""
        with ScratchFolder() as folder:
            file = Path(folder) / f"{name}.yaml"
            file.write_text(specification)
            method = self._uploads.upload_pipeline_version_with_http_info
            answer = self._call(
                f"upload the version `{name}`", method, str(file), name=name, pipelineid=pipeline
            )
        return str(answer.pipeline_version_id)

    def experiment_id(self, name: str) -> str | None:
        """The experiment of a name; None if there is none."""
        found = self._all(
            f"look for the experiment `{name}`",
            self._experiments.experiment_service_list_experiments_with_http_info,
            "experiments",
            filter=_named(name),
            **self._in_namespace(),
        )
        return next((item.experiment_id for item in found), None)

    def create_experiment(self, name: str) -> str:
        """A new experiment."""
        body = kfp_api.V2beta1Experiment(display_name=name, namespace=self._namespace)
        method = self._experiments.experiment_service_create_experiment_with_http_info
        return str(self._call(f"create the experiment `{name}`", method, body).experiment_id)

    def create_run(self, run: kfp_api.V2beta1Run) -> str:
        """Starts a run."""
        method = self._runs.run_service_create_run_with_http_info
        return str(self._call("create a run", method, run).run_id)

    def run(self, run_id: str) -> kfp_api.V2beta1Run:
        """A run, with what its tasks do."""
        method = self._runs.run_service_get_run_with_http_info
        return self._call(f"read the run {run_id}", method, run_id)

    def runs(self, experiment: str) -> Iterator[kfp_api.V2beta1Run]:
        """The runs of an experiment, newest first."""
        return self._all(
            "list runs",
            self._runs.run_service_list_runs_with_http_info,
            "runs",
            experiment_id=experiment,
            sort_by=_NEWEST_FIRST,
        )

    def terminate(self, run_id: str) -> None:
        """Stops a run."""
        method = self._runs.run_service_terminate_run_with_http_info
        self._call(f"terminate the run {run_id}", method, run_id)

    def recurring_runs(self, name: str) -> list[kfp_api.V2beta1RecurringRun]:
        """The recurring runs of a name, oldest first."""
        found = self._all(
            f"look for recurring runs called `{name}`",
            self._recurring.recurring_run_service_list_recurring_runs_with_http_info,
            "recurring_runs",
            filter=_named(name),
            sort_by="created_at",
            **self._in_namespace(),
        )
        return list(found)

    def create_recurring_run(self, body: kfp_api.V2beta1RecurringRun) -> str:
        """A new recurring run."""
        method = self._recurring.recurring_run_service_create_recurring_run_with_http_info
        return str(self._call("create a recurring run", method, body).recurring_run_id)

    def enable(self, recurring: str) -> None:
        """Lets a recurring run start runs."""
        method = self._recurring.recurring_run_service_enable_recurring_run_with_http_info
        self._call(f"enable the recurring run {recurring}", method, recurring)

    def disable(self, recurring: str) -> None:
        """Lets a recurring run start no more runs."""
        method = self._recurring.recurring_run_service_disable_recurring_run_with_http_info
        self._call(f"disable the recurring run {recurring}", method, recurring)

    def delete(self, recurring: str) -> None:
        """Deletes a recurring run.

        From Kubeflow 2.16 on the runs that it started stay. Older versions delete their pods, also
        those of a run that is under way.
        """
        method = self._recurring.recurring_run_service_delete_recurring_run_with_http_info
        self._call(
            f"delete the recurring run {recurring}", method, recurring, propagation_policy="ORPHAN"
        )

    def log(self, run_id: str, pod: str) -> Iterator[bytes]:
        """The log of a pod so far, in pieces.

        Raises:
          NoLogError: the pod is gone, or the API does not read logs.
        """
        try:
            with explained(self.endpoint, f"read the log of {pod}"):
                yield from self._stream(run_id, pod)
        except UnavailableError:
            raise
        except (ConfigError, InternalError) as error:
            raise NoLogError(str(error)) from None

    def _stream(self, run_id: str, pod: str) -> Iterator[bytes]:
        answer = self._connection.call_api(
            _LOG,
            "GET",
            path_params={"run_id": run_id, "node_id": pod},
            auth_settings=["Bearer"],
            _preload_content=False,
            _request_timeout=(CONNECT_SECONDS, READ_SECONDS),
        )
        with contextlib.closing(answer):
            pieces = answer.stream(1 << 16)
            first = next(pieces, b"")
            if first.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
                raise NoLogError(f"the log of {pod} cannot be read: {self.endpoint} gives a page")
            if first.startswith(_ERROR_BEGINS):
                # The API sends status 200 before it looks for the pod.
                body = first + b"".join(pieces)
                raise NoLogError(f"the log of {pod} cannot be read: {message_of(body)}")
            yield first
            yield from pieces

    def _in_namespace(self) -> dict[str, str]:
        return {} if self._namespace is None else {"namespace": self._namespace}

    def _call(self, action: str, method: Callable[..., Any], *values: Any, **options: Any) -> Any:
        return _call(self.endpoint, action, method, *values, **options)

    def _all(
        self, action: str, method: Callable[..., Any], items: str, **options: Any
    ) -> Iterator[Any]:
        """The items of all pages."""
        token = ""
        while True:
            page = self._call(action, method, page_token=token, page_size=PAGE_SIZE, **options)
            yield from getattr(page, items) or []
            token = page.next_page_token
            if not token:
                return


def _call(
    endpoint: str, action: str, method: Callable[..., Any], *values: Any, **options: Any
) -> Any:
    """Makes a call that answers JSON; gives the answer's model."""
    with explained(endpoint, action):
        answer, _, headers = method(
            *values, _request_timeout=(CONNECT_SECONDS, READ_SECONDS), **options
        )
    check_json(endpoint, urllib3.HTTPHeaderDict(headers))
    return answer


def _named(name: str) -> str:
    """The filter for things of a name."""
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    return json.dumps({"predicates": [predicate]})
