"""The statistics of what a pushed version was trained on, by lineage."""

from __future__ import annotations

from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.components.example_gen import utils
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.orchestration import metadata

from components.example_validator.component import DRIFT_SPLIT
from components.example_validator.drift import Older
from pipeline.config.sections.data import has_spans, span_kind
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata.store import check_store
from pipeline.runs.results.artifact_reader import ArtifactReader
from pipeline.versions.artifacts import find_models
from pipeline.versions.catalog import Version
from pipeline.versions.lineage import OF_EARLIER_RUNS
from trainer_module.errors import ConfigError

_EXAMPLES, _STATISTICS = "Examples", "ExampleStatistics"


def training_statistics(config: PipelineConfig, layout: Layout, version: Version) -> Older:
    """The statistics of the newest data that a version was trained on, of its train split.

    Raises:
      ConfigError: they are not known, or not there any more.
    """
    connection = check_store(config.metadata, layout)
    if connection is not None and version.model is not None:
        reader = ArtifactReader(connection, config.criteria)
        for span, uri in _examples_behind(connection, version):
            if found := reader.made_of(uri, _STATISTICS):
                statistics = stats_artifact_utils.load_statistics(found[-1], DRIFT_SPLIT).proto()
                return Older(statistics, _name(config, version, span))
    raise ConfigError(
        f"version {version.number}: there are no statistics of what it was trained on any more; "
        "they are there again after the next run that pushes"
    )


def _name(config: PipelineConfig, version: Version, span: int) -> str:
    if not has_spans(config.data):
        return f"what version {version.number} was trained on"
    shown = span_kind(config.data).show(span)
    return f"span {shown}, which version {version.number} was trained on"


def _examples_behind(connection: Any, version: Version) -> list[tuple[int, str]]:
    """The examples that a model comes from: span and uri, the newest span first."""
    with metadata.Metadata(connection) as handle:
        store = handle.store
        waiting = [a.id for a in find_models(store, version.model or "", None)]
        seen, found = set(waiting), []
        while waiting:
            taken = _taken_for(store, waiting) - seen
            seen |= taken
            artifacts = store.get_artifacts_by_id(sorted(taken)) if taken else []
            artifacts = [a for a in artifacts if a.type not in OF_EARLIER_RUNS]
            found += [a for a in artifacts if a.type == _EXAMPLES]
            waiting = [a.id for a in artifacts]
    ordered = sorted(found, key=lambda a: (_span_of(a), a.id), reverse=True)
    return [(_span_of(artifact), artifact.uri) for artifact in ordered]


def _taken_for(store: Any, artifacts: list[int]) -> set[int]:
    """What the executions took that gave some artifacts."""
    event = metadata_store_pb2.Event
    made = store.get_events_by_artifact_ids(artifacts)
    makers = sorted({e.execution_id for e in made if e.type == event.OUTPUT})
    taken = store.get_events_by_execution_ids(makers) if makers else []
    return {e.artifact_id for e in taken if e.type == event.INPUT}


def _span_of(artifact: Any) -> int:
    """The number of a span, which older versions of TFX wrote as text; -1 without one."""
    value = artifact.custom_properties.get(utils.SPAN_PROPERTY_NAME)
    return -1 if value is None else int(value.string_value or value.int_value)
