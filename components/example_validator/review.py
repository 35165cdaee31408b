"""A review of the columns in a sample of the train split: constants, copies and label leakage.

A constant contains no information, and a copy counts twice. A column that leaks the label does not
exist, or is not known, at the time of a prediction. The chosen types (`components.column_types`)
already exclude identifiers; the review also finds identifiers in a user's own schema, which has no
chosen types.
"""

from __future__ import annotations

import hashlib
import json
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
from tfx.types import artifact_utils

from components.arrow_types import holds_bytes
from components.column_types.choice import read_choices
from components.column_types.facts import Counts
from components.copying import read_text, write_text
from components.example_gen.columns.encoded import excerpt, flat_columns
from components.example_validator.dated_rows import SplitFinding, read_days, review_split
from components.example_validator.leakage import Strength, Target, label_numbers, value_codes
from components.example_validator.odd_rows import show_value
from components.examples_reader import read_columns, read_sample
from trainer_module.errors import DataError, as_key, counted
from trainer_module.export.interface import TextReader
from trainer_module.features.number_format import find_number_format
from trainer_module.features.raw_columns import parse_numbers
from trainer_module.runtime import report_notice
from trainer_module.settings import Feature, NumericFeature, Task

REVIEWED_SPLIT = "train"
FILE = "columns.json"
"""The file in the artifact of the anomalies with the review."""

_SHOWN = 5
"""The maximum number of findings in messages. The artifact contains all findings."""
_FORMAT_SAMPLE = 2_000
"""The number of distinct values of a column from which their notation is determined."""

_FIRST_VALUES = 8
"""The number of first values that are part of a column's fingerprint. They distinguish columns in
which all values are distinct."""
_MIN_ROWS = 50
_IDENTIFIER_SHARE = 0.95
"""A column is an identifier if a larger share of the rows has distinct values."""
_SENTENCE_SHARE = 0.5
"""A column may hold sentences if a larger share of the rows has distinct values."""
_SENTENCE_SPACES = 3
MAX_ROWS = 1_000_000
"""The approximate maximum number of rows of a split that `note_unreadable` reads."""
_FEATURE: TypeAdapter[Feature] = TypeAdapter(Feature)


@dataclass(frozen=True)
class ColumnFinding:
    """A finding about a column."""

    column: str
    found: str
    """The finding as the predicate of a sentence, such as `has no value in any row`."""
    gives_away: bool = False
    """Whether the column leaks the label."""

    def __str__(self) -> str:
        name = json.dumps(self.column, ensure_ascii=False)
        key = as_key(self.column)
        return f"column {name} {self.found}; to leave it out: features: {{{key}: {{type: ignore}}}}"


@dataclass(frozen=True)
class Review:
    """The result of a review."""

    findings: tuple[ColumnFinding, ...] = ()
    """The findings about columns. Columns that leak the label come first."""
    strongest: Strength | None = None
    """The column that predicts the label best, or None if there are too few rows."""
    split: SplitFinding | None = None
    """The finding about a random split of dated rows, or None if there is no finding."""


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
    """Reviews the columns in a sample, and the split of dated rows.

    Args:
      exempt: columns that are not reviewed, for instance because the config declares them.
      group: the column by which rows are grouped into splits, or an empty string for no column.
      dates: exempt columns that may hold the date of a row, with the config's format, or None if
        the split is not reviewed.
    """
    required = {label, group, *(dates or ())}
    features = [f for f in schema.feature if f.name in required or f.name not in exempt]
    if {feature.name for feature in features} <= {label}:
        return Review()
    columns = flat_columns(read_sample(examples, REVIEWED_SPLIT, features))
    if label not in columns:
        return Review()
    choices = read_choices(schema)
    split = None
    if dates is not None:
        chosen = {n: c.settings.get("format") for n, c in choices.items() if c.type == "date"}
        formats = chosen | {name: dates[name] or chosen.get(name) for name in dates}
        split = find_in_split(columns, label, task, formats, group)
    groups = columns.get(group)
    columns = {n: values for n, values in columns.items() if n == label or n not in exempt}
    texts = {feature.name for feature in features if feature.type == schema_pb2.BYTES}
    numbers = {
        name: read_as_numbers(values)
        for name, values in columns.items()
        if name in texts and (name != label or not task.is_classification)
    }
    parsed = {name: values for name, values in numbers.items() if values is not None}
    typed = {name for name, choice in choices.items() if not choice.is_by_dtype}
    review = review_columns(columns, label, task, parsed, typed, groups, counts)
    return replace(review, split=split)


