"""Anomalies of columns, described in words, and whether they are severe."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import tensorflow_data_validation as tfdv
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2
from tfx import types
from tfx.dsl.io import fileio

from components.example_validator.drift import DRIFT, OlderData, describe_measured, measured_columns
from components.example_validator.odd_rows import find_rows
from components.example_validator.wording import (
    BEYOND_BOUNDS,
    NOT_FINITE,
    WRONG_TYPE,
    CheckedColumn,
    Finding,
    findings,
)

FILE = "anomalies.json"
"""The file of the anomalies of all splits in the artifact; the splits' folders hold TFDV's
protos."""

ALL_COLUMNS = "all columns"

_Type = anomalies_pb2.AnomalyInfo
_Reason: TypeAlias = anomalies_pb2.AnomalyInfo.Reason

UNREADABLE = {
    # Transform cannot parse a column that is missing or has another type.
    _Type.SCHEMA_MISSING_COLUMN,
    _Type.FEATURE_TYPE_NOT_PRESENT,
    _Type.FEATURE_TYPE_NO_VALUES,
    *WRONG_TYPE,
    _Type.INVALID_FEATURE_SHAPE,
    _Type.INVALID_SCHEMA_SPECIFICATION,
}
"""The anomalies that are severe for every column that the model uses; any anomaly of the label is
severe."""

OUT_OF_RANGE = BEYOND_BOUNDS | NOT_FINITE
"""Further severe anomalies: the bounds of a feature are never inferred, so that a user has set
them."""

NUMBER_OF_VALUES = {_Type.FEATURE_TYPE_LOW_NUMBER_VALUES, _Type.FEATURE_TYPE_HIGH_NUMBER_VALUES}
"""The anomalies that are severe for columns of one value a row, as Transform could not parse
them."""

MISSING = {
    _Type.FEATURE_TYPE_NOT_PRESENT,
    _Type.FEATURE_TYPE_LOW_FRACTION_PRESENT,
    _Type.FEATURE_TYPE_LOW_NUMBER_PRESENT,
}


@dataclass(frozen=True)
class Anomaly:
    """The anomaly of one column, in the splits that share it."""

    splits: tuple[str, ...]
    column: str
    description: str
    severe: bool
    is_new_column: bool = False
    is_drift: bool = False
    """Whether it is a difference from older data, and not from the schema."""

    def __str__(self) -> str:
        splits = " and ".join(self.splits) + (" split" if len(self.splits) == 1 else " splits")
        return f"{splits}, {self.column}: {self.description}"


_ANOMALIES = TypeAdapter(list[Anomaly])


@dataclass(frozen=True)
class SplitValidation:
    """A split's statistics, and TFDV's anomalies of them."""

    statistics: statistics_pb2.DatasetFeatureStatisticsList
    anomalies: anomalies_pb2.Anomalies
    older: OlderData | None = None
    """The older data for the comparison, if there is any."""


@dataclass(frozen=True)
class _Contradiction:
    """The reasons for an anomaly of a column, and the splits in which it occurs."""

    splits: dict[str, SplitValidation]
    reasons: list[_Reason]

    @property
    def kinds(self) -> set[int]:
        return {reason.type for reason in self.reasons}


def find_anomalies(
    checked: Mapping[str, SplitValidation],
    schema: schema_pb2.Schema,
    label: str,
    ignored: Collection[str],
    drift_is_severe: bool,
    examples: types.Artifact | None,
) -> list[Anomaly]:
    """Returns the anomalies of all splits, severe ones first.

    Args:
      checked: the statistics and TFDV's anomalies, by split.
      schema: the schema of the comparison.
      label: the label's column.
      ignored: columns that are not inputs of the model.
      drift_is_severe: whether drift of any column is severe.
      examples: the artifact whose files are searched for the rows.
    """
    all_anomalies = _describe_drift(checked, drift_is_severe)
    contradictions = _by_column(checked, schema)
    features = {feature.name: feature for feature in schema.feature}
    columns = _checked_columns(contradictions, checked, schema, features)
    findings_by_column = {
        name: findings(columns[name], one.reasons)
        if name in columns
        else [Finding.from_tfdv(reason.description) for reason in one.reasons]
        for name, one in contradictions.items()
    }
    searches = {
        f"{name} {i}": (name, finding.is_odd)
        for name, of_column in findings_by_column.items()
        for i, finding in enumerate(of_column)
        if finding.is_odd is not None
    }
    rows = find_rows(examples, searches)
    for name, one in contradictions.items():
        text = "; ".join(
            f.sentence(rows.get(f"{name} {i}")) for i, f in enumerate(findings_by_column[name])
        )
        severe = name == label or (
            name not in ignored and _is_severe(one.kinds, features.get(name))
        )
        is_new = _Type.SCHEMA_NEW_COLUMN in one.kinds
        all_anomalies.append(Anomaly(tuple(one.splits), name, text, severe, is_new))
    return sorted(all_anomalies, key=lambda anomaly: not anomaly.severe)


def write_anomalies(artifact: types.Artifact, anomalies: Sequence[Anomaly]) -> None:
    """Writes the anomalies into an ExampleAnomalies artifact."""
    with fileio.open(posixpath.join(artifact.uri, FILE), "w") as file:
        file.write(json.dumps([asdict(one) for one in anomalies], indent=1))


def read_anomalies(artifact: types.Artifact) -> list[Anomaly]:
    """Returns the anomalies that `write_anomalies` has written, severe ones first."""
    with fileio.open(posixpath.join(artifact.uri, FILE), "r") as file:
        return _ANOMALIES.validate_python(json.loads(file.read()))


def contradicted_columns(
    schema: schema_pb2.Schema, statistics: Iterable[statistics_pb2.DatasetFeatureStatisticsList]
) -> list[str]:
    """Returns the names of the columns that contradict a schema."""
    checked = {
        str(i): SplitValidation(split, tfdv.validate_statistics(split, schema))
        for i, split in enumerate(statistics)
    }
    return sorted(_by_column(checked, schema).keys() - {ALL_COLUMNS})


def _is_severe(kinds: set[int], feature: schema_pb2.Feature | None) -> bool:
    if kinds & (UNREADABLE | OUT_OF_RANGE):
        return True
    one_value = feature is not None and feature.value_count.max == 1
    return one_value and bool(kinds & NUMBER_OF_VALUES)


def _by_column(
    checked: Mapping[str, SplitValidation], schema: schema_pb2.Schema
) -> dict[str, _Contradiction]:
    """Returns the contradictions of the schema in all splits, by column."""
    contradictions: dict[str, _Contradiction] = {}
    maybe_empty = {f.name for f in schema.feature if _may_be_empty(f)}
    for split, one in checked.items():
        for name, info in _infos(one.anomalies):
            # If rows may lack a value, they may lack the feature.
            waived = DRIFT | (MISSING if name in maybe_empty else set())
            reasons = [reason for reason in info.reason if reason.type not in waived]
            if reasons:
                column = contradictions.setdefault(name, _Contradiction({}, []))
                column.splits[split] = one
                column.reasons.extend(reasons)
    return contradictions


def _may_be_empty(feature: schema_pb2.Feature) -> bool:
    """Returns whether a schema requires a feature's presence, but not a value in it."""
    return not feature.HasField("value_count") and not feature.HasField("shape")


