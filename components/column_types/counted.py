"""What the statistics of a split tell of its columns."""

from __future__ import annotations

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.column_types.facts import Counts

_PLACEHOLDERS = {"__BYTES_VALUE__", "__LARGE_BYTES__"}
"""What TFDV counts instead of bytes that are no text, and of long texts: as if all were the same"""


def count_columns(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> dict[str, Counts]:
    """The counts of each column of numbers or text, by name.

    Args:
      statistics: of a split, as StatisticsGen makes them.
    """
    dataset = statistics.datasets[0]
    found = {f.path.step[-1] if f.path.step else f.name: f for f in dataset.features}
    return {name: _count(feature, dataset.num_examples) for name, feature in found.items()}


def _count(feature: statistics_pb2.FeatureNameStatistics, rows: int) -> Counts:
    common = getattr(feature, feature.WhichOneof("stats")).common_stats
    known, longest = common.num_non_missing, common.max_num_values
    if feature.HasField("num_stats"):
        numbers = feature.num_stats
        # The values of lists cannot be told from rows.
        missing = numbers.histograms[0].num_nan if longest == 1 and numbers.histograms else 0
        return Counts(rows, known - int(missing), longest, None, (), numbers.min, numbers.max)
    buckets = feature.string_stats.rank_histogram.buckets
    if any(bucket.label in _PLACEHOLDERS for bucket in buckets):
        return Counts(rows, known, longest)
    blank = [bucket for bucket in buckets if not bucket.label.strip()]
    ranked = sorted(buckets, key=lambda bucket: (-bucket.sample_count, bucket.label))
    if longest == 1:
        known -= int(sum(bucket.sample_count for bucket in blank))
    return Counts(
        rows,
        known,
        longest,
        feature.string_stats.unique - len(blank),
        tuple(bucket.label for bucket in ranked if bucket.label.strip()),
    )
