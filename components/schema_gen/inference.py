"""The inference of a schema from the first data, and its minimal change to accept later data."""

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
    """Infers a schema that all splits keep, with a domain for the label's classes.

    Args:
      statistics: the statistics of each split.
      label: the label's column.
      task: the task.
      images: columns of encoded images.
    """
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
    """Returns the schema, widened so that another split keeps it as well.

    TFDV deprecates a column without values in a split, and infers text as its type; here it keeps
    its type from the other splits, and may be missing.

    Args:
      schema: the schema of the splits before.
      statistics: the statistics of the split.
      known: the columns that have a value in the splits before.
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
    """Removes the expectation that a feature has values, and its shape, which would imply one."""
    feature.ClearField("shape")
    feature.ClearField("presence")
    feature.value_count.min = 0


def columns_with_values(statistics: statistics_pb2.DatasetFeatureStatisticsList) -> set[str]:
    """Returns the columns that are not missing in every row."""
    return {
        feature.path.step[0] or feature.name
        for feature in statistics.datasets[0].features
        if getattr(feature, feature.WhichOneof("stats")).common_stats.num_non_missing
    }


def _allow_gaps(feature: schema_pb2.Feature) -> None:
    """Expects a value in every row but no shape, with which a row without a value would be an
    error.
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
    of_label = [
        feature
        for split in statistics
        for feature in split.datasets[0].features
        if feature.path.step[:] == [label] or feature.name == label
    ]
    kind = of_label[0].WhichOneof("stats")
    if kind == "num_stats":
        low = min(feature.num_stats.min for feature in of_label)
        high = max(feature.num_stats.max for feature in of_label)
        if tfdv.get_feature(schema, label).type == schema_pb2.INT:
            tfdv.set_domain(
                schema, label, schema_pb2.IntDomain(name=label, min=int(low), max=int(high))
            )
    elif kind == "string_stats":
        ranks = [feature.string_stats.rank_histogram.buckets for feature in of_label]
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
    """Returns the schema, changed as little as the data of some columns needs.

    A column that no longer exists is removed. A new column, or one of another type, is inferred
    from the data. A column with missing values may have any number of them. Otherwise, bounds and
    lists of values grow.

    Args:
      schema: the schema that the data contradicts.
      statistics: the statistics of each split.
      columns: the columns to accept.
      label: the label's column.
      task: the task.
      images: columns of encoded images.
    """
    of_data = infer_schema(list(statistics), label, task, images)
    full = set[str]().union(*(columns_with_values(split) for split in statistics))
    in_data = {feature.name for feature in of_data.feature}
    types = {feature.name: feature.type for feature in of_data.feature}
    grown = _grow(schema, statistics)
    accepted = schema_pb2.Schema()
    accepted.CopyFrom(schema)
    for column in columns:
        known = next((f for f in schema.feature if f.name == column), None)
        if column not in in_data:
            accepted = _without(accepted, column)
        elif known is None or (column in full and known.type != types[column]):
            accepted = _with(_without(accepted, column), of_data, column)
        elif column in full:
            accepted = _with(accepted, grown, column)
        else:
            may_be_missing(tfdv.get_feature(accepted, column))
    return accepted


def _grow(schema: schema_pb2.Schema, statistics: Statistics) -> schema_pb2.Schema:
    """Returns TFDV's own update by all splits, without a share of missing values, which varies by
    day.

    Columns without values in a split, which TFDV deprecates, stay as they are.
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
    """Returns the schema without a column and its own list of values."""
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    features = [feature for feature in schema.feature if feature.name != column]
    domains = [domain for domain in schema.string_domain if domain.name != column]
    del changed.feature[:], changed.string_domain[:]
    changed.feature.extend(features)
    changed.string_domain.extend(domains)
    return changed


def _with(schema: schema_pb2.Schema, other: schema_pb2.Schema, column: str) -> schema_pb2.Schema:
    """Returns the schema with a column, and its list of values, from another schema."""
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    feature = tfdv.get_feature(other, column)
    _put(changed.feature, feature, column)
    if feature.HasField("domain"):
        (domain,) = [domain for domain in other.string_domain if domain.name == feature.domain]
        _put(changed.string_domain, domain, feature.domain)
    return changed


def _put(items: Any, item: Any, name: str) -> None:
    """Replaces the item with a name, or adds one."""
    for known in items:
        if known.name == name:
            known.CopyFrom(item)
            return
    items.add().CopyFrom(item)
