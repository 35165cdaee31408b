"""Infers a schema from the first data, and changes a schema so that it accepts later data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from trainer_module.settings import Task


def infer_schema(
    statistics: list[statistics_pb2.DatasetFeatureStatisticsList],
    label: str,
    task: Task,
    images: Iterable[str],
) -> schema_pb2.Schema:
    """Returns a schema with which all splits agree, and which lists the label's classes."""
    schema, known = schema_pb2.Schema(), set[str]()
    for split in statistics:
        schema = _widen(schema, split, known)
        known |= columns_with_values(split)
    for feature in schema.feature:
        if feature.name in images:
            feature.ClearField("domain_info")
        elif feature.name != label:
            _allow_gaps(feature)
    if task.is_classification:
        _set_label_domain(schema, statistics, label)
    # The order of features in statistics depends on the number of processes.
    schema.feature.sort(key=lambda feature: feature.name)
    return schema


def _widen(
    schema: schema_pb2.Schema,
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
    known: set[str],
) -> schema_pb2.Schema:
    """Returns the schema, widened so that another split agrees with it.

    For a column without values in a split, TFDV would infer text as the type and deprecate the
    column. This function keeps the type of the other splits and allows missing values.

    Args:
      known: the columns with a value in the previous splits.
    """
    before = {feature.name: feature for feature in schema.feature if feature.name in known}
    base = schema_pb2.Schema()
    base.CopyFrom(schema)
    del base.feature[:]
    base.feature.extend(before.values())
    widened = tfdv.update_schema(base, statistics) if before else tfdv.infer_schema(statistics)
    empty = {feature.name for feature in widened.feature} - columns_with_values(statistics)
    for feature in widened.feature:
        if feature.name in empty & before.keys():
            feature.CopyFrom(before[feature.name])
        if feature.name in empty or feature.presence.min_fraction < 1:
            may_be_missing(feature)
    return widened


def may_be_missing(feature: schema_pb2.Feature) -> None:
    """Removes a feature's shape and its required presence, so that its values may be missing."""
    feature.ClearField("shape")
    feature.ClearField("presence")
    feature.value_count.min = 0


def columns_with_values(statistics: statistics_pb2.DatasetFeatureStatisticsList) -> set[str]:
    """Returns the columns with a value in at least one row."""
    return {
        feature.path.step[0] or feature.name
        for feature in statistics.datasets[0].features
        if getattr(feature, feature.WhichOneof("stats")).common_stats.num_non_missing
    }


def _allow_gaps(feature: schema_pb2.Feature) -> None:
    """Replaces the shape of a feature with one value by the expectation of one value in every row.

    With a shape, parsing a row without a value would raise an error.
    """
    if [dim.size for dim in feature.shape.dim] == [1]:
        feature.ClearField("shape")
        feature.value_count.min = feature.value_count.max = 1


def _set_label_domain(
    schema: schema_pb2.Schema,
    statistics: list[statistics_pb2.DatasetFeatureStatisticsList],
    label: str,
) -> None:
    """Sets the label's domain to the classes in the statistics."""
    label_statistics = [
        feature
        for split in statistics
        for feature in split.datasets[0].features
        if feature.path.step[:] == [label] or feature.name == label
    ]
    kind = label_statistics[0].WhichOneof("stats")
    if kind == "num_stats":
        low = min(feature.num_stats.min for feature in label_statistics)
        high = max(feature.num_stats.max for feature in label_statistics)
        if tfdv.get_feature(schema, label).type == schema_pb2.INT:
            tfdv.set_domain(
                schema, label, schema_pb2.IntDomain(name=label, min=int(low), max=int(high))
            )
    elif kind == "string_stats":
        ranks = [feature.string_stats.rank_histogram.buckets for feature in label_statistics]
        classes = sorted({bucket.label for buckets in ranks for bucket in buckets})
        tfdv.set_domain(schema, label, schema_pb2.StringDomain(name=label, value=classes))


Statistics = Sequence[statistics_pb2.DatasetFeatureStatisticsList]


def accept_data(
    schema: schema_pb2.Schema,
    statistics: Statistics,
    columns: Collection[str],
    label: str,
    task: Task,
    images: Iterable[str],
) -> schema_pb2.Schema:
    """Returns the schema with the minimal changes that make the data of some columns agree with it.

    A column that no longer exists is removed. If a column is new or its type has changed, it is
    inferred from the data. If a column has missing values, the schema allows missing values. Bounds
    and lists of values are extended.
    """
    inferred = infer_schema(list(statistics), label, task, images)
    with_values = set[str]().union(*(columns_with_values(split) for split in statistics))
    types = {feature.name: feature.type for feature in inferred.feature}
    grown = _grow(schema, statistics)
    accepted = schema_pb2.Schema()
    accepted.CopyFrom(schema)
    for column in columns:
        old = next((f for f in schema.feature if f.name == column), None)
        if column not in types:
            accepted = _without(accepted, column)
        elif old is None or (column in with_values and old.type != types[column]):
            accepted = _with(_without(accepted, column), inferred, column)
        elif column in with_values:
            accepted = _with(accepted, grown, column)
        else:
            may_be_missing(tfdv.get_feature(accepted, column))
    return accepted


def _grow(schema: schema_pb2.Schema, statistics: Statistics) -> schema_pb2.Schema:
    """Returns TFDV's update of a schema by all splits, with two differences.

    If TFDV changes the expected share of missing values, any share is allowed, as shares vary by
    day. Columns without values in a split are not deprecated.
    """
    grown = schema
    for split in statistics:
        before = {feature.name: feature for feature in grown.feature}
        grown = tfdv.update_schema(grown, split)
        empty = before.keys() - columns_with_values(split)
        for feature in grown.feature:
            if feature.name in empty:
                feature.CopyFrom(before[feature.name])
            if feature.name in before and (
                feature.name in empty or feature.presence != before[feature.name].presence
            ):
                may_be_missing(feature)
    return grown


def _without(schema: schema_pb2.Schema, column: str) -> schema_pb2.Schema:
    """Returns the schema without a column and its list of values."""
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    features = [feature for feature in schema.feature if feature.name != column]
    domains = [domain for domain in schema.string_domain if domain.name != column]
    del changed.feature[:], changed.string_domain[:]
    changed.feature.extend(features)
    changed.string_domain.extend(domains)
    return changed


def _with(schema: schema_pb2.Schema, other: schema_pb2.Schema, column: str) -> schema_pb2.Schema:
    """Returns the schema with a column and its list of values from another schema."""
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    feature = tfdv.get_feature(other, column)
    _put(changed.feature, feature, column)
    if feature.HasField("domain"):
        (domain,) = [domain for domain in other.string_domain if domain.name == feature.domain]
        _put(changed.string_domain, domain, feature.domain)
    return changed


def _put(items: Any, item: Any, name: str) -> None:
    """Replaces the item that has a name, or adds the item if no item has the name."""
    for old in items:
        if old.name == name:
            old.CopyFrom(item)
            return
    items.add().CopyFrom(item)
