"""A client for an installation of Kubeflow Pipelines, on top of kfp's own client.

This client adds readable errors, paging and logs of pods, and suppresses kfp's output.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from pipeline.credentials import mask_credentials
from pipeline.kubeflow.api.errors import (
    OLDEST,
    WHERE,
    ConflictError,
    NotFoundError,
    ServerFailedError,
    UnavailableError,
    check_json,
    find_api,
    message_of,
    translated_errors,
    user_namespace,
)
from pipeline.kubeflow.cluster_layout import pipeline_name
from pipeline.kubeflow.compiled import CompiledPipeline, Parameters
from trainer_module.errors import ConfigError, DataError, InternalError
from trainer_module.scratch import ScratchFolder

if TYPE_CHECKING:
    import kfp_server_api as kfp_api

PAGE_SIZE = 100
MAX_RUNS = 1000
"""The number of most recent runs that are searched for the runs of a pipeline."""
_LOG = "/apis/v1alpha1/runs/{run_id}/nodes/{node_id}/log"
_ERROR_BEGINS = b'{"error_'
_PIECE_BYTES = 1 << 16
_MAX_WAIT = 30.0
"""The maximum pause in seconds between two attempts at a call."""
Result = TypeVar("Result")


class NoLogError(DataError):
    """A log that cannot be read, for example because its pod is gone."""


@dataclass(frozen=True)
class Polling:
    """The settings for polling a run and for retrying a call. All times are in seconds."""

    interval: float = 3.0
    """The pause between two calls that read the run."""
    retry_seconds: float = 300.0
    """The time for which a call is retried while Kubeflow does not respond."""
    timeout: float | None = None
    """The maximum time for which the run is followed. Afterwards, the run itself continues."""

    def retry(self, call: Callable[[], Result]) -> Result:
        """Returns the result of a call; retries with exponential backoff if Kubeflow is silent.

        Raises:
          UnavailableError, ServerFailedError: there was no response for `retry_seconds`.
        """
        deadline = time.monotonic() + self.retry_seconds
        wait = self.interval
        while True:
            try:
                return call()
            except (UnavailableError, ServerFailedError):
                if time.monotonic() + wait > deadline:
                    raise
                time.sleep(wait)
                wait = min(wait * 2, _MAX_WAIT)


@dataclass(frozen=True)
class PipelineVersion:
    """A version of a pipeline that is uploaded to Kubeflow."""

    pipeline: str
    """The id of the pipeline."""
    version: str
    """The id of the version."""
    name: str
    is_new: bool = False
    """Whether this call uploaded the version."""


class Kubeflow:
    """A client for an installation of Kubeflow Pipelines; every method raises as
    `translated_errors` does.
    """

    def __init__(self, settings: KubeflowSettings) -> None:
        """Connects to the API as kfp does, and checks its health.

        Args:
          settings: the endpoint and the namespace, by default from the environment; the experiment
            and the service account of runs.

        Raises:
          ConfigError: no endpoint is configured, or there is no such API at the endpoint.
        """
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        self._settings = settings
        self._kfp, self._connection = find_api(settings)
        self.endpoint = mask_credentials(self._connection.configuration.host)
        """The address of the API with masked credentials."""
        try:
            health = self._call("read its health", self._kfp.healthzs.healthz_service_get_healthz)
        except NotFoundError:
            raise ConfigError(
                f"{self.endpoint}: this is not the API of Kubeflow Pipelines {OLDEST} or newer "
                f"(404); {WHERE}"
            ) from None
        self._namespace = user_namespace(settings) if health.multi_user else None
        # The field exists since 2.14. The field `tag_name` is missing in the images of 2.5 to 2.15.
        self._is_older = health.pipeline_store is None

    def ensure_version(self, compiled: CompiledPipeline) -> PipelineVersion:
        """Returns the pipeline's version with this content; uploads it if it does not exist.

        Raises:
          ConfigError: the config requests retries, which this version of Kubeflow does not support.
        """
        if self._is_older and self._settings.retries:
            raise ConfigError(
                f"kubeflow.retries: found {self._settings.retries}, but {self.endpoint} is older "
                f"than Kubeflow Pipelines {OLDEST} and retries only the last step; upgrade "
                "Kubeflow, or set kubeflow.retries=0"
            )
        name = compiled.version
        pipeline, _ = _find_or_create(
            partial(self.pipeline_id, compiled.name), partial(self._create_pipeline, compiled.name)
        )
        method, options = self._kfp.list_pipeline_versions, {"pipeline_id": pipeline}
        version, is_new = _find_or_create(
            partial(self._find, "version", name, method, "pipeline_version", **options),
            partial(self._upload, pipeline, compiled),
        )
        return PipelineVersion(pipeline, version, name, is_new)

    def start_run(self, version: PipelineVersion, parameters: Parameters) -> str:
        """Starts a run, and returns its id.

        Args:
          parameters: the parameters that differ from their defaults.
        """
        experiment, _ = _find_or_create(self.experiment_id, self._create_experiment)
        name = f"{version.name} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        run = self._call(
            "create a run",
            self._kfp.run_pipeline,
            experiment,
            name,
            params=dict(parameters),
            pipeline_id=version.pipeline,
            version_id=version.version,
            service_account=self._settings.service_account,
        )
        return str(run.run_id)

    def run(self, run_id: str) -> kfp_api.V2beta1Run:
        """Returns a run with the states of its tasks."""
        return self._call(f"read the run {run_id}", self._kfp.get_run, run_id)

    def runs_of(self, config: PipelineConfig) -> Iterator[kfp_api.V2beta1Run]:
        """Yields the runs of a pipeline, newest first."""
        pipeline = self.pipeline_id(pipeline_name(config))
        experiment = self.experiment_id() if pipeline else None
        if experiment is None:
            return
        options = {"experiment_id": experiment, "sort_by": "created_at desc"}
        runs = self._all("list runs", self._kfp.list_runs, "runs", **options)
        for run in islice(runs, MAX_RUNS):
            reference = run.pipeline_version_reference
            if reference is not None and reference.pipeline_id == pipeline:
                yield run

    def terminate(self, run_id: str) -> None:
        """Stops a run that is in progress."""
        self._call(f"terminate the run {run_id}", self._kfp.terminate_run, run_id)

    def log(self, run_id: str, pod: str) -> Iterator[bytes]:
        """Yields the log of a pod so far, in pieces; kfp's client cannot read logs.

        Raises:
          NoLogError: the pod is gone, or the API does not provide logs.
        """
        try:
            with translated_errors(self.endpoint, f"read the log of {pod}"):
                yield from self._stream(run_id, pod)
        except UnavailableError:
            raise
        except (ConfigError, InternalError) as error:
            raise NoLogError(str(error)) from None

    def recurring_runs(self, config: PipelineConfig) -> list[kfp_api.V2beta1RecurringRun]:
        """Returns the recurring runs of a pipeline, oldest first."""
        name = pipeline_name(config)
        pipeline = self.pipeline_id(name)
        if pipeline is None:
            return []
        items = self._all(
            f"look for recurring runs called `{name}`",
            self._kfp.list_recurring_runs,
            "recurring_runs",
            filter=_filter_by_name(name),
            sort_by="created_at",
            namespace=self._namespace,
        )
        references = ((item, item.pipeline_version_reference) for item in items)
        return [item for item, ref in references if ref is not None and ref.pipeline_id == pipeline]

    def create_recurring_run(self, name: str, version: PipelineVersion, cron: str) -> str:
        """Creates a disabled recurring run without overlapping runs or catch-up; returns its id."""
        experiment, _ = _find_or_create(self.experiment_id, self._create_experiment)
        created = self._call(
            "create a recurring run",
            self._kfp.create_recurring_run,
            experiment,
            name,
            cron_expression=cron,
            max_concurrency=1,
            no_catchup=True,
            enabled=False,
            pipeline_id=version.pipeline,
            version_id=version.version,
            service_account=self._settings.service_account,
        )
        return str(created.recurring_run_id)

    def enable(self, recurring: str) -> None:
        """Enables a recurring run, which then starts runs."""
        method = self._kfp.enable_recurring_run
        self._call(f"enable the recurring run {recurring}", method, recurring)

    def disable(self, recurring: str) -> None:
        """Disables a recurring run, which then starts no more runs."""
        method = self._kfp.disable_recurring_run
        self._call(f"disable the recurring run {recurring}", method, recurring)

    def delete(self, recurring: str) -> None:
        """Deletes a recurring run.

        Kubeflow 2.16 and newer keep the runs that it started. Older versions delete the pods of
        these runs, including runs in progress.
        """
        method = self._kfp.recurring_runs.recurring_run_service_delete_recurring_run
        self._call(
            f"delete the recurring run {recurring}", method, recurring, propagation_policy="ORPHAN"
        )

    def pipeline_id(self, name: str) -> str | None:
        """Returns the id of the pipeline with a name, or None."""
        options = {"namespace": self._namespace}
        return self._find("pipeline", name, self._kfp.list_pipelines, "pipeline", **options)

    def experiment_id(self) -> str | None:
        """Returns the id of the experiment in the settings, or None."""
        # kfp's own method would use a namespace from a file in the user's home.
        method = self._kfp.experiments.experiment_service_list_experiments
        name, options = self._settings.experiment, {"namespace": self._namespace}
        return self._find("experiment", name, method, "experiment", **options)

    def version_name(self, pipeline: str, version: str) -> str | None:
        """Returns the name of a version, or None if the version was deleted."""
        method = self._kfp.get_pipeline_version
        try:
            response = self._call(f"read the version {version}", method, pipeline, version)
        except NotFoundError:
            return None
        return str(response.display_name)

    def _stream(self, run_id: str, pod: str) -> Iterator[bytes]:
        """Yields the pieces of a log, at least one piece; raises as kfp's client does."""
        request = {"path_params": {"run_id": run_id, "node_id": pod}, "auth_settings": ["Bearer"]}
        response = self._connection.call_api(_LOG, "GET", _preload_content=False, **request)
        with contextlib.closing(response):
            pieces = response.stream(_PIECE_BYTES)
            first = next(pieces, b"")
            if first.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
                raise NoLogError(
                    f"the log of {pod} cannot be read: {self.endpoint} returns a web page"
                )
            if first.startswith(_ERROR_BEGINS):
                # The API sends status 200 before it looks for the pod.
                body = first + b"".join(pieces)
                raise NoLogError(f"the log of {pod} cannot be read: {message_of(body)}")
            yield first
            yield from pieces

    def _create_experiment(self) -> str:
        name = self._settings.experiment
        method = self._kfp.experiments.experiment_service_create_experiment
        body = self._kfp.api_models.V2beta1Experiment(display_name=name, namespace=self._namespace)
        return str(self._call(f"create the experiment `{name}`", method, body).experiment_id)

    def _create_pipeline(self, name: str) -> str:
        """Creates a pipeline without a version, and returns its id; kfp's client would add a
        version.
        """
        body = self._kfp.api_models.V2beta1Pipeline(display_name=name, namespace=self._namespace)
        method = self._kfp.pipelines.pipeline_service_create_pipeline
        return str(self._call(f"create the pipeline `{name}`", method, body).pipeline_id)

    def _upload(self, pipeline: str, compiled: CompiledPipeline) -> str:
        """Uploads a new version of a pipeline; returns its id."""
        name, method = compiled.version, self._kfp.upload_pipeline_version
        with ScratchFolder() as folder:
            file = Path(folder) / f"{name}.yaml"
            file.write_text(compiled.yaml)
            uploaded = self._call(
                f"upload the version `{name}`", method, str(file), name, pipeline_id=pipeline
            )
        return str(uploaded.pipeline_version_id)

    def _find(
        self, kind: str, name: str, method: Callable[..., Any], key: str, **options: Any
    ) -> str | None:
        """Returns the id of the first item with a name, or None."""
        action = f"look for the {kind} `{name}`"
        items = self._all(action, method, f"{key}s", filter=_filter_by_name(name), **options)
        return next((getattr(item, f"{key}_id") for item in items), None)

    def _all(
        self, action: str, method: Callable[..., Any], items: str, **options: Any
    ) -> Iterator[Any]:
        """Yields the items of all pages."""
        token = ""
        while True:
            page = self._call(action, method, page_token=token, page_size=PAGE_SIZE, **options)
            yield from getattr(page, items) or []
            token = page.next_page_token
            if not token:
                return

    def _call(self, action: str, method: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """Returns the parsed JSON response of a call."""
        # kfp prints links, which contain the endpoint's credentials.
        with translated_errors(self.endpoint, action), contextlib.redirect_stdout(io.StringIO()):
            response = method(*values, **options)
        check_json(self.endpoint, self._connection.last_response.getheader("content-type"))
        return response


def _find_or_create(find: Callable[[], str | None], create: Callable[[], str]) -> tuple[str, bool]:
    """Returns an id, and whether the object is new; another process may create it concurrently."""
    existing = find()
    if existing is not None:
        return existing, False
    try:
        return create(), True
    except ConflictError:
        existing = find()
        if existing is None:
            raise
        return existing, False


def _filter_by_name(name: str) -> str:
    """Returns the API's filter for items with a name."""
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    return json.dumps({"predicates": [predicate]})
