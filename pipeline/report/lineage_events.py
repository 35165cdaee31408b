"""The OpenLineage events of a run, for catalogs such as Marquez, DataHub and OpenMetadata.

Each run has an event for the start and the end of the pipeline and of each component that ran, in
the form of https://openlineage.io/spec/2-0-2/OpenLineage.json. The file has an event per line, as
the file transport of OpenLineage's own client writes it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from components.example_gen.formats import FORMATS
from components.example_gen.paths import is_remote
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import BUILTIN_PREFIX
from pipeline.records.details import ArtifactDetails, RunDetails
from pipeline.records.summary import ComponentSummary, RunSummary, State, Status

Json = dict[str, Any]

NAMESPACE = "scopeline"
"""The namespace of jobs."""
PRODUCER = "pkg:generic/scopeline"
"""The URI of this software: a package URL, as github.com/package-url/purl-spec defines."""
_SPEC = "https://openlineage.io/spec"
_EVENT_SCHEMA = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "dataSource": "1-0-1/DatasourceDatasetFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "parent": "1-2-0/ParentRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "schema": "1-2-0/SchemaDatasetFacet",
    "tags": "1-0-0/TagsRunFacet",
}
"""The version and the name of the schema of each facet."""
_MOST_MESSAGE = 10_000
"""The maximum length of an error message, in characters."""
_COMPONENT_ENDS = {State.FAILED: "FAIL", State.INTERRUPTED: "ABORT"}
_ENDS = {Status.FAILED: "FAIL", Status.UNUSABLE: "FAIL", Status.INTERRUPTED: "ABORT"}
"""The type of the last event by status; other statuses are COMPLETE."""


def lineage_text(summary: RunSummary) -> str:
    """Returns the events of a run, one JSON object per line."""
    return "".join(json.dumps(event) + "\n" for event in lineage_events(summary))


def lineage_events(summary: RunSummary) -> list[Json]:
    """Returns the events of a run in order of time.

    Args:
      summary: the summary of the run. Without details, the events have no datasets.
    """
    began = datetime.fromisoformat(summary.started)
    # The start is in whole seconds, so the sum may lie before the end of the last component.
    ended = max([began + timedelta(seconds=summary.seconds), *_component_ends(summary)])
    details = summary.details or RunDetails()
    job, run_id = summary.pipeline, _run_uuid(summary, "")
    parent = {"run": {"runId": run_id}, "job": {"namespace": NAMESPACE, "name": job}}
    first = _event("START", began, run_id, _pipeline_facets(summary, details), job, "PIPELINE")
    last = _event(
        _ENDS.get(summary.status, "COMPLETE"),
        ended,
        run_id,
        _pipeline_facets(summary, details, is_end=True),
        job,
        "PIPELINE",
    )
    last["inputs"] = list(_inputs(ComponentId.EXAMPLE_GEN, summary, details))
    last["outputs"] = [] if summary.pushed is None else [_dataset_at(summary.pushed)]
    events = [
        event
        for component in summary.components
        if component.state is not State.SKIPPED
        for event in _component_events(component, summary, details, parent, ended)
    ]
    events.sort(key=lambda event: datetime.fromisoformat(event["eventTime"]))
    return [first, *events, last]


def _component_ends(summary: RunSummary) -> Iterator[datetime]:
    for component in summary.components:
        if component.started is not None:
            yield datetime.fromisoformat(component.started) + timedelta(seconds=component.seconds)


def _component_events(
    component: ComponentSummary,
    summary: RunSummary,
    details: RunDetails,
    parent: Json,
    run_ended: datetime,
) -> Iterator[Json]:
    """Yields the first and the last event of a component."""
    duration = timedelta(seconds=component.seconds)
    # Summaries of older versions have no times of components.
    began = (
        run_ended - duration
        if component.started is None
        else datetime.fromisoformat(component.started)
    )
    run_id = _run_uuid(summary, component.name)
    job = f"{summary.pipeline}.{component.name}"
    parents = {"parent": _facet("parent", **parent)}
    yield _event("START", began, run_id, parents, job, "TASK")
    facets = {**parents, "tags": _tags({"state": component.state.value})}
    has_failed = component.state is State.FAILED
    if has_failed and summary.error is not None:
        facets["errorMessage"] = _error(summary.error.message)
    end = _event(
        _COMPONENT_ENDS.get(component.state, "COMPLETE"),
        began + duration,
        run_id,
        facets,
        job,
        "TASK",
    )
    end["inputs"] = list(_inputs(component.name, summary, details))
    end["outputs"] = list(_outputs(component.name, summary, details))
    yield end


def _event(kind: str, at: datetime, run_id: str, run_facets: Json, job: str, job_type: str) -> Json:
    job_facet = _facet("jobType", processingType="BATCH", integration="SCOPELINE", jobType=job_type)
    return {
        "eventType": kind,
        "eventTime": at.isoformat(timespec="milliseconds"),
        "producer": PRODUCER,
        "schemaURL": _EVENT_SCHEMA,
        "run": {"runId": run_id, "facets": run_facets},
        "job": {"namespace": NAMESPACE, "name": job, "facets": {"jobType": job_facet}},
        "inputs": [],
        "outputs": [],
    }


def _pipeline_facets(summary: RunSummary, details: RunDetails, is_end: bool = False) -> Json:
    """Returns the facets of the pipeline's run: TFX's version, and at the end also the result."""
    facets: Json = {}
    lineage = details.lineage
    if lineage is not None and (tfx := lineage.versions.get("tfx")):
        facets["processing_engine"] = _facet("processing_engine", name="TFX", version=tfx)
    if not is_end:
        return facets
    tags = {"run_id": summary.run_id, "status": summary.status.value}
    if summary.blessed is not None:
        tags["blessed"] = str(summary.blessed).lower()
    if lineage is not None:
        tags |= {"config": lineage.config, "code": lineage.code}
    facets["tags"] = _tags({key: value for key, value in tags.items() if value})
    if summary.error is not None:
        facets["errorMessage"] = _error(summary.error.message)
    return facets


def _inputs(component: str, summary: RunSummary, details: RunDetails) -> Iterator[Json]:
    """Yields the datasets that a component has read."""
    if component == ComponentId.EXAMPLE_GEN and (data := _raw_data(details)) is not None:
        rows = sum(summary.examples.values())
        if rows:
            data["inputFacets"] = {"inputStatistics": _facet("inputStatistics", rowCount=rows)}
        yield data
    for artifact in _artifacts(details):
        if component in artifact.consumers:
            yield _dataset(artifact, details)


def _outputs(component: str, summary: RunSummary, details: RunDetails) -> Iterator[Json]:
    """Yields the datasets that a component has made, or has taken from the cache."""
    for artifact in _artifacts(details):
        if artifact.producer != component:
            continue
        dataset, statistics = _dataset(artifact, details), {}
        if artifact.type == "Examples" and component == ComponentId.EXAMPLE_GEN:
            statistics["rowCount"] = sum(summary.examples.values())
        if artifact.bytes is not None:
            statistics["size"] = artifact.bytes
        if statistics:
            dataset["outputFacets"] = {"outputStatistics": _facet("outputStatistics", **statistics)}
        yield dataset


def _artifacts(details: RunDetails) -> Iterable[ArtifactDetails]:
    return [] if details.lineage is None else details.lineage.artifacts


def _dataset(artifact: ArtifactDetails, details: RunDetails) -> Json:
    dataset = _dataset_at(artifact.uri)
    if artifact.type == "Examples":
        _add_schema(dataset, details)
    return dataset


def _raw_data(details: RunDetails) -> Json | None:
    """Returns the data of the config, such as a folder or `builtin:digits`."""
    section = details.config.get("data")
    if not isinstance(section, dict) or not isinstance(path := section.get("path"), str):
        return None
    kind = section.get("format")
    if path.startswith(BUILTIN_PREFIX):
        name = path.removeprefix(BUILTIN_PREFIX)
        dataset: Json = {"namespace": BUILTIN_PREFIX.rstrip(":"), "name": name, "facets": {}}
    elif kind in FORMATS and not FORMATS[kind].has_files:
        dataset = {"namespace": kind, "name": path, "facets": {}}
    else:
        dataset = _dataset_at(path)
    _add_schema(dataset, details)
    return dataset


def _add_schema(dataset: Json, details: RunDetails) -> None:
    if details.columns:
        fields = [{"name": column.name, "type": column.type} for column in details.columns]
        dataset["facets"]["schema"] = _facet("schema", fields=fields)


def _dataset_at(uri: str) -> Json:
    """Returns the dataset of a path or URI, by OpenLineage's naming of files and buckets.

    A user and password, a query and a fragment, which may contain a token, are left out.
    """
    if is_remote(uri):
        parts = urlsplit(uri)
        namespace = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        name = parts.path.strip("/") or "/"
        source = f"{namespace}/{quote(name)}"
    else:
        # A glob or a pattern of spans is no path that can be resolved.
        namespace, name = "file", os.path.abspath(uri)  # noqa: PTH100
        source = Path(name).as_uri()
    facet = _facet("dataSource", name=namespace, uri=source)
    return {"namespace": namespace, "name": name, "facets": {"dataSource": facet}}


def _tags(tags: dict[str, str]) -> Json:
    values = [{"key": key, "value": value, "source": "SCOPELINE"} for key, value in tags.items()]
    return _facet("tags", tags=values)


def _error(message: str) -> Json:
    return _facet("errorMessage", message=message[:_MOST_MESSAGE], programmingLanguage="PYTHON")


def _facet(key: str, **fields: Any) -> Json:
    """Returns a facet with the URL of its schema."""
    schema = _FACETS[key]
    url = f"{_SPEC}/facets/{schema}.json#/$defs/{schema.partition('/')[2]}"
    return {"_producer": PRODUCER, "_schemaURL": url, **fields}


def _run_uuid(summary: RunSummary, component: str) -> str:
    """Returns the id of a run: the same for the same run, whenever the file is written."""
    name = "/".join((NAMESPACE, summary.pipeline, summary.run_id, component))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))
