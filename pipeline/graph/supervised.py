"""The graph of supervised tasks, with data, Transform, Tuner, Trainer and TFMA's evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from tfx import types
from tfx.components.trainer.component import Trainer
from tfx.dsl.components.base import base_node, executor_spec
from tfx.proto import trainer_pb2

from components.evaluator.component import Evaluator
from components.evaluator.intervals import BASELINE_EXAMPLES_KEY
from components.trainer.component import ClusterTrainerExecutor
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT
from pipeline.config.sections.evaluate import Criteria
from pipeline.graph.cache_keys import Recipe, add_code
from pipeline.graph.data import Inputs, create_data, create_inputs
from pipeline.graph.evaluation import (
    constant_metric,
    make_eval_config,
    make_measuring_config,
    make_verdict,
    reference_metric,
)
from pipeline.graph.families import FamilyNodes, GraphInputs, create_infra_validator
from pipeline.graph.resolving import resolve_baseline, resolve_warm_start
from trainer_module.settings.optimize import OptimizeSettings


def create_tuner(recipe: Recipe, inputs: Inputs, splits: Iterable[str]) -> base_node.BaseNode:
    """Returns the Tuner for the search that the config describes.

    Args:
      recipe: the search, and the settings of the training.
      inputs: the data to train on.
      splits: the names of all splits. A split in addition to train and eval scores trials; if
        there is none, a part of train scores trials.
    """
    # The import is here, as runs without a search do not need it.
    from components.tuner.component import Tuner

    additional = [split for split in splits if split not in (TRAIN_SPLIT, EVAL_SPLIT)]
    reuses = recipe.tune is not None and recipe.tune.reuse
    return Tuner(
        examples=inputs.transform.outputs["transformed_examples"],
        transform_graph=inputs.transform.outputs["transform_graph"],
        schema=inputs.schema,
        # Drift, an anomaly, ends the reuse of an earlier search.
        anomalies=inputs.anomalies if reuses else None,
        train_split=TRAIN_SPLIT,
        eval_split=additional[0] if additional else TRAIN_SPLIT,
        custom_config=recipe.tuner_config,
    ).with_id(ComponentId.TUNER.value)


def create_trainer(
    recipe: Recipe,
    inputs: Inputs,
    warm_start: base_node.BaseNode | None,
    tuner: base_node.BaseNode | None,
) -> base_node.BaseNode:
    """Returns the Trainer of a supervised task.

    Args:
      recipe: the function that trains, and its settings.
      inputs: the data to train on.
      warm_start: the resolver of the model whose weights training starts from, if there is one.
      tuner: the Tuner, if the config has a search.
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


def create_evaluator(
    criteria: Criteria,
    recipe: Recipe,
    inputs: Inputs,
    model: types.BaseChannel,
    baseline: base_node.BaseNode,
    warm_start: base_node.BaseNode | None,
) -> base_node.BaseNode:
    """Returns the Evaluator, which blesses a model.

    Args:
      criteria: the metrics, the slices and the thresholds.
      recipe: the settings of the model, which name the label.
      inputs: the data that the model was trained on.
      baseline: the resolver of the baseline model.
      warm_start: the resolver of the model whose weights training started from, if there is one.
    """
    evaluator = Evaluator(
        examples=inputs.examples,
        model=model,
        baseline_model=baseline.outputs["model"],
        baseline_examples=baseline.outputs.get(BASELINE_EXAMPLES_KEY),
        training_examples=inputs.window,
        warm_start=warm_start is not None,
        eval_config=make_eval_config(criteria),
        schema=inputs.schema,
        label=recipe.settings.label,
        task=recipe.settings.task,
        split=EVAL_SPLIT,
        constant_metric=reference_metric(criteria),
        constant_decides=constant_metric(criteria) is not None,
        past_labels=criteria.past_labels,
        verdict=make_verdict(criteria),
        explains=criteria.evaluate.explain,
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
    """Returns the Optimizer, which makes the variants that the config requests.

    Args:
      optimize: the variants, and the criteria for accepting them.
      inputs: the data that the model was trained on.
      evaluator: the Evaluator, which has blessed and measured the model.
    """
    # The import is here, as runs without variants do not need it.
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


def wire(graph_inputs: GraphInputs) -> FamilyNodes:
    """Returns the components of a config in topological order, without the Pusher."""
    config, recipe = graph_inputs.context.config, graph_inputs.recipe
    criteria = config.criteria
    inputs = create_inputs(graph_inputs.context, graph_inputs.spans, recipe)

    # Finds the model whose weights training starts from.
    warm_start = None
    if config.schedule_or_default.warm_start:
        warm_start = resolve_warm_start(inputs.window)

    # Searches for better settings, on a part of the training data.
    tuner = None
    if config.tune is not None:
        tuner = create_tuner(recipe, inputs, config.data.splits)

    # Builds, trains and exports the model in separate processes under the strategy.
    trainer = create_trainer(recipe, inputs, warm_start, tuner)
    model = trainer.outputs["model"]

    # Finds the baseline, evaluates both models on the newest data, and blesses the new model if it
    # meets the thresholds and is not worse than the baseline.
    baseline = resolve_baseline(model, graph_inputs.baseline_strategy)
    evaluator = create_evaluator(criteria, recipe, inputs, model, baseline, warm_start)

    # Makes smaller and faster variants of a blessed model, and accepts variants that are as good.
    optimizer = None
    if config.optimize is not None and config.optimize.variants:
        optimizer = create_optimizer(config.optimize, criteria, inputs, model, evaluator)

    # Compares the predictions of a blessed model through every serving interface.
    infra_validator = None
    if config.certificate.enabled:
        infra_validator = create_infra_validator(
            config.certificate.limits,
            recipe.certificate_config,
            model,
            evaluator,
            transform_graph=inputs.transform.outputs["transform_graph"],
            examples=inputs.examples,
            statistics=inputs.statistics,
            schema=inputs.schema,
        )

    wired = [
        *inputs.components,
        warm_start,
        inputs.transform,
        tuner,
        trainer,
        baseline,
        evaluator,
        optimizer,
        infra_validator,
    ]
    return FamilyNodes(
        nodes=[component for component in wired if component is not None],
        model=model,
        blessing=evaluator.outputs["blessing"],
        infra_blessing=infra_validator.outputs["blessing"] if infra_validator else None,
        variants=optimizer.outputs["variants"] if optimizer else None,
    )


def wire_search(graph_inputs: GraphInputs) -> list[base_node.BaseNode]:
    """Returns the components up to the Tuner."""
    inputs = create_inputs(graph_inputs.context, graph_inputs.spans, graph_inputs.recipe)
    tuner = create_tuner(graph_inputs.recipe, inputs, graph_inputs.context.config.data.splits)
    return [*inputs.components, inputs.transform, tuner]


def wire_data(graph_inputs: GraphInputs) -> list[base_node.BaseNode]:
    """Returns the components up to ExampleValidator."""
    return create_data(graph_inputs.context, graph_inputs.spans).components
