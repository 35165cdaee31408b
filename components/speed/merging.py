"""TFDV's statistics of single columns, put together many at a time.

TFDV gives Beam a function that merges ten of them with all that were merged before, so that each
column is written and read anew for every ten: of 5,000 columns that is most of StatisticsGen.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from apache_beam.transforms.core import NoSideInputsCallableWrapperCombineFn
from tensorflow_data_validation.statistics import stats_impl
from tfx_bsl.statistics import merge_util

_AT_ONCE = 1000
"""Statistics of a column are some kilobytes."""


def merge_many() -> None:
    """Lets TFDV do so, in this process; calling it again changes nothing."""
    module: Any = stats_impl
    module.merge_util = SimpleNamespace(
        merge_dataset_feature_statistics=merge_util.merge_dataset_feature_statistics,
        merge_dataset_feature_statistics_list=MergeMany(),
    )


class MergeMany(NoSideInputsCallableWrapperCombineFn):
    """Merges lists of statistics as tfx_bsl does."""

    def __init__(self) -> None:
        """Waits for many of them."""
        super().__init__(merge_util.merge_dataset_feature_statistics_list, buffer_size=_AT_ONCE)
