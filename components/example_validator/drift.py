"""Whether columns still look like those that a model was trained on: thresholds for TFDV."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from trainer_module.errors import DataError

_Type = anomalies_pb2.AnomalyInfo

DRIFT = {
    _Type.COMPARATOR_L_INFTY_HIGH,
    _Type.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH,
    _Type.COMPARATOR_NORMALIZED_ABSOLUTE_DIFFERENCE_HIGH,
}
"""The kinds of anomaly that say how far the values moved."""


@dataclass(frozen=True)
class Drift:
    """How far columns may move, and what it does if they move further."""

    columns: Mapping[str, Mapping[str, float | None]]
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
    ) -> anomalies_pb2.Anomalies:
        """All anomalies of the statistics, with those that come from a comparison.

        Args:
          statistics: of one split.
          schema: of that split; its own comparators hold for columns that are not named here.
          previous: statistics of the same split of older data.
        """
        return tfdv.validate_statistics(
            statistics, self._with_comparators(schema), previous_statistics=previous
        )

    def check_measures(self, schema: schema_pb2.Schema) -> None:
        """Raises DataError for a threshold that no data could pass.

        TFDV counts how often a value occurs for text alone: the infinity norm of numbers is 0.
        """
        for column, threshold in self.columns.items():
            is_text = tfdv.get_feature(schema, column).type == schema_pb2.BYTES
            if threshold.get("infinity_norm") is not None and not is_text:
                raise DataError(
                    f"drift.columns.{column}: infinity_norm compares the shares of values of "
                    "text, but the column holds numbers; use jensen_shannon"
                )

    def _with_comparators(self, schema: schema_pb2.Schema) -> schema_pb2.Schema:
        changed = schema_pb2.Schema()
        changed.CopyFrom(schema)
        for column, threshold in self.columns.items():
            comparator = tfdv.get_feature(changed, column).drift_comparator
            comparator.Clear()
            if (infinity_norm := threshold.get("infinity_norm")) is not None:
                comparator.infinity_norm.threshold = infinity_norm
            if (jensen_shannon := threshold.get("jensen_shannon")) is not None:
                comparator.jensen_shannon_divergence.threshold = jensen_shannon
        return changed
