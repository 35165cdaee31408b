"""Whole numbers that are names, in a schema that was inferred when they were quantities."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.schema_gen.files import schema_revision
from trainer_module.errors import DataError


def floats_among(schema: schema_pb2.Schema, names: Collection[str]) -> set[str]:
    """Those of the columns that are floats in the schema."""
    return {f.name for f in schema.feature if f.type == schema_pb2.FLOAT and f.name in names}


def make_whole(
    schema: schema_pb2.Schema,
    names: set[str],
    statistics: Iterable[statistics_pb2.DatasetFeatureStatisticsList],
) -> set[str]:
    """Makes those of the columns whole numbers that are so in the data; returns their names."""
    whole = {
        feature.path.step[0] or feature.name
        for split in statistics
        for feature in split.datasets[0].features
        if feature.type == statistics_pb2.FeatureNameStatistics.INT
    }
    for feature in schema.feature:
        if feature.name in names & whole:
            feature.type = schema_pb2.INT
            feature.ClearField("domain_info")
    return names & whole


def check_is_inferred(path: str, curated: str, columns: set[str]) -> None:
    """Refuses to change a schema that a user wrote or edited.

    Args:
      path: the schema.
      curated: the path of the user's own schema, or empty.
      columns: of whole numbers that are names, and floats in the schema.

    Raises:
      DataError: it is the user's.
    """
    if curated or schema_revision(None, path):
        column, *others = sorted(columns)
        raise DataError(
            f"{path}: column {column!r} is `type: FLOAT`, which would change some of its whole "
            "numbers, and the config takes them for names; write `type: INT` there"
            + (f", and for {', '.join(others)}." if others else ".")
        )
