"""TFX's InfraValidator by its place and its output; no Docker, and no canary of a model server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.standard_component_specs import (
    BLESSING_KEY,
    CUSTOM_CONFIG_KEY,
    EXAMPLES_KEY,
    MODEL_BLESSING_KEY,
    MODEL_KEY,
    SCHEMA_KEY,
    STATISTICS_KEY,
    TRANSFORM_GRAPH_KEY,
)

from components.infra_validator.executor import (
    GOLDEN_ROWS_KEY,
    LIMITS_KEY,
    CertifyingExecutor,
)
from components.infra_validator.limits import CertificateLimits


class InfraValidatorSpec(component_spec.ComponentSpec):
    """What it takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        name: ExecutionParameter(type=str) for name in (CUSTOM_CONFIG_KEY, LIMITS_KEY)
    } | {GOLDEN_ROWS_KEY: ExecutionParameter(type=str, optional=True)}
    INPUTS = {
        MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        MODEL_BLESSING_KEY: ChannelParameter(type=standard_artifacts.ModelBlessing),
    } | {
        key: ChannelParameter(type=artifact, optional=True)
        for key, artifact in (
            (TRANSFORM_GRAPH_KEY, standard_artifacts.TransformGraph),
            (EXAMPLES_KEY, standard_artifacts.Examples),
            (STATISTICS_KEY, standard_artifacts.ExampleStatistics),
            (SCHEMA_KEY, standard_artifacts.Schema),
        )
    }
    OUTPUTS = {BLESSING_KEY: ChannelParameter(type=standard_artifacts.InfraBlessing)}


class InfraValidator(base_component.BaseComponent):
    """Asks a blessed model for golden rows, in a process of its own, by every way there is.

    Gives `blessing`, an InfraBlessing: blessed if all answers agree. Its folder holds the
    certificate and the golden rows, which Pusher puts into the version.
    """

    SPEC_CLASS = InfraValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(CertifyingExecutor)

    def __init__(
        self,
        model: BaseChannel,
        model_blessing: BaseChannel,
        limits: CertificateLimits,
        custom_config: Mapping[str, Any],
        transform_graph: BaseChannel | None = None,
        examples: BaseChannel | None = None,
        statistics: BaseChannel | None = None,
        schema: BaseChannel | None = None,
        golden_rows: str | None = None,
    ) -> None:
        """Constructs the component.

        Args:
          model: a channel of Model.
          model_blessing: a channel of ModelBlessing; a model that is not blessed is not asked.
          limits: how far answers may be apart, and what finding out may take.
          custom_config: the settings of the training, as Trainer is told them.
          transform_graph: a channel of TransformGraph, which the model was trained behind.
          examples: a channel of Examples, as they were read; without, the golden rows come from
            `golden_rows`, or are columns at their edges.
          statistics: a channel of ExampleStatistics of the same.
          schema: a channel of Schema, with the choices of what columns are.
          golden_rows: the import path of a family's function, see `Family.golden_rows`.
        """
        spec = InfraValidatorSpec(
            model=model,
            model_blessing=model_blessing,
            transform_graph=transform_graph,
            examples=examples,
            statistics=statistics,
            schema=schema,
            certificate=json.dumps(limits.to_json()),
            custom_config=json.dumps(custom_config),
            golden_rows=golden_rows,
            blessing=Channel(type=standard_artifacts.InfraBlessing),
        )
        super().__init__(spec=spec)
