"""TensorFlow Data Validation, as of 1.21: what it does value by value is done on whole arrays.

Three functions of its modules and one of tfx_bsl's are replaced, as there is no option or hook for
any of them; the public way would be a release of TFDV that is as quick. `components.compat.speed`
replaces nothing where a function is not the one known here: TFDV then works in its own way, and
run.log says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from apache_beam.transforms.core import NoSideInputsCallableWrapperCombineFn
from tensorflow_data_validation.api import validation_api
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.utils import quantiles_util
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2
from tfx_bsl.statistics import merge_util

MOST_COLUMNS = 200
"""That are validated at a time."""
_MERGED_AT_ONCE = 1000
"""Statistics of a column are some kilobytes."""
_VALIDATE = "validate_statistics_internal"
_Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


def vectorise_histograms() -> None:
    """Replaces TFDV's histograms of a numeric column by ones that take a hundredth of the time.

    TFDV goes through a thousand quantiles in Python for each column, split and kind of histogram,
    which is most of what the statistics of a wide table take. Replaced in `quantiles_util`:
    `_get_bin_weights`, `generate_equi_width_histogram`. Calling it again changes nothing.
    """
    module: Any = quantiles_util
    module._get_bin_weights = bin_weights
    module.generate_equi_width_histogram = equi_width_histogram


def bin_weights(
    boundaries: np.ndarray, cumulative: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bins between quantiles, as TFDV's `_get_bin_weights` has them.

    Args:
      boundaries: [bins + 1]; sorted, may repeat.
      cumulative: [bins + 1]; the weight up to each boundary.

    Returns:
      Lower bounds, upper bounds and weights, [bins] float64 each; bins of the same upper bound
      share their weight evenly, and the first ones have what lies on the first boundary.
    """
    low, high = boundaries[:-1], boundaries[1:]
    cumulative = cumulative.astype(np.float64)
    if not low.size:
        return low, high, np.diff(cumulative)
    starts = np.flatnonzero(np.concatenate([[True], high[1:] != high[:-1]]))
    lengths = np.diff(np.append(starts, high.size))
    weights = np.repeat(np.add.reduceat(np.diff(cumulative), starts) / lengths, lengths)
    is_other = (low != low[0]) | (high != high[0])
    first = int(np.argmax(is_other)) if is_other.any() else low.size
    weights[:first] += cumulative[0] / max(first, 1)
    return low, high, weights


def equi_width_histogram(
    quantiles: np.ndarray,
    cumulative_counts: np.ndarray,
    finite_min: float,
    finite_max: float,
    num_buckets: int,
    num_pos_inf: float,
) -> statistics_pb2.Histogram:
    """A histogram of buckets of one width, as TFDV's `generate_equi_width_histogram` makes it.

    Args:
      quantiles: [quantiles]; sorted.
      cumulative_counts: [quantiles]; the weight up to each.
      finite_min: the smallest finite value.
      finite_max: the largest finite value.
      num_buckets: how many buckets there are to be.
      num_pos_inf: the weight of positive infinities.
    """
    result = statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD)
    if not np.isfinite(finite_min) and not np.isfinite(finite_max):
        _add(result, finite_min, finite_max, cumulative_counts[-1])
        return result
    strip: Any = quantiles_util._strip_infinities
    quantiles, cumulative_counts, num_neg_inf = strip(
        quantiles, cumulative_counts, finite_max, num_pos_inf
    )
    buckets = num_buckets if finite_min != finite_max else 1
    edges = np.linspace(finite_min, finite_max, buckets + 1)
    if not np.isfinite(edges).all():
        return result
    if num_neg_inf:
        _add(result, -np.inf, -np.inf, num_neg_inf)
    counts = _share_out(*bin_weights(quantiles, cumulative_counts), edges)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        _add(result, low, high, count)
    if num_pos_inf:
        _add(result, np.inf, np.inf, num_pos_inf)
    return result


def _share_out(
    low: np.ndarray, high: np.ndarray, weights: np.ndarray, edges: np.ndarray
) -> np.ndarray:
    """The weight between each two edges, where that of a bin is spread evenly over it."""
    starts, ends = edges[:-1, np.newaxis], edges[1:, np.newaxis]
    is_point = low == high
    width = np.where(is_point, 1.0, high - low)
    share = np.clip(np.minimum(high, ends) - np.maximum(low, starts), 0, None) / width
    # A point on an edge belongs to the bucket below it; on the first edge, to the first one.
    inside = (low > starts) & (low <= ends)
    inside[0] |= low == edges[0]
    return np.where(is_point, inside, share) @ weights


def _add(histogram: statistics_pb2.Histogram, low: float, high: float, count: float) -> None:
    histogram.buckets.add(low_value=low, high_value=high, sample_count=count)


def merge_many() -> None:
    """Lets TFDV put the statistics of single columns together many at a time.

    TFDV gives Beam a function that merges ten of them with all that were merged before, so that
    each column is written and read anew for every ten: of 5,000 columns that is most of
    StatisticsGen. Replaced in `stats_impl`: the module `merge_util`, as that file sees it. Calling
    it again changes nothing.
    """
    module: Any = stats_impl
    module.merge_util = SimpleNamespace(
        merge_dataset_feature_statistics=merge_util.merge_dataset_feature_statistics,
        merge_dataset_feature_statistics_list=MergeMany(),
    )


class MergeMany(NoSideInputsCallableWrapperCombineFn):
    """Merges lists of statistics as tfx_bsl does."""

    def __init__(self) -> None:
        """Waits for many of them."""
        super().__init__(
            merge_util.merge_dataset_feature_statistics_list, buffer_size=_MERGED_AT_ONCE
        )


def validate_by_columns() -> None:
    """Lets TFDV validate wide tables a few hundred columns at a time.

    TFDV looks for each column among all the others, which for thousands takes minutes. What it
    finds in a column depends on that column alone. Wrapped in `validation_api`:
    `validate_statistics_internal`. Calling it again changes nothing.
    """
    function = getattr(validation_api, _VALIDATE)
    if not hasattr(function, "__wrapped__"):
        setattr(validation_api, _VALIDATE, _by_columns(function))


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
