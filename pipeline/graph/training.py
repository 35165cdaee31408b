"""The components that learn: Tuner and Trainer."""

from __future__ import annotations

from collections.abc import Iterable

from tfx.components import Trainer
from tfx.dsl.components.base import base_node, executor_spec
from tfx.proto import trainer_pb2

from components.trainer.component import ClusterTrainerExecutor
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT
from pipeline.graph.cache_keys import Recipe
from pipeline.graph.inputs import Inputs


def create_tuner(recipe: Recipe, inputs: Inputs, splits: Iterable[str]) -> base_node.BaseNode:
    """Tuner, which searches as the config asks for.

    Args:
      recipe: what to search for, and by which settings.
      inputs: what Tuner learns from.
      splits: the names of all splits; one that is neither trained nor evaluated on judges trials.
    """
    # It imports what runs without a search do without.
    from components.tuner.component import Tuner

    others = [split for split in splits if split not in (TRAIN_SPLIT, EVAL_SPLIT)]
    reuses = recipe.tune is not None and recipe.tune.reuse
    return Tuner(
        examples=inputs.transform.outputs["transformed_examples"],
        transform_graph=inputs.transform.outputs["transform_graph"],
        schema=inputs.schema,
        # Drift is found by comparison with older data.
        anomalies=inputs.anomalies if reuses else None,
        train_split=TRAIN_SPLIT,
        judged_split=others[0] if others else TRAIN_SPLIT,
        custom_config=recipe.tuner_config,
    ).with_id(ComponentId.TUNER.value)


def create_trainer(
    recipe: Recipe,
    inputs: Inputs,
    warm_start: base_node.BaseNode | None,
    tuner: base_node.BaseNode | None,
) -> base_node.BaseNode:
    """Trainer.

    Args:
      recipe: what to train, and how.
      inputs: what it learns from.
      warm_start: finds the model whose weights training begins with, if there is one.
      tuner: finds better settings, if it is asked to.
    """
    transform = inputs.transform
    return Trainer(
        run_fn=recipe.run_fn,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=inputs.schema,
        base_model=warm_start.outputs["model"] if warm_start else None,
        train_args=trainer_pb2.TrainArgs(splits=[TRAIN_SPLIT]),
        eval_args=trainer_pb2.EvalArgs(splits=[EVAL_SPLIT]),
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        custom_config=recipe.trainer_config,
        custom_executor_spec=executor_spec.ExecutorClassSpec(ClusterTrainerExecutor),
    ).with_id(ComponentId.TRAINER.value)
