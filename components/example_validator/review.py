"""Looks at a sample of the train split for columns that a model should not be given."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.io import fileio

from components.column_types.choice import read_choices
from components.column_types.dates import may_be_dates
from components.column_types.facts import Counts
from components.example_gen.columns.encoded import flat_columns
from components.example_validator.column_review import ColumnFinding, Review, review_columns
from components.examples_reader import read_sample
from trainer_module.errors import DataError
from trainer_module.features.dates.formats import find_format
from trainer_module.features.numbers.written import find_writing
from trainer_module.features.raw_columns import written_numbers
from trainer_module.progress import report_notice
from trainer_module.settings import Task

REVIEWED_SPLIT = "train"
FILE = "columns.json"
"""In the artifact of the anomalies."""

_SHOWN = 5
"""Of findings; the others are in the artifact."""
_LOOKED_AT = 2_000
"""Of the different texts of a column, to find out how they are written."""
_TRIED_AS_DATES = 20


def review_examples(
    examples: types.Artifact,
    schema: schema_pb2.Schema,
    label: str,
    task: Task,
    exempt: Collection[str],
    group: str = "",
    counts: Mapping[str, Counts] | None = None,
) -> Review:
    """Reads a sample, and looks for columns that a model should not be given.

    Args:
      examples: the artifact.
      schema: of its columns, with what they are taken for.
      label: the label's column.
      task: what is predicted.
      exempt: columns that are not looked at, as the config says what they are.
      group: the column whose equal values keep rows together in one split; empty if none does.
      counts: what is known of all rows of the split.
    """
    features = [f for f in schema.feature if f.name in (label, group) or f.name not in exempt]
    if {feature.name for feature in features} <= {label, group}:
        return Review()
    columns = flat_columns(read_sample(examples, REVIEWED_SPLIT, features))
    if label not in columns:
        return Review()
    groups = columns.get(group)
    if group in exempt:
        columns.pop(group, None)
    choices = read_choices(schema)
    texts = {feature.name for feature in features if feature.type == schema_pb2.BYTES}
    numbers = {
        name: read_as_numbers(values)
        for name, values in columns.items()
        if name in texts and (name != label or task is Task.REGRESSION)
    }
    known = {name: values for name, values in numbers.items() if values is not None}
    typed = {name for name, choice in choices.items() if not choice.is_by_dtype}
    return review_columns(columns, label, task, known, typed, groups, counts)


def read_as_numbers(texts: pa.Array) -> np.ndarray | None:
    """Numbers or days that are written in a column of text, as the graph of a model reads them.

    Args:
      texts: [rows] of bytes, null where a value is missing.

    Returns:
      [rows], NaN for what is neither; None where most values are neither.
    """
    encoded = texts.dictionary_encode()
    values = encoded.dictionary.cast(pa.binary()).to_pylist()
    words = [value.decode(errors="replace") for value in values[:_LOOKED_AT]]
    writing = find_writing(words)
    read: Any
    if writing is not None:
        read = written_numbers(tf.constant(values), writing)
    elif words and may_be_dates(words[:_TRIED_AS_DATES]) and (found := find_format(words)):
        # It imports TensorFlow Transform, which takes seconds.
        from trainer_module.features.dates.calendar import read_texts

        read = read_texts({"": tf.constant(values)[:, None]}, {"": found})[""][:, 0]
    else:
        return None
    known = np.append(read.numpy().astype(np.float64), np.nan)
    return known[pc.fill_null(encoded.indices, len(values)).to_numpy()]


def write_review(anomalies: types.Artifact, review: Review) -> None:
    """Keeps a review in an artifact, and reports the first findings to whoever watches."""
    with fileio.open(posixpath.join(anomalies.uri, FILE), "w") as file:
        file.write(json.dumps(review.to_json(), indent=1))
    for sentence in show_findings(review.findings):
        report_notice(sentence)


def read_review(anomalies: types.Artifact) -> Review:
    """The review that is kept in an artifact; one without findings where there is none."""
    path = posixpath.join(anomalies.uri, FILE)
    if not fileio.exists(path):
        return Review()
    with fileio.open(path, "r") as file:
        return Review.from_json(json.loads(file.read()))


def check_leakage(review: Review) -> None:
    """Raises DataError for columns that give the label away."""
    leaks = [finding for finding in review.findings if finding.gives_away]
    if leaks:
        raise DataError(
            f"{'; '.join(map(str, leaks[:_SHOWN]))}; a column that is known when the model is "
            "asked is declared with its type under features, or set evaluate.leakage: warn"
        )


def show_findings(findings: Sequence[ColumnFinding]) -> list[str]:
    """Sentences about the first findings, and about how many more there are."""
    more = len(findings) - _SHOWN
    columns = ", ".join(finding.column for finding in findings[_SHOWN : 2 * _SHOWN])
    rest = f"{more} more columns are of no use to a model, such as {columns}"
    return [*map(str, findings[:_SHOWN]), *([rest] if more > 0 else [])]
