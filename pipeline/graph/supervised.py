"""The graph of supervised tasks: rows with a label become examples, and TFMA judges the model."""

from __future__ import annotations

from tfx.dsl.components.base import base_node

from pipeline.graph.data import create_data
from pipeline.graph.families import Given, Wired
from pipeline.graph.inputs import create_inputs
from pipeline.graph.judging import create_certificate, create_evaluator, create_optimizer
from pipeline.graph.resolving import resolve_baseline, resolve_warm_start
from pipeline.graph.training import create_trainer, create_tuner


def wire(given: Given) -> Wired:
    """The components of a config, but for Pusher, in the order in which the data flows."""
    config, recipe = given.context.config, given.recipe
    criteria = config.criteria
    inputs = create_inputs(given.context, given.spans, recipe)

    # Finds the model whose weights training begins with.
    warm_start = None
    if config.schedule_or_default.warm_start:
        warm_start = resolve_warm_start(inputs.window)

    # Searches for better settings, on a part of what is learnt from.
    tuner = None
    if config.tune is not None:
        tuner = create_tuner(recipe, inputs, config.data.splits)

    # Builds and trains the model under the strategy, in processes of its own, and exports it.
    trainer = create_trainer(recipe, inputs, warm_start, tuner)
    model = trainer.outputs["model"]

    # Finds the model to beat; measures both on the newest data, and blesses the new one if it keeps
    # the thresholds and is not worse.
    baseline = resolve_baseline(model, given.baseline_strategy)
    evaluator = create_evaluator(criteria, recipe, inputs, model, baseline, warm_start)

    # Makes smaller and faster variants of a blessed model, and accepts those that are as good.
    optimizer = None
    if config.optimize is not None and config.optimize.variants:
        optimizer = create_optimizer(config.optimize, criteria, inputs, model, evaluator)

    # Asks a blessed model by every way there is: what disagrees is not pushed.
    infra_validator = None
    if config.certificate.enabled:
        infra_validator = create_certificate(
            config.certificate.limits, recipe, inputs, model, evaluator
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
    return Wired(
        nodes=[component for component in wired if component is not None],
        model=model,
        blessing=evaluator.outputs["blessing"],
        infra_blessing=infra_validator.outputs["blessing"] if infra_validator else None,
        variants=optimizer.outputs["variants"] if optimizer else None,
    )


def wire_search(given: Given) -> list[base_node.BaseNode]:
    """The components as far as the search for better settings, which the config asks for."""
    inputs = create_inputs(given.context, given.spans, given.recipe)
    tuner = create_tuner(given.recipe, inputs, given.context.config.data.splits)
    return [*inputs.components, inputs.transform, tuner]


def wire_data(given: Given) -> list[base_node.BaseNode]:
    """The components that read, count and check one span, or the data, and no more."""
    return create_data(given.context, given.spans).components
