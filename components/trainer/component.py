"""Trainer for a family of tasks that may learn from other things than tf.Examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import (
    Artifact,
    BaseChannel,
    Channel,
    component_spec,
    standard_artifacts,
)
from tfx.types import standard_component_specs as specs
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.utils import path_utils

from components.split_files import split_files
from components.trainer.executor import ClusterTrainerExecutor


class FamilyTrainerExecutor(ClusterTrainerExecutor):
    """Calls the `run_fn` of a family as that of the supervised tasks is called."""

    def read_inputs(
        self, input_dict: dict[str, list[Artifact]], exec_properties: dict[str, Any]
    ) -> FnArgs:
        """TFX's arguments; those that tell of examples are empty where there are none."""
        base = input_dict.get(specs.BASE_MODEL_KEY)
        return FnArgs(
            train_files=_files(input_dict, "train"),
            eval_files=_files(input_dict, "eval"),
            base_model=path_utils.serving_model_path(base[0].uri) if base else None,
            custom_config=json.loads(exec_properties[specs.CUSTOM_CONFIG_KEY]),
        )


def _files(input_dict: Mapping[str, list[Artifact]], split: str) -> list[str]:
    examples = input_dict.get(specs.EXAMPLES_KEY) or []
    return sorted(split_files(examples, split)) if examples else []


class TrainerSpec(component_spec.ComponentSpec):
    """What it takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        name: ExecutionParameter(type=str) for name in (specs.RUN_FN_KEY, specs.CUSTOM_CONFIG_KEY)
    }
    INPUTS = {
        specs.EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples, optional=True),
        specs.SCHEMA_KEY: ChannelParameter(type=standard_artifacts.Schema, optional=True),
        specs.BASE_MODEL_KEY: ChannelParameter(type=standard_artifacts.Model, optional=True),
    }
    OUTPUTS = {
        specs.MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        specs.MODEL_RUN_KEY: ChannelParameter(type=standard_artifacts.ModelRun),
    }


class Trainer(base_component.BaseComponent):
    """Trains in the processes of the strategy, with examples or without."""

    SPEC_CLASS = TrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(FamilyTrainerExecutor)

    def __init__(
        self,
        run_fn: str,
        custom_config: Mapping[str, Any],
        examples: BaseChannel | None = None,
        base_model: BaseChannel | None = None,
        schema: BaseChannel | None = None,
    ) -> None:
        """Constructs the component.

        Args:
          run_fn: the import path of the function that trains.
          custom_config: what it is told.
          examples: a channel of Examples, if it learns from any.
          schema: a channel of Schema, whose choices of types and sizes complete the settings.
          base_model: a channel of the Model that training begins with, if there is one.
        """
        spec = TrainerSpec(
            run_fn=run_fn,
            custom_config=json.dumps(custom_config),
            examples=examples,
            schema=schema,
            base_model=base_model,
            model=Channel(type=standard_artifacts.Model),
            model_run=Channel(type=standard_artifacts.ModelRun),
        )
        super().__init__(spec=spec)
