"""TFX's Transform, told what the columns are of which the config says nothing."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.components.transform.component import Transform as StockTransform
from tfx.components.transform.executor import Executor as StockExecutor
from tfx.dsl.components.base import executor_spec

from components.column_types.handing_on import add_choices


class Executor(StockExecutor):
    """Transforms as TFX does, with the choices that the schema holds."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Takes and gives what TFX's Transform does."""
        super().Do(input_dict, output_dict, add_choices(input_dict, exec_properties))


class Transform(StockTransform):
    """The component, under that executor."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
