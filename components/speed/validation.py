"""TFDV's validation of wide tables, a few hundred columns at a time.

TFDV looks for each column among all the others, which for thousands takes minutes. What it finds in
a column depends on that column alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from inspect import signature
from typing import Any, TypeAlias

from tensorflow_data_validation.api import validation_api
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

MOST_COLUMNS = 200

_FUNCTION = "validate_statistics_internal"
_Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


def validate_by_columns() -> None:
    """Lets TFDV do so, in this process; calling it again changes nothing."""
    function = getattr(validation_api, _FUNCTION)
    if not hasattr(function, "__wrapped__"):
        setattr(validation_api, _FUNCTION, _by_columns(function))


def _by_columns(validate: Any) -> Any:
    takes = signature(validate)

    @wraps(validate)
    def by_columns(*arguments: Any, **options: Any) -> anomalies_pb2.Anomalies:
        given = takes.bind(*arguments, **options).arguments
        statistics, schema = given["statistics"], given["schema"]
        # Others of its arguments are statistics, too, of what the data is compared with.
        compared = {key: v for key, v in given.items() if type(v) is type(statistics)}
        others = any(given[key] for key in given.keys() - compared.keys() - {"schema"})
        has_groups = schema.sparse_feature or schema.weighted_feature
        if others or has_groups or len(schema.feature) <= MOST_COLUMNS:
            return validate(*arguments, **options)
        result = anomalies_pb2.Anomalies()
        for names in _groups(statistics, schema):
            parts = {key: _statistics_of(names, value) for key, value in compared.items()}
            found = validate(**given | parts | {"schema": _schema_of(names, schema)})
            if result.HasField("dataset_anomaly_info"):
                found.ClearField("dataset_anomaly_info")  # The same in each part.
            found.ClearField("baseline")
            result.MergeFrom(found)
        result.baseline.CopyFrom(schema)
        return result

    return by_columns


def _groups(statistics: _Statistics, schema: schema_pb2.Schema) -> Iterator[set[str]]:
    """The names of all columns, so many at a time."""
    names = {feature.name: None for feature in schema.feature}
    names |= {_name(feature): None for data in statistics.datasets for feature in data.features}
    ordered = list(names)
    for start in range(0, len(ordered), MOST_COLUMNS):
        yield set(ordered[start : start + MOST_COLUMNS])


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    return feature.name or feature.path.step[0]


def _statistics_of(names: set[str], statistics: _Statistics) -> _Statistics:
    part = _Statistics()
    for data in statistics.datasets:
        copy = part.datasets.add(name=data.name, num_examples=data.num_examples)
        copy.weighted_num_examples = data.weighted_num_examples
        copy.features.extend(feature for feature in data.features if _name(feature) in names)
    return part


def _schema_of(names: set[str], schema: schema_pb2.Schema) -> schema_pb2.Schema:
    part = schema_pb2.Schema()
    part.CopyFrom(schema)
    del part.feature[:], part.string_domain[:]
    part.ClearField("tensor_representation_group")  # Nothing that TFDV validates, in each copy.
    part.feature.extend(feature for feature in schema.feature if feature.name in names)
    domains = {feature.domain for feature in part.feature}
    part.string_domain.extend(domain for domain in schema.string_domain if domain.name in domains)
    return part
