"""TFX's Transform, with the schema's types for columns that the config does not declare."""

from __future__ import annotations

from typing import Any

from tfx.components.transform.component import Transform as StockTransform
from tfx.components.transform.executor import Executor as StockExecutor
from tfx.dsl.components.base import executor_spec

from components.column_types.injection import add_choices
from components.split_files import Artifacts
from trainer_module.runtime import report_step


class Executor(StockExecutor):
    """TFX's executor, with the schema's choices added to the `custom_config`."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Transforms the examples with TFX's inputs and outputs."""
        report_step("traces the graph of the transformations")
        super().Do(input_dict, output_dict, add_choices(input_dict, exec_properties))


class Transform(StockTransform):
    """TFX's Transform component with our executor."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