def find_in_split(
    columns: Mapping[str, pa.Array],
    label: str,
    task: Task,
    formats: Mapping[str, str | None],
    group: str = "",
) -> SplitFinding | None:
    """Returns the finding about a random split of dated rows. The arguments are the arguments of
    `review_split`, but `columns` include the label.
    """
    labels, numbers = columns[label], None
    if not task.is_classification:
        is_text = holds_bytes(labels.type)
        numbers = read_as_numbers(labels) if is_text else labels.to_numpy(zero_copy_only=False)
    targets = label_numbers(labels, numbers, task)
    features = {name: values for name, values in columns.items() if name != label}
    return review_split(features, targets, task, formats, group)


def read_as_numbers(texts: pa.Array) -> np.ndarray | None:
    """Returns the numbers or days in a column of text, parsed in the same way as by a model.

    Args:
      texts: the values as bytes, [rows]; null where a value is missing.

    Returns:
      The numbers or days, [rows], NaN where a value cannot be parsed. None if the column holds
        neither numbers nor dates.
    """
    encoded = texts.dictionary_encode()
    values = encoded.dictionary.cast(pa.binary()).to_pylist()
    words = [value.decode(errors="replace") for value in values[:_FORMAT_SAMPLE]]
    number_format = find_number_format(words)
    if number_format is None:
        return read_days(texts)
    numbers = parse_numbers(tf.constant(values), number_format)
    with_missing = np.append(numbers.numpy().astype(np.float64), np.nan)
    return with_missing[pc.fill_null(encoded.indices, len(values)).to_numpy()]


def write_review(anomalies: types.Artifact, review: Review) -> None:
    """Writes a review into the artifact of the anomalies, and reports the first findings."""
    write_text(json.dumps(asdict(review), indent=1), anomalies.uri, FILE)
    for sentence in show_findings(review):
        report_notice(sentence)


def read_review(anomalies: types.Artifact) -> Review:
    """Returns the review in the artifact of the anomalies, or a review without findings."""
    text = read_text(anomalies.uri, FILE)
    return Review() if text is None else _REVIEW.validate_python(json.loads(text))


def check_leakage(review: Review) -> None:
    """Raises DataError if a random split of dated rows misleads, or columns leak the label."""
    if review.split is not None and review.split.misleads:
        raise DataError(f"{review.split.found}; or set evaluate.leakage: warn")
    leaks = [finding for finding in review.findings if finding.gives_away]
    if leaks:
        raise DataError(
            f"{'; '.join(map(str, leaks[:_SHOWN]))}; if the column is known at serving time,"
            " declare it with its type under features, or set evaluate.leakage: warn"
        )


def show_findings(review: Review) -> list[str]:
    """Returns sentences about the split, the first columns with findings, and the number of other
    columns.
    """
    findings, split = review.findings, [review.split.found] if review.split else []
    more = len(findings) - _SHOWN
    columns = ", ".join(finding.column for finding in findings[_SHOWN : 2 * _SHOWN])
    verb = "is" if more == 1 else "are"
    others = f"{counted(more, 'more column')} {verb} of no use to a model, such as {columns}"
    return [*split, *map(str, findings[:_SHOWN]), *([others] if more > 0 else [])]


