"""TFX's Tuner by its inputs and outputs; KerasTuner, which refuses tf_keras, has no part in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto import trainer_pb2
from tfx.types import BaseChannel, Channel, standard_artifacts, standard_component_specs
from tfx.types.component_spec import ChannelParameter

from components.tuner.executor import SearchExecutor


class TunerSpec(standard_component_specs.TunerSpec):
    """Stock's, with what was found odd about the data."""

    INPUTS = standard_component_specs.TunerSpec.INPUTS | {
        standard_component_specs.ANOMALIES_KEY: ChannelParameter(
            type=standard_artifacts.ExampleAnomalies, optional=True
        )
    }


class Tuner(base_component.BaseComponent):
    """Searches for better settings of a training.

    Gives `best_hyperparameters`, the values by key, and `tuner_results`, all trials.
    """

    SPEC_CLASS = TunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(SearchExecutor)

    def __init__(
        self,
        examples: BaseChannel,
        transform_graph: BaseChannel,
        schema: BaseChannel,
        anomalies: BaseChannel | None,
        train_split: str,
        judged_split: str,
        custom_config: Mapping[str, Any],
    ) -> None:
        """Constructs the component.

        Args:
          examples: a channel of transformed Examples.
          transform_graph: a channel of TransformGraph.
          schema: a channel of Schema, with the choices of what columns are.
          anomalies: a channel of ExampleAnomalies, if what an earlier search found counts until the
            data has drifted.
          train_split: the split that candidates learn from.
          judged_split: the split that they are measured on; the same one for a part of it, which
            they do not learn from then.
          custom_config: what the executor is told, as JSON.
        """
        spec = TunerSpec(
            examples=examples,
            transform_graph=transform_graph,
            schema=schema,
            anomalies=anomalies,
            train_args=trainer_pb2.TrainArgs(splits=[train_split]),
            eval_args=trainer_pb2.EvalArgs(splits=[judged_split]),
            custom_config=json.dumps(custom_config),
            best_hyperparameters=Channel(type=standard_artifacts.HyperParameters),
            tuner_results=Channel(type=standard_artifacts.TunerResults),
        )
        super().__init__(spec=spec)
