"""Looks at a sample of the train split for columns that a model should not be given."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Sequence

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.io import fileio

from components.example_validator.column_review import ColumnFinding, review_columns
from components.examples_reader import flat_values, read_columns
from trainer_module.progress import report_notice
from trainer_module.settings import Task

REVIEWED_SPLIT = "train"
FILE = "columns.json"
"""In the artifact of the anomalies."""

_MOST_ROWS = 20_000
_MOST_CELLS = 5_000_000
_MOST_BYTES = 256 << 20
_SHOWN = 5
"""Of findings; the others are in the artifact."""


def review_examples(
    examples: types.Artifact,
    schema: schema_pb2.Schema,
    label: str,
    task: Task,
    declared: Collection[str],
) -> list[ColumnFinding]:
    """Reads a sample, and says what speaks against its columns.

    Args:
      examples: the artifact.
      schema: of its columns.
      label: the label's column.
      task: what is predicted.
      declared: columns of which the config says what they are.
    """
    features = [f for f in schema.feature if f.name == label or f.name not in declared]
    if {feature.name for feature in features} <= {label}:
        return []
    rows = min(_MOST_ROWS, max(_MOST_CELLS // max(len(features), 1), 1))
    batches, size = [], 0
    for batch in read_columns([examples], REVIEWED_SPLIT, features, rows):
        batches.append(batch)
        size += batch.nbytes
        if size > _MOST_BYTES:
            break
    if not batches:
        return []
    columns = {}
    for name in batches[0].schema.names:
        parts = [flat_values(batch.column(name)) for batch in batches]
        if all(part is not None for part in parts):
            columns[name] = _joined(parts)
    return review_columns(columns, label, task) if label in columns else []


def write_findings(anomalies: types.Artifact, findings: Sequence[ColumnFinding]) -> None:
    """Keeps findings in an artifact, and tells whoever watches."""
    with fileio.open(posixpath.join(anomalies.uri, FILE), "w") as file:
        file.write(json.dumps([finding.to_json() for finding in findings], indent=1))
    for sentence in show_findings(findings):
        report_notice(sentence)


def read_findings(anomalies: types.Artifact) -> list[ColumnFinding]:
    """The findings that are kept in an artifact."""
    path = posixpath.join(anomalies.uri, FILE)
    if not fileio.exists(path):
        return []
    with fileio.open(path, "r") as file:
        return [ColumnFinding(**finding) for finding in json.loads(file.read())]


def show_findings(findings: Sequence[ColumnFinding]) -> list[str]:
    """Sentences about the first findings, and about how many more there are."""
    more = len(findings) - _SHOWN
    columns = ", ".join(finding.column for finding in findings[_SHOWN : 2 * _SHOWN])
    rest = f"{more} more columns are of no use to a model, such as {columns}"
    return [*map(str, findings[:_SHOWN]), *([rest] if more > 0 else [])]


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """One array of all parts, of which some may have no type, as they have no value."""
    typed = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
    return pa.concat_arrays([part.cast(typed) for part in parts])
