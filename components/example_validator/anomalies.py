"""Anomalies of columns: their descriptions, and which of them are severe."""

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

from components.copying import write_text
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
"""The file in the artifact with the anomalies of all splits. The folders of the splits contain
TFDV's protos."""

ALL_COLUMNS = "all columns"

_Type = anomalies_pb2.AnomalyInfo
_Reason: TypeAlias = anomalies_pb2.AnomalyInfo.Reason

UNREADABLE = {
    # Transform cannot parse columns that are missing or have another type.
    _Type.SCHEMA_MISSING_COLUMN,
    _Type.FEATURE_TYPE_NOT_PRESENT,
    _Type.FEATURE_TYPE_NO_VALUES,
    *WRONG_TYPE,
    _Type.INVALID_FEATURE_SHAPE,
    _Type.INVALID_SCHEMA_SPECIFICATION,
}
"""The kinds of anomaly that are severe for every column that the model uses. For the label, every
anomaly is severe."""

OUT_OF_RANGE = BEYOND_BOUNDS | NOT_FINITE
"""Further kinds of anomaly that are severe. Bounds are never inferred, so a user has set them."""

NUMBER_OF_VALUES = {_Type.FEATURE_TYPE_LOW_NUMBER_VALUES, _Type.FEATURE_TYPE_HIGH_NUMBER_VALUES}
"""The kinds of anomaly that are severe for columns with one value per row, as Transform cannot
parse several values."""

MISSING = {
    _Type.FEATURE_TYPE_NOT_PRESENT,
    _Type.FEATURE_TYPE_LOW_FRACTION_PRESENT,
    _Type.FEATURE_TYPE_LOW_NUMBER_PRESENT,
}


@dataclass(frozen=True)
class Anomaly:
    """An anomaly of a column."""

    splits: tuple[str, ...]
    column: str
    description: str
    severe: bool
    """Whether the anomaly stops the run if the config does not prevent it."""
    is_new_column: bool = False
    """Whether the schema does not contain the column."""
    is_drift: bool = False
    """Whether the anomaly is a difference from older data, not from the schema."""

    def __str__(self) -> str:
        splits = " and ".join(self.splits) + (" split" if len(self.splits) == 1 else " splits")
        return f"{splits}, {self.column}: {self.description}"


_ANOMALIES = TypeAdapter(list[Anomaly])


@dataclass(frozen=True)
class SplitValidation:
    """The statistics of a split, and the anomalies that TFDV has found in them."""

    statistics: statistics_pb2.DatasetFeatureStatisticsList
    anomalies: anomalies_pb2.Anomalies
    older: OlderData | None = None
    """The older data from which drift is measured, or None if drift is not measured."""


@dataclass(frozen=True)
class _Contradiction:
    """The reasons why a column contradicts the schema, and the splits in which it does."""

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
    """Returns the anomalies of all splits. Severe anomalies come first.

    Args:
      ignored: columns that are not inputs of the model.
      examples: the examples, whose original files are searched for anomalous rows.
    """
    all_anomalies = _describe_drift(checked, drift_is_severe)
    contradictions = _by_column(checked, schema)
    features = {feature.name: feature for feature in schema.feature}
    columns = _checked_columns(contradictions, checked, schema, features)
    findings_by_column = {
        name: findings(columns[name], contradiction.reasons)
        if name in columns
        else [Finding.from_tfdv(reason.description) for reason in contradiction.reasons]
        for name, contradiction in contradictions.items()
    }
    searches = {
        f"{name} {i}": (name, finding.is_anomalous)
        for name, column_findings in findings_by_column.items()
        for i, finding in enumerate(column_findings)
        if finding.is_anomalous is not None
    }
    rows = find_rows(examples, searches)
    for name, contradiction in contradictions.items():
        text = "; ".join(
            f.sentence(rows.get(f"{name} {i}")) for i, f in enumerate(findings_by_column[name])
        )
        kinds = contradiction.kinds
        severe = name == label or (name not in ignored and _is_severe(kinds, features.get(name)))
        is_new = _Type.SCHEMA_NEW_COLUMN in kinds
        all_anomalies.append(Anomaly(tuple(contradiction.splits), name, text, severe, is_new))
    return sorted(all_anomalies, key=lambda anomaly: not anomaly.severe)


def write_anomalies(artifact: types.Artifact, anomalies: Sequence[Anomaly]) -> None:
    """Writes the anomalies into an ExampleAnomalies artifact."""
    write_text(json.dumps([asdict(anomaly) for anomaly in anomalies], indent=1), artifact.uri, FILE)


def read_anomalies(artifact: types.Artifact) -> list[Anomaly]:
    """Returns the anomalies that `write_anomalies` has written. Severe anomalies come first."""
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
    """Returns the contradictions between the data and the schema, by column."""
    contradictions: dict[str, _Contradiction] = {}
    maybe_empty = {
        f.name for f in schema.feature if not f.HasField("value_count") and not f.HasField("shape")
    }
    for split, validation in checked.items():
        for name, info in _infos(validation.anomalies):
            # A row may lack the feature if it may lack a value.
            permitted = DRIFT | (MISSING if name in maybe_empty else set())
            reasons = [reason for reason in info.reason if reason.type not in permitted]
            if reasons:
                column = contradictions.setdefault(name, _Contradiction({}, []))
                column.splits[split] = validation
                column.reasons.extend(reasons)
    return contradictions


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
    """Returns the columns that contradict the schema, by name, with their statistics."""
    domains = {domain.name: domain for domain in schema.string_domain}
    by_split = {
        split: {tuple(f.path.step): f for f in validation.statistics.datasets[0].features}
        for split, validation in checked.items()
    }
    checked_columns = {}
    for name in contradictions.keys() - {ALL_COLUMNS}:
        feature = features.get(name, schema_pb2.Feature(name=name))
        splits = contradictions[name].splits
        domain = feature.string_domain
        if feature.WhichOneof("domain_info") == "domain":
            domain = domains.get(feature.domain, domain)
        checked_columns[name] = CheckedColumn(
            feature,
            tuple(domain.value),
            tuple(by_split[split][name,] for split in splits if (name,) in by_split[split]),
            sum(one.statistics.datasets[0].num_examples for one in splits.values()),
        )
    return checked_columns


def _describe_drift(checked: Mapping[str, SplitValidation], is_severe: bool) -> list[Anomaly]:
    all_anomalies = []
    for split, validation in checked.items():
        for name, measurements in measured_columns(validation.anomalies).items():
            texts = [
                describe_measured(measured, name, validation.statistics, validation.older)
                for measured in measurements
                if measured.value > measured.threshold
            ]
            if texts:
                all_anomalies.append(
                    Anomaly((split,), name, "; ".join(texts), is_severe, is_drift=True)
                )
    return all_anomalies
