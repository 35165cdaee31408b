"""Compares served requests with the training data of the model in service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from ml_metadata.proto import metadata_store_pb2
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.orchestration import metadata

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_validator.component import DRIFT_SPLIT
from components.example_validator.drift import ColumnSkew, Drift, OlderData, measure_skew
from components.named_columns import check_named_columns
from pipeline.config.sections.data import has_spans, span_kind
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import File
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import check_store
from pipeline.runs.lineage import newest_statistics, span_of
from pipeline.versions.artifacts import CARRIED_OVER_TYPES, find_models
from pipeline.versions.catalog import Version, find_serving, read_catalog
from trainer_module.errors import ConfigError

MAX_ROWS = 200_000
"""The maximum number of rows to compare; more rows would not change the result."""
_EXAMPLES = "Examples"


@dataclass(frozen=True)
class Comparison:
    """The distances of columns from the training data."""

    version: int
    """The version in service."""
    rows: int
    """The number of compared rows."""
    columns: list[ColumnSkew]

    @property
    def skewed(self) -> dict[str, str]:
        """Descriptions of the skewed columns, by name."""
        return {column.column: column.in_words for column in self.columns if column.is_skewed}


def compare_requests(
    config: PipelineConfig, layout: Layout, event_log: EventLog, files: Sequence[File]
) -> Comparison:
    """Returns the comparison of the rows of some files with the training data.

    Args:
      config: a config with a section `skew`.
      files: files of requests, at least one, oldest first.

    Raises:
      ConfigError: no version is in service, or its training data is unknown.
      DataError: a file, or a column, cannot be compared.
    """
    serving = find_serving(read_catalog(layout, event_log))
    if serving is None or not serving.is_ours:
        raise ConfigError(
            f"{layout.serving}: no version of this pipeline is in service; run the pipeline first"
        )
    trained = training_statistics(config, layout, serving)
    drift = Drift(config.skew.model_dump()["columns"])
    served = _read(files, list(drift.columns))
    return Comparison(serving.number, served.num_rows, measure_skew(served, drift, trained))


def _read(files: Sequence[File], columns: Sequence[str]) -> pa.RecordBatch:
    """Returns the rows of the newest files, about `MAX_ROWS` at most."""
    settings = ExampleGenSettings(format="parquet", label="", task="binary")
    source, batches, rows = make_source(settings), [], 0
    for file in reversed(files):
        kinds = source.peek((file.path,))
        by_key = {f"skew.columns.{name}": name for name in columns}
        check_named_columns(by_key, kinds, f"file {file.path}")
        kinds = {name: kind for name, kind in kinds.items() if name in columns}
        for batch in source.read((file.path,), _Kinds(kinds)):
            batches.append(batch.rows.select(columns))
            rows += batch.rows.num_rows
        if rows >= MAX_ROWS:
            break
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]


class _Kinds(dict[str, ColumnKind]):
    """The kinds of compared columns; other columns are not converted."""

    def __missing__(self, name: str) -> ColumnKind:
        return ColumnKind.UNKNOWN


def training_statistics(config: PipelineConfig, layout: Layout, version: Version) -> OlderData:
    """Returns the statistics of the train split of the newest data that a version was trained on.

    Raises:
      ConfigError: the training data is unknown, or the statistics have been deleted.
    """
    connection = check_store(config.metadata, layout)
    if connection is not None and version.model is not None:
        for span, uri in _training_examples(connection, version):
            if (artifact := newest_statistics(connection, [uri]).get(uri)) is not None:
                statistics = stats_artifact_utils.load_statistics(artifact, DRIFT_SPLIT)
                return OlderData(statistics.proto(), _name(config, version, span))
    raise ConfigError(
        f"version {version.number}: the statistics of its training data have been deleted; the "
        "next run that pushes creates new ones"
    )


def _name(config: PipelineConfig, version: Version, span: int) -> str:
    if not has_spans(config.data):
        return f"the training data of version {version.number}"
    shown = span_kind(config.data).show(span)
    return f"span {shown}, which version {version.number} was trained on"


def _training_examples(connection: Any, version: Version) -> list[tuple[int, str]]:
    """Returns the examples that a model was trained on: span and URI, the newest span first."""
    with metadata.Metadata(connection) as handle:
        store = handle.store
        queue = [a.id for a in find_models(store, version.model or "", None)]
        visited, examples = set(queue), []
        while queue:
            inputs = _inputs_of_makers(store, queue) - visited
            visited |= inputs
            artifacts = store.get_artifacts_by_id(sorted(inputs)) if inputs else []
            artifacts = [a for a in artifacts if a.type not in CARRIED_OVER_TYPES]
            examples += [a for a in artifacts if a.type == _EXAMPLES]
            queue = [a.id for a in artifacts]
    ordered = sorted(examples, key=lambda a: (span_of(a), a.id), reverse=True)
    return [(span_of(artifact), artifact.uri) for artifact in ordered]


def _inputs_of_makers(store: Any, artifacts: list[int]) -> set[int]:
    """Returns the ids of the input artifacts of the executions that made some artifacts."""
    event = metadata_store_pb2.Event
    events = store.get_events_by_artifact_ids(artifacts)
    makers = sorted({e.execution_id for e in events if e.type == event.OUTPUT})
    inputs = store.get_events_by_execution_ids(makers) if makers else []
    return {e.artifact_id for e in inputs if e.type == event.INPUT}
