"""The components that learn: Tuner and Trainer."""

from __future__ import annotations

from tfx.components import Trainer
from tfx.dsl.components.base import base_node, executor_spec
from tfx.proto import trainer_pb2

from components.trainer.executor import ClusterTrainerExecutor
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT
from pipeline.config.settings import PipelineConfig
from pipeline.graph.cache_keys import run_fn, trainer_config, tuner_config
from pipeline.graph.inputs import Inputs


def create_tuner(config: PipelineConfig, inputs: Inputs) -> base_node.BaseNode:
    """Tuner, which searches as the config asks for."""
    # It imports what runs without a search do without.
    from components.tuner.component import Tuner

    others = [split for split in config.data.splits if split not in (TRAIN_SPLIT, EVAL_SPLIT)]
    reuses = config.tune is not None and config.tune.reuse
    return Tuner(
        examples=inputs.transform.outputs["transformed_examples"],
        transform_graph=inputs.transform.outputs["transform_graph"],
        schema=inputs.schema,
        # Drift is found by comparison with older data.
        anomalies=inputs.anomalies if reuses else None,
        train_split=TRAIN_SPLIT,
        judged_split=others[0] if others else TRAIN_SPLIT,
        custom_config=tuner_config(config),
    ).with_id(ComponentId.TUNER.value)


def create_trainer(
    config: PipelineConfig,
    inputs: Inputs,
    warm_start: base_node.BaseNode | None,
    tuner: base_node.BaseNode | None,
) -> base_node.BaseNode:
    """Trainer.

    Args:
      config: what to train, and how.
      inputs: what it is given.
      warm_start: finds the model whose weights training begins with, if there is one.
      tuner: finds better settings, if it is asked to.
    """
    transform = inputs.transform
    return Trainer(
        run_fn=run_fn(config),
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=inputs.schema,
        base_model=warm_start.outputs["model"] if warm_start else None,
        train_args=trainer_pb2.TrainArgs(splits=[TRAIN_SPLIT]),
        eval_args=trainer_pb2.EvalArgs(splits=[EVAL_SPLIT]),
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        custom_config=trainer_config(config),
        custom_executor_spec=executor_spec.ExecutorClassSpec(ClusterTrainerExecutor),
    ).with_id(ComponentId.TRAINER.value)
