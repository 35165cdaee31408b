"""A schema changed by no more than it takes for the data to keep it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.schema_gen.inference import columns_with_values, infer_schema, may_be_missing
from trainer_module.settings import Task

Statistics = Sequence[statistics_pb2.DatasetFeatureStatisticsList]


def accept_data(
    schema: schema_pb2.Schema,
    statistics: Statistics,
    columns: Collection[str],
    label: str,
    task: Task,
    images: Iterable[str],
) -> schema_pb2.Schema:
    """The schema, changed as little as the data of some columns needs.

    A column that is gone is taken out. One that is new, or of another type, is as the data has it.
    One that lacks values may lack any number of them. For the rest, bounds and lists of values
    grow.

    Args:
      schema: that the data contradicts.
      statistics: of each split.
      columns: those to accept.
      label: the label's column.
      task: what the model predicts.
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
    """TFDV's own update by all splits, but for a share of missing values, which varies by the day.

    TFDV gives up a column that has no value in a split.
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
    """The schema without a column and its own list of values."""
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    features = [feature for feature in schema.feature if feature.name != column]
    domains = [domain for domain in schema.string_domain if domain.name != column]
    del changed.feature[:], changed.string_domain[:]
    changed.feature.extend(features)
    changed.string_domain.extend(domains)
    return changed


def _with(schema: schema_pb2.Schema, other: schema_pb2.Schema, column: str) -> schema_pb2.Schema:
    """The schema with a column, and its list of values, as another schema has them."""
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    feature = tfdv.get_feature(other, column)
    _put(changed.feature, feature, column)
    if feature.HasField("domain"):
        (domain,) = [domain for domain in other.string_domain if domain.name == feature.domain]
        _put(changed.string_domain, domain, feature.domain)
    return changed


def _put(items: Any, item: Any, name: str) -> None:
    """Replaces the item of a name, or adds one."""
    for known in items:
        if known.name == name:
            known.CopyFrom(item)
            return
    items.add().CopyFrom(item)