def review_columns(
    columns: Mapping[str, pa.Array],
    label: str,
    task: Task,
    numbers: Mapping[str, np.ndarray] | None = None,
    typed: Collection[str] = (),
    groups: pa.Array | None = None,
    counts: Mapping[str, Counts] | None = None,
) -> Review:
    """Reviews each column alone, and compares it with the columns before it.

    A column has at most one finding.

    Args:
      columns: the label and the features to review, by name, [rows] each of numbers or bytes; null
        where a value is missing.
      numbers: the numbers or days in columns of text, by name, [rows] each, with NaN where a value
        cannot be parsed.
      typed: columns of other types than numeric or categorical, which may be constant in the
        sample.
      groups: the group of each row, [rows], or None if rows are independent.
    """
    counts = counts or {}
    if len(columns[label]) < _MIN_ROWS:
        return Review()
    as_numbers = {n: _numbers(values) for n, values in columns.items() if not _is_text(values)}
    as_numbers |= numbers or {}
    target = Target(label_numbers(columns[label], as_numbers.get(label), task), task, groups)
    originals: dict[tuple[object, ...], str] = {}
    findings, strengths = [], []
    for name, values in columns.items():
        if name == label:
            continue
        reason = _why_useless(values, counts.get(name), is_typed=name in typed)
        if values.null_count < len(values) and (codes := value_codes(values)).any():
            strength = target.strength_of(name, values, as_numbers.get(name))
            strengths += [strength] if strength is not None else []
            # If all values of a column are distinct, the codes do not depend on the values.
            first_values = values[:_FIRST_VALUES].to_pylist()
            fingerprint = (hashlib.blake2b(codes.tobytes()).digest(), *first_values)
            original = originals.setdefault(fingerprint, name)
            if reason is None and original != name and values.equals(columns[original]):
                reason = f"is the same as {json.dumps(original, ensure_ascii=False)} in every row"
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


def _why_useless(values: pa.Array, counts: Counts | None, *, is_typed: bool) -> str | None:
    """Returns why a column is useless: it is empty, constant, an identifier or holds sentences. The
    result is None for other columns.
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
    """Returns why a column is an identifier or holds sentences, or None for other columns.

    This concerns columns without a chosen type, in a user's own schema. Numbers with fractions are
    not identifiers, as they may be distinct by chance.
    """
    share, count = distinct / rows, f"{distinct:,} different values in {rows:,} rows"
    if _is_text(known):
        text = known.cast(pa.binary()).cast(pa.string(), safe=False)
        spaces = pc.mean(pc.count_substring(text, " ")).as_py()
        if spaces >= _SENTENCE_SPACES and share > _SENTENCE_SHARE:
            return f"holds sentences ({count}), and each sentence would be a separate category"
        return f"has {count}, as an identifier has" if share > _IDENTIFIER_SHARE else None
    is_whole = pa.types.is_integer(known.type) or pc.all(pc.equal(known, pc.floor(known))).as_py()
    if share == 1 and is_whole:
        return f"has a different whole number in each of {len(known):,} rows, as an identifier has"
    return None


def _numbers(values: pa.Array) -> np.ndarray:
    """Returns numbers of any type as float64, with NaN where a value is missing."""
    return values.to_numpy(zero_copy_only=False).astype(np.float64)


def _is_text(values: pa.Array) -> bool:
    return not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type))


def note_unreadable(
    examples: types.Artifact, schema: schema_pb2.Schema, exempt: Collection[str]
) -> list[str]:
    """Returns notes on text that cannot be parsed, so that the values count as missing.

    The notes do not contain dates, which ExampleGen reports.
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
                misfits = (text for text in text_counts if not readers[name].is_readable(text))
                counter.update({text: text_counts[text] for text in misfits})
            if (rows := rows + batch.num_rows) >= MAX_ROWS:
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
    index = batch.schema.get_field_index(name)
    if index < 0 or pa.types.is_null(batch.column(index).type):
        return {}
    counts = pc.value_counts(batch.column(index).flatten().cast(pa.binary()))
    return dict(
        zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    )


def _note(name: str, unreadable: Counter[bytes], texts: int, reader: TextReader) -> str:
    ((most_frequent, times),) = unreadable.most_common(1)
    return (
        f"column {name!r}: {unreadable.total():,} of {texts:,} values cannot be read and count as"
        f" missing, such as {excerpt(most_frequent)!r} ({times:,}); expected {reader.right}"
    )
