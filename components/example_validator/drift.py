"""Whether columns still look like those that a model was trained on: thresholds for TFDV."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from components.example_validator.bars import (
    are_numbers,
    chance_distance,
    count_cells,
    known_rows,
    with_equal_bars,
)
from components.example_validator.moves import Column, describe_move, find_column
from components.example_validator.wording import Finding
from trainer_module.errors import DataError

_Type = anomalies_pb2.AnomalyInfo

Thresholds: TypeAlias = Mapping[str, float | None]
"""Of a column: of `infinity_norm` or of `jensen_shannon`."""

_Measured: TypeAlias = anomalies_pb2.DriftSkewInfo.Measurement
_MEASURES = {
    _Type.COMPARATOR_L_INFTY_HIGH: (_Measured.L_INFTY, "infinity_norm", "shares"),
    _Type.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH: (
        _Measured.JENSEN_SHANNON_DIVERGENCE,
        "jensen_shannon",
        "distribution",
    ),
}
"""By kind of anomaly: TFDV's measurement, the config's key for it, and what it is of."""

_Statistics = statistics_pb2.FeatureNameStatistics
STORED = {
    _Statistics.INT: schema_pb2.INT,
    _Statistics.FLOAT: schema_pb2.FLOAT,
    _Statistics.STRING: schema_pb2.BYTES,
    _Statistics.BYTES: schema_pb2.BYTES,
}
"""The types of columns in a schema, by those that statistics have."""

DRIFT = {
    _Type.COMPARATOR_L_INFTY_HIGH,
    _Type.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH,
    _Type.COMPARATOR_NORMALIZED_ABSOLUTE_DIFFERENCE_HIGH,
}
"""The kinds of anomaly that say how far the values moved."""


@dataclass(frozen=True)
class Drift:
    """How far columns may move, and what it does if they move further."""

    columns: Mapping[str, Thresholds]
    """By column, the threshold of `infinity_norm` or of `jensen_shannon`."""
    is_severe: bool = False
    """Whether drift stops the run."""

    @classmethod
    def from_json(cls, text: str) -> Drift:
        """From the `drift` section of a config; no text, no thresholds."""
        if not text:
            return cls({})
        section = json.loads(text)
        return cls(section["columns"], section["on_drift"] == "fail")

    @property
    def named(self) -> dict[str, str]:
        """The columns, by the key of the config that names each."""
        return {f"drift.columns.{column}": column for column in self.columns}

    def validate(
        self,
        statistics: statistics_pb2.DatasetFeatureStatisticsList,
        schema: schema_pb2.Schema,
        previous: statistics_pb2.DatasetFeatureStatisticsList,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> anomalies_pb2.Anomalies:
        """All anomalies of the statistics, with those that come from a comparison.

        Args:
          statistics: of one split.
          schema: of that split; its own comparators hold for columns that are not named here.
          previous: statistics of the same split of older data.
          values: by column, all numbers of the split. They are counted between the deciles of the
            older data, and the threshold of a small split is what chance does not pass.
        """
        values = values or {}
        before, now = with_equal_bars(previous, statistics, values)
        columns = {
            name: _at_least(threshold, find_column(before, name), find_column(now, name))
            if name in values
            else threshold
            for name, threshold in self.columns.items()
        }
        changed = _with_comparators(schema, columns)
        return tfdv.validate_statistics(now, changed, previous_statistics=before)

    def numbers(
        self,
        statistics: statistics_pb2.DatasetFeatureStatisticsList,
        previous: statistics_pb2.DatasetFeatureStatisticsList,
    ) -> list[schema_pb2.Feature]:
        """The columns of numbers in both whose values `validate` compares, as they are stored."""
        columns = {name: find_column(statistics, name) for name in self.columns}
        return [
            schema_pb2.Feature(name=name, type=STORED[column.type])
            for name, column in columns.items()
            if column is not None and are_numbers(find_column(previous, name), column)
        ]

    def check_measures(self, schema: schema_pb2.Schema, section: str = "drift") -> None:
        """Raises DataError for a threshold that no data could pass.

        TFDV counts how often a value occurs for text alone: the infinity norm of numbers is 0.

        Args:
          schema: has the types of the columns.
          section: of the config, for messages.
        """
        for column, threshold in self.columns.items():
            is_text = tfdv.get_feature(schema, column).type == schema_pb2.BYTES
            if threshold.get("infinity_norm") is not None and not is_text:
                raise DataError(
                    f"{section}.columns.{column}: infinity_norm compares the shares of values of "
                    "text, but the column holds numbers; use jensen_shannon"
                )


def _at_least(threshold: Thresholds, before: Column | None, now: Column | None) -> Thresholds:
    """What two samples of the same data do not pass, where that is more."""
    given = threshold.get("jensen_shannon")
    if given is None:
        return threshold
    rows = [known_rows(column) for column in (before, now)]
    # Without any values TFDV measures nothing.
    chance = chance_distance("jensen_shannon", rows, count_cells(before, now)) if all(rows) else 0
    return {**threshold, "jensen_shannon": max(given, min(chance, 1.0))}


def _with_comparators(
    schema: schema_pb2.Schema, columns: Mapping[str, Thresholds]
) -> schema_pb2.Schema:
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    for column, threshold in columns.items():
        comparator = tfdv.get_feature(changed, column).drift_comparator
        comparator.Clear()
        if (infinity_norm := threshold.get("infinity_norm")) is not None:
            comparator.infinity_norm.threshold = infinity_norm
        if (jensen_shannon := threshold.get("jensen_shannon")) is not None:
            comparator.jensen_shannon_divergence.threshold = jensen_shannon
    return changed


@dataclass(frozen=True)
class Older:
    """Statistics of older data, which drift is measured from."""

    statistics: statistics_pb2.DatasetFeatureStatisticsList
    name: str
    """What people call that data, such as `span 2026-01-05`; may be empty."""


def measures_by_column(anomalies: anomalies_pb2.Anomalies) -> dict[str, dict[int, _Measured]]:
    """What was measured of each column, by the type of the measurement."""
    return {
        info.path.step[0]: {m.type: m for m in info.drift_measurements}
        for info in anomalies.drift_skew_info
    }


def measure_name(measured: _Measured) -> str:
    """What the config calls a measurement."""
    return next(key for kind, key, _ in _MEASURES.values() if kind == measured.type)


def describe_drift(
    reason: anomalies_pb2.AnomalyInfo.Reason,
    measured: Mapping[int, _Measured],
    column: str,
    now: statistics_pb2.DatasetFeatureStatisticsList,
    older: Older | None,
) -> str:
    """How far a column's values moved, how far they may, and from what to what.

    Args:
      reason: TFDV's.
      measured: of the column, by the type of the measurement.
      column: its name.
      now: the statistics in which it was found.
      older: what they were compared with.
    """
    kind = _MEASURES[reason.type][0] if reason.type in _MEASURES else None
    if kind is None or kind not in measured:
        return Finding.in_tfdvs_words(reason.description).found
    return describe_measured(measured[kind], column, now, older)


def describe_measured(
    measured: _Measured,
    column: str,
    now: statistics_pb2.DatasetFeatureStatisticsList,
    older: Older | None,
) -> str:
    """The same of what was measured, whether it passes its threshold or not."""
    _, key, what = next(one for one in _MEASURES.values() if one[0] == measured.type)
    found = f"{measured.value:.3g}"
    if older is not None:
        found += f" compared with {older.name}" if older.name else ""
        move = describe_move(find_column(older.statistics, column), find_column(now, column))
        found += f": {move}" if move else ""
    return (
        f"expected the {what} of its values to move by no more than {measured.threshold:g} "
        f"({key}); found {found}"
    )
