"""Looks at a sample of the train split for columns that a model should not be given."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.io import fileio

from components.arrow_types import holds_bytes
from components.column_types.choice import read_choices
from components.column_types.facts import Counts
from components.example_gen.columns.encoded import flat_columns
from components.example_validator.column_review import Review, label_numbers, review_columns
from components.example_validator.dated_rows import SplitFinding, read_days, review_split
from components.examples_reader import read_sample
from trainer_module.errors import DataError, counted
from trainer_module.features.number_format import find_writing
from trainer_module.features.raw_columns import written_numbers
from trainer_module.runtime import report_notice
from trainer_module.settings import Task

REVIEWED_SPLIT = "train"
FILE = "columns.json"
"""In the artifact of the anomalies."""

_SHOWN = 5
"""Of findings; the others are in the artifact."""
_LOOKED_AT = 2_000
"""Of the different texts of a column, to find out how they are written."""


def review_examples(
    examples: types.Artifact,
    schema: schema_pb2.Schema,
    label: str,
    task: Task,
    exempt: Collection[str],
    group: str = "",
    counts: Mapping[str, Counts] | None = None,
    dates: Mapping[str, str | None] | None = None,
) -> Review:
    """Reads a sample, and looks for columns that a model should not be given.

    It also says where the rows are dated, and a random split misleads.

    Args:
      examples: the artifact.
      schema: of its columns, with what they are taken for.
      label: the label's column.
      task: what is predicted.
      exempt: columns that are not looked at, as the config says what they are.
      group: the column whose equal values keep rows together in one split; empty if none does.
      counts: what is known of all rows of the split.
      dates: exempt columns that may date the rows, with the format that the config gives; None
        where the config says whether rows are split by time.
    """
    wanted = {label, group, *(dates or ())}
    features = [f for f in schema.feature if f.name in wanted or f.name not in exempt]
    if {feature.name for feature in features} <= {label}:
        return Review()
    columns = flat_columns(read_sample(examples, REVIEWED_SPLIT, features))
    if label not in columns:
        return Review()
    choices = read_choices(schema)
    split = None
    if dates is not None:
        chosen = {n: c.settings.get("format") for n, c in choices.items() if c.type == "date"}
        known = chosen | {name: dates[name] or chosen.get(name) for name in dates}
        split = find_in_split(columns, label, task, known, group)
    groups = columns.get(group)
    columns = {n: values for n, values in columns.items() if n == label or n not in exempt}
    texts = {feature.name for feature in features if feature.type == schema_pb2.BYTES}
    numbers = {
        name: read_as_numbers(values)
        for name, values in columns.items()
        if name in texts and (name != label or not task.is_classification)
    }
    known = {name: values for name, values in numbers.items() if values is not None}
    typed = {name for name, choice in choices.items() if not choice.is_by_dtype}
    return replace(review_columns(columns, label, task, known, typed, groups, counts), split=split)


def find_in_split(
    columns: Mapping[str, pa.Array],
    label: str,
    task: Task,
    formats: Mapping[str, str | None],
    group: str = "",
) -> SplitFinding | None:
    """What speaks against the split of some columns, the label among them; as `review_split`."""
    labels, numbers = columns[label], None
    if not task.is_classification:
        is_text = holds_bytes(labels.type)
        numbers = read_as_numbers(labels) if is_text else labels.to_numpy(zero_copy_only=False)
    targets = label_numbers(labels, numbers, task)
    features = {name: values for name, values in columns.items() if name != label}
    return review_split(features, targets, task, formats, group)


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
    if writing is None:
        return read_days(texts)
    read = written_numbers(tf.constant(values), writing)
    known = np.append(read.numpy().astype(np.float64), np.nan)
    return known[pc.fill_null(encoded.indices, len(values)).to_numpy()]


def write_review(anomalies: types.Artifact, review: Review) -> None:
    """Keeps a review in an artifact, and reports the first findings to whoever watches."""
    with fileio.open(posixpath.join(anomalies.uri, FILE), "w") as file:
        file.write(json.dumps(review.to_json(), indent=1))
    for sentence in show_findings(review):
        report_notice(sentence)


def read_review(anomalies: types.Artifact) -> Review:
    """The review that is kept in an artifact; one without findings where there is none."""
    path = posixpath.join(anomalies.uri, FILE)
    if not fileio.exists(path):
        return Review()
    with fileio.open(path, "r") as file:
        return Review.from_json(json.loads(file.read()))


def check_leakage(review: Review) -> None:
    """Raises DataError for a split by which dates give labels away, and for columns that do."""
    if review.split is not None and review.split.misleads:
        raise DataError(f"{review.split.found}; or set evaluate.leakage: warn")
    leaks = [finding for finding in review.findings if finding.gives_away]
    if leaks:
        raise DataError(
            f"{'; '.join(map(str, leaks[:_SHOWN]))}; a column that is known when the model is "
            "asked is declared with its type under features, or set evaluate.leakage: warn"
        )


def show_findings(review: Review) -> list[str]:
    """Sentences about the split and the first findings, and about how many more there are."""
    findings, split = review.findings, [review.split.found] if review.split else []
    more = len(findings) - _SHOWN
    columns = ", ".join(finding.column for finding in findings[_SHOWN : 2 * _SHOWN])
    verb = "is" if more == 1 else "are"
    rest = f"{counted(more, 'more column')} {verb} of no use to a model, such as {columns}"
    return [*split, *map(str, findings[:_SHOWN]), *([rest] if more > 0 else [])]
