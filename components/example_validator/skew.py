"""How far rows that a model is asked for are from those that it was trained on, by TFDV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tensorflow_metadata.proto.v0 import schema_pb2

from components.example_validator.drift import (
    BY_CHANCE,
    MEASURES,
    STORED,
    Drift,
    Measured,
    Older,
    chance_distance,
    describe_measured,
    known_rows,
    measured_columns,
    with_equal_bars,
)
from components.example_validator.moves import Statistics, find_column
from trainer_module.errors import DataError


@dataclass(frozen=True)
class ColumnSkew:
    """How far a column is from the training data."""

    column: str
    measure: str
    """`infinity_norm` or `jensen_shannon`."""
    distance: float
    threshold: float
    chance: float
    """What two samples of the same data would not exceed."""
    in_words: str
    """What was expected and found, and which values moved from what to what."""

    @property
    def is_skewed(self) -> bool:
        """Whether the threshold is passed, and by more than by chance."""
        return self.distance > max(self.threshold, self.chance)


def measure_skew(served: pa.RecordBatch, drift: Drift, trained: Older) -> list[ColumnSkew]:
    """Compares columns that were served with the training data.

    Args:
      served: encoded columns.
      drift: the columns and how far each may move.
      trained: statistics of what was trained on.

    Raises:
      DataError: a column is in one of them alone, or of another type.
    """
    schema = schema_pb2.Schema()
    for name in drift.columns:
        schema.feature.add(name=name, type=_type_of(name, trained, served))
    drift.check_measures(schema, section="skew")
    served = served.select(list(drift.columns))
    values = {
        name: served.column(name).flatten().to_numpy(zero_copy_only=False) for name in drift.columns
    }
    now = generate_statistics_in_memory(served, tfdv.StatsOptions())
    before, now = with_equal_bars(trained.statistics, now, values)
    measured = measured_columns(drift.validate(now, schema, before))
    older = Older(before, trained.name)
    return [
        _column_skew(name, measured[name][0], now, older)
        if name in measured
        else _without_values(name, threshold, now, older)
        for name, threshold in drift.columns.items()
    ]


def _without_values(
    name: str, thresholds: Mapping[str, float | None], now: Statistics, older: Older
) -> ColumnSkew:
    """A column without any value in one of them, of which TFDV measures nothing."""
    (measure, threshold), *_ = ((k, value) for k, value in thresholds.items() if value is not None)
    rows = known_rows(find_column(older.statistics, name)), known_rows(find_column(now, name))
    total = now.datasets[0].num_examples
    share = rows[0] / max(older.statistics.datasets[0].num_examples, 1)
    # Of a column that is nearly always empty, some window has no value by chance.
    is_as_before = rows[1] > 0 or (1 - share) ** total > BY_CHANCE
    words = f"expected values as in {older.name}; found none in any row"
    return ColumnSkew(name, measure, 0.0 if is_as_before else 1.0, threshold, 0.0, words)


def _column_skew(name: str, measured: Measured, now: Statistics, older: Older) -> ColumnSkew:
    measure, _ = MEASURES[measured.type]
    chance = chance_distance(measure, find_column(older.statistics, name), find_column(now, name))
    words = describe_measured(measured, name, now, older)
    return ColumnSkew(name, measure, measured.value, measured.threshold, chance, words)


def _type_of(name: str, trained: Older, served: pa.RecordBatch) -> int:
    column = find_column(trained.statistics, name)
    if column is None:
        raise DataError(f"skew.columns.{name}: {trained.name} has no such column; correct the key.")
    if name not in served.schema.names:
        raise DataError(
            f"skew.columns.{name}: the requests have no such column: the model does not ask for it,"
            " or log.drop leaves it out; remove the key."
        )
    return int(STORED[column.type])
