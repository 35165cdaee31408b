"""StatisticsGen as TFX has it, which does not take statistics of a part for those of the whole."""

from __future__ import annotations

from typing import Any

import tensorflow_data_validation as tfdv
from tfx import types
from tfx.components import StatisticsGen as StockStatisticsGen
from tfx.components.statistics_gen.executor import DEFAULT_FILE_NAME
from tfx.components.statistics_gen.executor import Executor as StockExecutor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as specs

from components.row_counts import check_total
from components.split_files import split_files


class Executor(StockExecutor):
    """Counts the rows once more: they were added up over several processes."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Takes and gives what TFX's StatisticsGen does.

        Raises:
          InternalError: rows were lost.
        """
        super().Do(input_dict, output_dict, exec_properties)
        statistics = artifact_utils.get_single_instance(output_dict[specs.STATISTICS_KEY])
        for split in artifact_utils.decode_split_names(statistics.split_names):
            found = tfdv.load_stats_binary(
                f"{artifact_utils.get_split_uri([statistics], split)}/{DEFAULT_FILE_NAME}"
            )
            files = split_files(input_dict[specs.EXAMPLES_KEY], split)
            check_total(f"split {split}", found.datasets[0].num_examples, files)


class StatisticsGen(StockStatisticsGen):
    """The component, under that executor."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
