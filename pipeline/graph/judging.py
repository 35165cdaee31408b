"""The components that judge a model before it is pushed."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_node

from components.evaluator.component import Evaluator
from components.evaluator.noise import BASELINE_EXAMPLES_KEY
from components.pusher.certificate import CertificateLimits
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT
from pipeline.config.sections.evaluate import Criteria
from pipeline.graph.cache_keys import Recipe, add_code
from pipeline.graph.evaluation import (
    constant_metric,
    make_eval_config,
    make_measuring_config,
    make_verdict,
    reference_metric,
)
from pipeline.graph.families import create_infra_validator
from pipeline.graph.inputs import Inputs
from trainer_module.settings.optimize import OptimizeSettings


def create_evaluator(
    criteria: Criteria,
    recipe: Recipe,
    inputs: Inputs,
    model: types.BaseChannel,
    baseline: base_node.BaseNode,
    warm_start: base_node.BaseNode | None,
) -> base_node.BaseNode:
    """Evaluator, which blesses a model.

    Args:
      criteria: the metrics, the slices and what has to be reached.
      recipe: what the model was made by, which names the label.
      inputs: what it was made from.
      model: what was trained.
      baseline: finds the model to beat.
      warm_start: finds the model whose weights the training began with, if there is one.
    """
    evaluator = Evaluator(
        examples=inputs.examples,
        model=model,
        baseline_model=baseline.outputs["model"],
        baseline_examples=baseline.outputs.get(BASELINE_EXAMPLES_KEY),
        learnt_examples=inputs.window,
        warm_start=warm_start is not None,
        eval_config=make_eval_config(criteria),
        schema=inputs.schema,
        label=recipe.settings.label,
        task=recipe.settings.task,
        split=EVAL_SPLIT,
        constant_metric=reference_metric(criteria),
        constant_decides=constant_metric(criteria) is not None,
        verdict=make_verdict(criteria),
    ).with_id(ComponentId.EVALUATOR.value)
    add_code(evaluator, own=criteria.evaluate.own_code.values())
    return evaluator


def create_optimizer(
    optimize: OptimizeSettings,
    criteria: Criteria,
    inputs: Inputs,
    model: types.BaseChannel,
    evaluator: base_node.BaseNode,
) -> base_node.BaseNode:
    """Optimizer, which makes the variants that the config asks for.

    Args:
      optimize: the variants, and how they are accepted.
      criteria: what they are measured by.
      inputs: what the model was made from.
      model: what was trained.
      evaluator: has blessed and measured it.
    """
    # It imports what runs without variants do without.
    from components.optimizer.component import Optimizer
    from components.optimizer.gating import OptimizerPlan

    optimizer = Optimizer(
        model=model,
        evaluation=evaluator.outputs["evaluation"],
        examples=inputs.examples,
        transformed_examples=inputs.transform.outputs["transformed_examples"],
        transform_graph=inputs.transform.outputs["transform_graph"],
        schema=inputs.schema,
        eval_config=make_measuring_config(criteria),
        split=EVAL_SPLIT,
        train_split=TRAIN_SPLIT,
        plan=OptimizerPlan(settings=optimize, metric=criteria.deciding),
    ).with_id(ComponentId.OPTIMIZER.value)
    add_code(optimizer, own=criteria.evaluate.own_code.values(), never_loads=())
    return optimizer


def create_certificate(
    limits: CertificateLimits,
    recipe: Recipe,
    inputs: Inputs,
    model: types.BaseChannel,
    evaluator: base_node.BaseNode,
) -> base_node.BaseNode:
    """InfraValidator, which asks a blessed model for some of its examples by every way there is.

    Args:
      limits: how far answers may be apart, and what finding out may take.
      recipe: what the model was made by.
      inputs: what it was made from.
      model: what was trained.
      evaluator: blesses it.
    """
    return create_infra_validator(
        limits,
        recipe.certificate_config,
        model,
        evaluator,
        transform_graph=inputs.transform.outputs["transform_graph"],
        examples=inputs.examples,
        statistics=inputs.statistics,
        schema=inputs.schema,
    )
