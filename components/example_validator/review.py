"""Looks at a sample of the train split for columns that a model should not be given."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Sequence

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.io import fileio

from components.example_gen.columns.encoded import flat_columns
from components.example_validator.column_review import ColumnFinding, review_columns
from components.examples_reader import read_sample
from trainer_module.progress import report_notice
from trainer_module.settings import Task

REVIEWED_SPLIT = "train"
FILE = "columns.json"
"""In the artifact of the anomalies."""

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
    columns = flat_columns(read_sample(examples, REVIEWED_SPLIT, features))
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
