"""Statistics of columns that are merged many at a time: what comes out, and how often."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx_bsl.statistics import merge_util

from components.beam_workers.options import IN_PROCESS_ARGS
from components.compat.tfdv import MergeMany, merge_many

COLUMNS = 300


def column(number: int) -> statistics_pb2.DatasetFeatureStatisticsList:
    """The statistics of one."""
    found = statistics_pb2.DatasetFeatureStatisticsList()
    feature = found.datasets.add(num_examples=7).features.add()
    feature.path.step.append(f"column {number}")
    feature.num_stats.mean = number
    return found


def test_what_is_merged_is_what_tfx_bsl_merges() -> None:
    lists = [column(number) for number in range(COLUMNS)]
    with beam.Pipeline(options=PipelineOptions(list(IN_PROCESS_ARGS))) as pipeline:
        _ = (
            pipeline
            | beam.Create([(None, one) for one in lists])
            | beam.CombinePerKey(MergeMany())
            | beam.Values()
            | beam.Map(lambda merged: check(merged, lists))
        )


def check(
    merged: statistics_pb2.DatasetFeatureStatisticsList,
    lists: list[statistics_pb2.DatasetFeatureStatisticsList],
) -> None:
    """Compares the columns, whose order is no matter."""
    expected = merge_util.merge_dataset_feature_statistics_list(lists)
    assert len(merged.datasets) == len(expected.datasets) == 1
    assert merged.datasets[0].num_examples == expected.datasets[0].num_examples

    def by_name(
        all_: statistics_pb2.DatasetFeatureStatisticsList,
    ) -> list[statistics_pb2.FeatureNameStatistics]:
        return sorted(all_.datasets[0].features, key=lambda feature: feature.path.step[0])

    assert by_name(merged) == by_name(expected)
    assert len(by_name(merged)) == COLUMNS


def test_columns_are_not_merged_again_for_every_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    merges = 0
    merge = merge_util.merge_dataset_feature_statistics_list

    def counting(
        lists: list[statistics_pb2.DatasetFeatureStatisticsList],
    ) -> statistics_pb2.DatasetFeatureStatisticsList:
        nonlocal merges
        merges += 1
        return merge(lists)

    monkeypatch.setattr(merge_util, "merge_dataset_feature_statistics_list", counting)
    combine = MergeMany()
    total = combine.create_accumulator()
    for number in range(COLUMNS):
        total = combine.add_input(total, column(number))
    assert len(combine.extract_output(total).datasets[0].features) == COLUMNS
    assert merges == 1


def test_tfdv_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_impl, "merge_util", merge_util)
    merge_many()
    assert isinstance(stats_impl.merge_util.merge_dataset_feature_statistics_list, MergeMany)
