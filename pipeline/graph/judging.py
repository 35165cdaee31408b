"""The components that judge a model before it is pushed."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_node

from components.evaluator.component import Evaluator
from components.evaluator.inputs import BASELINE_EXAMPLES_KEY
from components.infra_validator.component import InfraValidator
from components.infra_validator.limits import CertificateLimits
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT
from pipeline.config.settings import PipelineConfig
from pipeline.graph.cache_keys import add_code, certificate_config
from pipeline.graph.evaluation import (
    constant_metric,
    make_eval_config,
    make_measuring_config,
    make_verdict,
    reference_metric,
)
from pipeline.graph.inputs import Inputs


def create_evaluator(
    config: PipelineConfig,
    inputs: Inputs,
    model: types.BaseChannel,
    baseline: base_node.BaseNode,
) -> base_node.BaseNode:
    """Evaluator, which blesses a model.

    Args:
      config: the metrics, the slices and what has to be reached.
      inputs: what the training was given.
      model: what it has come to.
      baseline: finds the model to beat.
    """
    evaluator = Evaluator(
        examples=inputs.examples,
        model=model,
        baseline_model=baseline.outputs["model"],
        baseline_examples=baseline.outputs.get(BASELINE_EXAMPLES_KEY),
        learnt_examples=inputs.window,
        warm_start=config.schedule_or_default.warm_start,
        eval_config=make_eval_config(config.criteria),
        schema=inputs.schema,
        label=config.data.label,
        task=config.task,
        split=EVAL_SPLIT,
        constant_metric=reference_metric(config.criteria),
        constant_decides=constant_metric(config.criteria) is not None,
        verdict=make_verdict(config.criteria),
    ).with_id(ComponentId.EVALUATOR.value)
    add_code(evaluator, own=config.evaluate.own_code.values())
    return evaluator


def create_optimizer(
    config: PipelineConfig,
    inputs: Inputs,
    model: types.BaseChannel,
    evaluator: base_node.BaseNode,
) -> base_node.BaseNode:
    """Optimizer, which makes the variants that the config asks for."""
    # It imports what runs without variants do without.
    from components.optimizer.component import Optimizer
    from components.optimizer.plan import OptimizerPlan

    assert config.optimize is not None  # noqa: S101 - else there is no Optimizer
    optimizer = Optimizer(
        model=model,
        evaluation=evaluator.outputs["evaluation"],
        examples=inputs.examples,
        transformed_examples=inputs.transform.outputs["transformed_examples"],
        transform_graph=inputs.transform.outputs["transform_graph"],
        schema=inputs.schema,
        eval_config=make_measuring_config(config.criteria),
        split=EVAL_SPLIT,
        train_split=TRAIN_SPLIT,
        plan=OptimizerPlan(settings=config.optimize, metric=config.criteria.deciding),
    ).with_id(ComponentId.OPTIMIZER.value)
    add_code(optimizer, own=config.evaluate.own_code.values(), never_loads=())
    return optimizer


def create_infra_validator(
    config: PipelineConfig,
    inputs: Inputs,
    model: types.BaseChannel,
    evaluator: base_node.BaseNode,
) -> base_node.BaseNode:
    """InfraValidator, which asks a model by every way there is."""
    certificate = config.certificate
    infra_validator = InfraValidator(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        transform_graph=inputs.transform.outputs["transform_graph"],
        examples=inputs.examples,
        statistics=inputs.statistics,
        schema=inputs.schema,
        limits=CertificateLimits(
            certificate.tolerance,
            certificate.timeout.total_seconds(),
            certificate.memory,
        ),
        custom_config=certificate_config(config),
    ).with_id(ComponentId.INFRA_VALIDATOR.value)
    add_code(infra_validator, never_loads=())
    return infra_validator
