"""The TFX component that makes variants of a model that is good enough."""

from __future__ import annotations

import json

import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.standard_component_specs import (
    CUSTOM_CONFIG_KEY,
    EVAL_CONFIG_KEY,
    EVALUATION_KEY,
    EXAMPLES_KEY,
    MODEL_KEY,
    SCHEMA_KEY,
    TRANSFORM_GRAPH_KEY,
    TRANSFORMED_EXAMPLES_KEY,
)

from components.optimizer.artifacts import VARIANTS_KEY, ModelVariants
from components.optimizer.executor import SPLIT_KEY, TRAIN_SPLIT_KEY, Executor
from components.optimizer.plan import OptimizerPlan


class OptimizerSpec(component_spec.ComponentSpec):
    """What the Optimizer takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        EVAL_CONFIG_KEY: ExecutionParameter(type=str),
        CUSTOM_CONFIG_KEY: ExecutionParameter(type=str),
        SPLIT_KEY: ExecutionParameter(type=str),
        TRAIN_SPLIT_KEY: ExecutionParameter(type=str),
    }
    INPUTS = {
        MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        EVALUATION_KEY: ChannelParameter(type=standard_artifacts.ModelEvaluation),
        EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples),
        TRANSFORMED_EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples),
        TRANSFORM_GRAPH_KEY: ChannelParameter(type=standard_artifacts.TransformGraph),
        SCHEMA_KEY: ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS = {VARIANTS_KEY: ChannelParameter(type=ModelVariants)}


class Optimizer(base_beam_component.BaseBeamComponent):
    """Makes variants, measures and evaluates them, and accepts those that are good enough."""

    SPEC_CLASS = OptimizerSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        model: BaseChannel,
        evaluation: BaseChannel,
        examples: BaseChannel,
        transformed_examples: BaseChannel,
        transform_graph: BaseChannel,
        schema: BaseChannel,
        eval_config: tfma.EvalConfig,
        split: str,
        train_split: str,
        plan: OptimizerPlan,
    ) -> None:
        """Constructs the component.

        Args:
          model: a channel of Model.
          evaluation: a channel of ModelEvaluation: whether the model is good enough, and how good.
            Its blessing says the same, and is marked where the model waits to be pushed, which
            would make a cached Optimizer run again.
          examples: a channel of Examples, as they are read: variants are evaluated on them.
          transformed_examples: a channel of transformed Examples, of which representative ones are
            taken.
          transform_graph: a channel of TransformGraph.
          schema: a channel of Schema.
          eval_config: what TFMA was told of the model.
          split: the split that is evaluated on.
          train_split: the split that representative examples are taken of.
          plan: what to make, and what is good enough.
        """
        spec = OptimizerSpec(
            model=model,
            evaluation=evaluation,
            examples=examples,
            transformed_examples=transformed_examples,
            transform_graph=transform_graph,
            schema=schema,
            eval_config=json_format.MessageToJson(eval_config, sort_keys=True),
            custom_config=json.dumps(plan.to_custom_config(), sort_keys=True),
            split=split,
            train_split=train_split,
            variants=Channel(type=ModelVariants),
        )
        super().__init__(spec=spec)