def _infos(
    anomalies: anomalies_pb2.Anomalies,
) -> Iterator[tuple[str, anomalies_pb2.AnomalyInfo]]:
    yield from anomalies.anomaly_info.items()
    if anomalies.HasField("dataset_anomaly_info"):
        yield ALL_COLUMNS, anomalies.dataset_anomaly_info


def _checked_columns(
    contradictions: Mapping[str, _Contradiction],
    checked: Mapping[str, SplitValidation],
    schema: schema_pb2.Schema,
    features: Mapping[str, schema_pb2.Feature],
) -> dict[str, CheckedColumn]:
    """Returns the schema and the statistics of each column with an anomaly, by name."""
    domains = {domain.name: domain for domain in schema.string_domain}
    counted = {
        split: {tuple(f.path.step): f for f in one.statistics.datasets[0].features}
        for split, one in checked.items()
    }
    checked_columns = {}
    for name in contradictions.keys() - {ALL_COLUMNS}:
        feature, splits = (
            features.get(name, schema_pb2.Feature(name=name)),
            contradictions[name].splits,
        )
        domain = feature.string_domain
        if feature.WhichOneof("domain_info") == "domain":
            domain = domains.get(feature.domain, domain)
        checked_columns[name] = CheckedColumn(
            feature,
            tuple(domain.value),
            tuple(counted[split][name,] for split in splits if (name,) in counted[split]),
            sum(one.statistics.datasets[0].num_examples for one in splits.values()),
        )
    return checked_columns


def _describe_drift(checked: Mapping[str, SplitValidation], is_severe: bool) -> list[Anomaly]:
    all_anomalies = []
    for split, one in checked.items():
        for name, measured in measured_columns(one.anomalies).items():
            texts = [
                describe_measured(m, name, one.statistics, one.older)
                for m in measured
                if m.value > m.threshold
            ]
            if texts:
                all_anomalies.append(
                    Anomaly((split,), name, "; ".join(texts), is_severe, is_drift=True)
                )
    return all_anomalies
