"""A review of the columns in a sample of the train split: constants, copies and label leakage.

A constant carries no information, a copy counts twice, and a column that leaks the label will not
exist, or not be known, at the time of a prediction. Identifiers are left out by their type
(`components.column_types`); the review finds those that have no type in a curated schema.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from components.arrow_types import holds_bytes
from components.column_types.choice import read_choices
from components.column_types.facts import Counts
from components.example_gen.columns.encoded import excerpt, flat_columns
from components.example_validator.dated_rows import SplitFinding, read_days, review_split
from components.example_validator.leakage import Strength, Target, value_codes
from components.example_validator.odd_rows import show_value
from components.examples_reader import read_columns, read_sample
from trainer_module.errors import DataError, counted
from trainer_module.export.interface import TextReader
from trainer_module.features.number_format import find_number_format
from trainer_module.features.raw_columns import parse_numbers
from trainer_module.runtime import report_notice
from trainer_module.settings import Feature, NumericFeature, Task

REVIEWED_SPLIT = "train"
FILE = "columns.json"
"""The file of the review in the artifact of the anomalies."""

_SHOWN = 5
"""The number of findings in messages; the artifact holds all."""
_LOOKED_AT = 2_000
"""The number of distinct texts of a column from which their notation is determined."""

_FIRST = 8
"""The number of values that distinguish columns of unique values from each other."""
_FEWEST_ROWS = 50
"""The least number of rows for a review."""
_NEARLY_ALL = 0.95
"""The least share of rows with a unique value in an identifier."""
_MOSTLY = 0.5
"""The least share of rows with a unique value in a column of sentences."""
_SENTENCE_SPACES = 3
"""The least mean number of spaces in a sentence."""
MOST_ROWS = 1_000_000
"""The approximate most rows of a split that are read."""
_FEATURE: TypeAdapter[Feature] = TypeAdapter(Feature)


@dataclass(frozen=True)
class ColumnFinding:
    """A finding against a column."""

    column: str
    found: str
    gives_away: bool = False
    """Whether the column leaks the label."""

    def __str__(self) -> str:
        name = json.dumps(self.column, ensure_ascii=False)
        key = self.column if self.column.isidentifier() else name
        return f"column {name} {self.found}; to leave it out: features: {{{key}: {{type: ignore}}}}"


@dataclass(frozen=True)
class Review:
    """The findings against columns and the split, and the column that predicts the label best."""

    findings: tuple[ColumnFinding, ...] = ()
    """The findings against columns, those of label leakage first."""
    strongest: Strength | None = None
    """The column that predicts the label best; None if there are too few rows."""
    split: SplitFinding | None = None


_REVIEW = TypeAdapter(Review)


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
    """Reviews the columns in a sample, and whether a random split of dated rows misleads.

    Args:
      examples: the artifact.
      schema: the schema with the chosen types.
      label: the label's column.
      task: the task.
      exempt: columns that are not reviewed, as the config declares them.
      group: the column whose equal values keep rows together in one split; empty if there is none.
      counts: the counts of all rows of the split.
      dates: exempt columns that may date the rows, with the config's format; None if the config
        sets whether rows are split by time.
    """
    read_always = {label, group, *(dates or ())}
    features = [f for f in schema.feature if f.name in read_always or f.name not in exempt]
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
    """Returns the finding of `review_split` for columns that include the label."""
    labels, numbers = columns[label], None
    if not task.is_classification:
        is_text = holds_bytes(labels.type)
        numbers = read_as_numbers(labels) if is_text else labels.to_numpy(zero_copy_only=False)
    targets = label_numbers(labels, numbers, task)
    features = {name: values for name, values in columns.items() if name != label}
    return review_split(features, targets, task, formats, group)


def read_as_numbers(texts: pa.Array) -> np.ndarray | None:
    """Returns the numbers or days in a column of text, as the graph of a model parses them.

    Args:
      texts: [rows] of bytes, null where a value is missing.

    Returns:
      [rows], NaN where a value is neither; None if most values are neither.
    """
    encoded = texts.dictionary_encode()
    values = encoded.dictionary.cast(pa.binary()).to_pylist()
    words = [value.decode(errors="replace") for value in values[:_LOOKED_AT]]
    number_format = find_number_format(words)
    if number_format is None:
        return read_days(texts)
    read = parse_numbers(tf.constant(values), number_format)
    known = np.append(read.numpy().astype(np.float64), np.nan)
    return known[pc.fill_null(encoded.indices, len(values)).to_numpy()]


def write_review(anomalies: types.Artifact, review: Review) -> None:
    """Writes a review into an artifact, and reports the first findings."""
    with fileio.open(posixpath.join(anomalies.uri, FILE), "w") as file:
        file.write(json.dumps(asdict(review), indent=1))
    for sentence in show_findings(review):
        report_notice(sentence)


def read_review(anomalies: types.Artifact) -> Review:
    """Returns the review in an artifact; one without findings if there is none."""
    path = posixpath.join(anomalies.uri, FILE)
    if not fileio.exists(path):
        return Review()
    with fileio.open(path, "r") as file:
        return _REVIEW.validate_python(json.loads(file.read()))


def check_leakage(review: Review) -> None:
    """Raises DataError for label leakage by the split of dated rows, or by columns."""
    if review.split is not None and review.split.misleads:
        raise DataError(f"{review.split.found}; or set evaluate.leakage: warn")
    leaks = [finding for finding in review.findings if finding.gives_away]
    if leaks:
        raise DataError(
            f"{'; '.join(map(str, leaks[:_SHOWN]))}; if the column is known at serving time,"
            " declare it with its type under features, or set evaluate.leakage: warn"
        )


def show_findings(review: Review) -> list[str]:
    """Returns sentences about the split, the first findings, and the number of further ones."""
    findings, split = review.findings, [review.split.found] if review.split else []
    more = len(findings) - _SHOWN
    columns = ", ".join(finding.column for finding in findings[_SHOWN : 2 * _SHOWN])
    verb = "is" if more == 1 else "are"
    rest = f"{counted(more, 'more column')} {verb} of no use to a model, such as {columns}"
    return [*split, *map(str, findings[:_SHOWN]), *([rest] if more > 0 else [])]


def review_columns(
    columns: Mapping[str, pa.Array],
    label: str,
    task: Task,
    numbers: Mapping[str, np.ndarray] | None = None,
    typed: Collection[str] = (),
    groups: pa.Array | None = None,
    counts: Mapping[str, Counts] | None = None,
) -> Review:
    """Reviews each column alone and against the earlier columns; returns at most one finding of
    each.

    Args:
      columns: the features and the label, by name; [rows] each, of numbers or bytes, null where a
        value is missing. Columns that the config declares are to be left out.
      label: the label's name.
      task: the task.
      numbers: text columns, including the label, as the numbers or days in them: [rows] each, NaN
        where there is none.
      typed: columns of other types than numeric or categorical, which may be the same in each row
        of the sample.
      groups: [rows], equal where rows are kept together in one split; None if rows are independent.
      counts: the counts of all rows of the split, if `columns` are a sample of it.
    """
    counts = counts or {}
    if len(columns[label]) < _FEWEST_ROWS:
        return Review()
    as_numbers = {n: _numbers(values) for n, values in columns.items() if not _is_text(values)}
    as_numbers |= numbers or {}
    target = Target(label_numbers(columns[label], as_numbers.get(label), task), task, groups)
    twins: dict[tuple[object, ...], str] = {}
    findings, strengths = [], []
    for name, values in columns.items():
        if name == label:
            continue
        reason = _find_uselessness(values, counts.get(name), is_typed=name in typed)
        if values.null_count < len(values) and (codes := value_codes(values)).any():
            strength = target.strength_of(name, values, as_numbers.get(name))
            strengths += [strength] if strength is not None else []
            # Includes the first values, as all columns of distinct values have the same codes.
            known = (hashlib.blake2b(codes.tobytes()).digest(), *values[:_FIRST].to_pylist())
            twin = twins.setdefault(known, name)
            if reason is None and twin != name and values.equals(columns[twin]):
                reason = f"is the same as {json.dumps(twin, ensure_ascii=False)} in every row"
            if strength is not None and strength.gives_away:
                findings.append(
                    ColumnFinding(
                        name, f"alone predicts the label (label leakage): {strength}", True
                    )
                )
                continue
        if reason is not None:
            findings.append(ColumnFinding(name, reason))
    findings.sort(key=lambda finding: not finding.gives_away)
    strongest = max(strengths, key=lambda strength: strength.value, default=None)
    return Review(tuple(findings), strongest)


def _find_uselessness(values: pa.Array, counts: Counts | None, *, is_typed: bool) -> str | None:
    """Returns why a column by itself has no use, as it is empty, constant or an identifier; None if
    it may have one.
    """
    known = values.drop_null()
    if not (len(known) if counts is None else counts.known):
        return "has no value in any row"
    if is_typed or not len(known):
        return None
    distinct, rows = pc.count_distinct(known).as_py(), len(known)
    if distinct == 1 and not values.null_count and (counts is None or counts.is_constant):
        return f"is {show_value(known[0].as_py())} in every row"
    if counts is not None and counts.distinct is not None:
        distinct, rows = counts.distinct, counts.known
    return _find_identifier(known, distinct, rows)


def _find_identifier(known: pa.Array, distinct: int, rows: int) -> str | None:
    """Returns why a column is an identifier or holds sentences; None if it is neither.

    Used for a curated schema, which gives the column no type. Fractions may be distinct by chance.
    """
    share, count = distinct / rows, f"{distinct:,} different values in {rows:,} rows"
    if _is_text(known):
        text = known.cast(pa.binary()).cast(pa.string(), safe=False)
        spaces = pc.mean(pc.count_substring(text, " ")).as_py()
        if spaces >= _SENTENCE_SPACES and share > _MOSTLY:
            return f"holds sentences ({count}), each of which would be a category of its own"
        return f"has {count}, as an identifier has" if share > _NEARLY_ALL else None
    is_whole = pa.types.is_integer(known.type) or pc.all(pc.equal(known, pc.floor(known))).as_py()
    if share == 1 and is_whole:
        return f"has a different whole number in each of {len(known):,} rows, as an identifier has"
    return None


def label_numbers(labels: pa.Array, numbers: np.ndarray | None, task: Task) -> np.ndarray:
    """Returns the label as numbers, or as numbers of its sorted classes; NaN where it is missing.

    The classes are sorted so that the second of two is the positive one.
    """
    if not task.is_classification:
        return np.full(len(labels), np.nan) if numbers is None else numbers
    classes = pc.rank(labels, null_placement="at_end", tiebreaker="dense").to_numpy() - 1.0
    classes[~labels.is_valid().to_numpy(zero_copy_only=False)] = np.nan
    return classes


def _numbers(values: pa.Array) -> np.ndarray:
    """Returns numbers of any type as float64; NaN where a value is missing."""
    return values.to_numpy(zero_copy_only=False).astype(np.float64)


def _is_text(values: pa.Array) -> bool:
    return not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type))


def note_unreadable(
    examples: types.Artifact, schema: schema_pb2.Schema, exempt: Collection[str]
) -> list[str]:
    """Returns notes on texts that count as missing because they cannot be parsed.

    ExampleGen reports dates itself.

    Args:
      examples: the artifact.
      schema: the schema with the chosen types.
      exempt: columns that are left out, as the config declares them.
    """
    readers = {
        name: reader
        for name, choice in read_choices(schema).items()
        if name not in exempt and choice.type != "date"
        if (reader := _reader_of(_FEATURE.validate_python(choice.settings))) is not None
    }
    read_features = [f for f in schema.feature if f.name in readers and f.type == schema_pb2.BYTES]
    if not read_features:
        return []
    texts = Counter[str]()
    unreadable = {feature.name: Counter[bytes]() for feature in read_features}
    for split in artifact_utils.decode_split_names(examples.split_names):
        rows = 0
        for batch in read_columns([examples], split, read_features):
            for name, counter in unreadable.items():
                text_counts = _count(batch, name)
                texts[name] += sum(text_counts.values())
                unread = (text for text in text_counts if not readers[name].is_readable(text))
                counter.update({text: text_counts[text] for text in unread})
            if (rows := rows + batch.num_rows) >= MOST_ROWS:
                break
    return [
        _note(name, counts, texts[name], readers[name])
        for name, counts in unreadable.items()
        if counts
    ]


def _reader_of(feature: Feature) -> TextReader | None:
    if isinstance(feature, NumericFeature):
        style, unit = feature.written or "", feature.unit or ""
        return TextReader(feature.forms(), style, unit) if style else None
    return TextReader(feature.forms()) if feature.forms() else None


def _count(batch: pa.RecordBatch, name: str) -> dict[bytes, int]:
    place = batch.schema.get_field_index(name)
    if place < 0 or pa.types.is_null(batch.column(place).type):
        return {}
    counts = pc.value_counts(batch.column(place).flatten().cast(pa.binary()))
    return dict(
        zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    )


def _note(name: str, unreadable: Counter[bytes], texts: int, reader: TextReader) -> str:
    ((most, times),) = unreadable.most_common(1)
    return (
        f"column {name!r}: {unreadable.total():,} of {texts:,} texts cannot be read, and"
        f" count as missing, such as {excerpt(most)!r} ({times:,}); right is {reader.right}"
    )
