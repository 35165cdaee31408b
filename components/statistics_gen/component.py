"""The component StatisticsGen: TFX's StatisticsGen, which also checks that all rows are counted,
and counts all classes of the label.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.compute as pc
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.statistics_gen.executor import DEFAULT_FILE_NAME
from tfx.components.statistics_gen.executor import Executor as StockExecutor
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.types import standard_component_specs as specs

from components.examples_reader import read_columns
from components.row_counts import check_total
from components.split_files import Artifacts, split_files


class Executor(StockExecutor):
    """TFX's executor, which also checks the number of rows and counts all classes of the label."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Writes the statistics of each split to the output `statistics`.

        Raises:
          InternalError: the statistics count fewer or more rows than the examples have.
        """
        classes = exec_properties["classes"]
        properties = {name: value for name, value in exec_properties.items() if name != "classes"}
        super().Do(input_dict, output_dict, properties)
        statistics = artifact_utils.get_single_instance(output_dict[specs.STATISTICS_KEY])
        examples = input_dict[specs.EXAMPLES_KEY]
        for split in artifact_utils.decode_split_names(statistics.split_names):
            path = f"{artifact_utils.get_split_uri([statistics], split)}/{DEFAULT_FILE_NAME}"
            split_statistics = tfdv.load_stats_binary(path)
            files = split_files(examples, split)
            check_total(f"split {split}", split_statistics.datasets[0].num_examples, files)
            if add_values(split_statistics, examples, split, classes):
                with fileio.open(path, "wb") as file:
                    file.write(split_statistics.SerializeToString())


def add_values(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
    examples: list[types.Artifact],
    split: str,
    column: str,
) -> bool:
    """Adds all values of a text column to its histogram, which TFDV limits to 1,000 values.

    Args:
      statistics: the statistics of the split, which are changed if the histogram lacks values.
      column: the column's name. A missing or numeric column is not changed.

    Returns:
      Whether the statistics were changed.
    """
    feature_statistics = next(
        (f for f in statistics.datasets[0].features if _name(f) == column), None
    )
    strings = (
        feature_statistics.string_stats
        if feature_statistics is not None
        else statistics_pb2.StringStatistics()
    )
    buckets = strings.rank_histogram.buckets
    if len(buckets) >= strings.unique:
        return False
    del buckets[:]
    counts = _count_values(examples, split, column).items()
    ranked = sorted(counts, key=lambda item: (-item[1], item[0]))
    for rank, (value, count) in enumerate(ranked):
        buckets.add(low_rank=rank, high_rank=rank, label=value, sample_count=count)
    return True


def _count_values(examples: list[types.Artifact], split: str, column: str) -> Counter[str]:
    counts = Counter[str]()
    feature = schema_pb2.Feature(name=column, type=schema_pb2.BYTES)
    for batch in read_columns(examples, split, [feature]):
        for value in pc.value_counts(batch.column(column).flatten()).to_pylist():
            counts[value["values"].decode(errors="backslashreplace")] += value["counts"]
    return counts


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    return str(feature.path.step[-1] if feature.path.step else feature.name)


class StatisticsGenSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of StatisticsGen. Its constructor describes them."""

    PARAMETERS = {
        specs.EXCLUDE_SPLITS_KEY: component_spec.ExecutionParameter(type=str),
        "classes": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {specs.EXAMPLES_KEY: component_spec.ChannelParameter(type=standard_artifacts.Examples)}
    OUTPUTS = {
        specs.STATISTICS_KEY: component_spec.ChannelParameter(
            type=standard_artifacts.ExampleStatistics
        )
    }


class StatisticsGen(base_beam_component.BaseBeamComponent):
    """A StatisticsGen that counts every row and all classes of the label."""

    SPEC_CLASS = StatisticsGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, examples: types.BaseChannel, classes: str = "") -> None:
        """Constructs the TFX component.

        Args:
          classes: the label's column of a classification, whose histogram contains all values. The
            histograms of other columns contain the 1,000 most frequent values.
        """
        spec = StatisticsGenSpec(
            examples=examples,
            exclude_splits="[]",
            classes=classes,
            statistics=types.Channel(type=standard_artifacts.ExampleStatistics),
        )
        super().__init__(spec=spec)
