"""The interface between the pipeline and the graphs of task families, and nodes that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_node
from tfx.dsl.components.common.resolver import ResolverStrategy

from components.evaluator.gate import Bounds, GateEvaluator
from components.example_gen.formats import FORMATS
from components.infra_validator.component import InfraValidator
from components.pusher.certificate import CertificateLimits
from components.trainer.component import Trainer
from pipeline.component_ids import ComponentId
from pipeline.config.sections.evaluate import Threshold, Ties
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import (
    CODE_KEY,
    FILES_KEY,
    code_fingerprint,
    files_fingerprint,
)
from pipeline.graph.cache_keys import Recipe, add_code, files_read
from pipeline.graph.data import Spans
from pipeline.graph.resolving import resolve_baseline
from pipeline.own_modules import is_own_module
from pipeline.run_context import RunContext
from trainer_module.families import DATA_FILES_KEY, Family


@dataclass(frozen=True)
class GraphInputs:
    """The arguments of the function with which a family wires its nodes."""

    context: RunContext
    """The config, and where artifacts, metadata and the pushed model are stored."""
    spans: Spans | None
    """The spans to read and to train on, for data in spans."""
    baseline_strategy: type[ResolverStrategy]
    """The resolver strategy that finds the baseline model."""

    @property
    def family(self) -> Family:
        """The family of the config's task."""
        return self.context.config.family

    @cached_property
    def recipe(self) -> Recipe:
        """The functions and settings of Transform, Tuner and Trainer."""
        return Recipe.of(self.context.config)


@dataclass(frozen=True)
class FamilyNodes:
    """The nodes of a pipeline, and the outputs that the Pusher takes."""

    nodes: Sequence[base_node.BaseNode]
    """The nodes in topological order, without the Pusher.

    The node that outputs the model has the id Trainer, the node that blesses the model Evaluator,
    and the node that certifies the model InfraValidator: summaries, versions and schedules use
    these ids.
    """
    model: types.BaseChannel
    """The model to push."""
    blessing: types.BaseChannel
    """The Evaluator's blessing."""
    infra_blessing: types.BaseChannel | None = None
    """The InfraValidator's blessing, if the config enables the certificate."""
    variants: types.BaseChannel | None = None
    """Smaller and faster variants that are pushed with the model."""


def wire(graph_inputs: GraphInputs) -> FamilyNodes:
    """Returns the nodes of a family that trains with `run_fn` and evaluates with `measure`."""
    return wire_evaluation(graph_inputs, [create_trainer(graph_inputs)])


def wire_evaluation(
    graph_inputs: GraphInputs,
    nodes: Sequence[base_node.BaseNode],
    examples: types.BaseChannel | None = None,
) -> FamilyNodes:
    """Returns the nodes with the baseline, the Evaluator and the certificate added.

    Args:
      nodes: the nodes up to the Trainer, which is the last.
      examples: examples to evaluate with, if nodes of the family make some.
    """
    model = nodes[-1].outputs["model"]
    # Finds the baseline model; a model that is not worse is blessed.
    baseline = resolve_baseline(model, graph_inputs.baseline_strategy, has_examples=False)
    evaluator = create_gate(graph_inputs, model, baseline, examples)
    evaluation_nodes, infra_blessing = [baseline, evaluator], None
    # Compares the predictions of a blessed model through every serving interface.
    if graph_inputs.context.config.certificate.enabled:
        validator = create_certificate(graph_inputs, model, evaluator)
        evaluation_nodes.append(validator)
        infra_blessing = validator.outputs["blessing"]
    return FamilyNodes(
        [*nodes, *evaluation_nodes], model, evaluator.outputs["blessing"], infra_blessing
    )


def custom_config(
    graph_inputs: GraphInputs, *functions: str, roots: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the `custom_config` of a component that runs a family's code.

    The result contains the settings, the data files and a hash of the code.

    Args:
      functions: import paths of the code.
      roots: modules of Scopeline that run the code, if no other part of the cache key has a hash
        of these modules.
    """
    context = graph_inputs.context
    files = [file.path for span in context.data for file in span.files]
    data: dict[str, Any] = {
        "files": files,
        "revisions": [span.signature for span in context.data],
    }
    if not FORMATS[context.config.data.format].has_files:
        data["source"] = context.config.data.source
    called = [*functions, *graph_inputs.family.own_code(context.config).values()]
    code = code_fingerprint(
        [*roots, *(path.rpartition(".")[0] for path in called if is_own_module(path))],
        [path for path in called if not is_own_module(path)],
    )
    settings = context.config.trainer_settings.to_custom_config()
    return {**settings, DATA_FILES_KEY: data, CODE_KEY: code}


def create_trainer(
    graph_inputs: GraphInputs,
    examples: types.BaseChannel | None = None,
    schema: types.BaseChannel | None = None,
) -> base_node.BaseNode:
    """Returns a Trainer that calls the family's `run_fn` in the processes of the strategy.

    Args:
      examples: examples to train on, if nodes of the family make some.
      schema: the schema, from which the Trainer takes inferred settings, or None if the family has
        no schema.
    """
    settings, run_fn = graph_inputs.context.config.trainer_settings, graph_inputs.family.run_fn
    own_code, files = settings.own_code.values(), files_read(settings)
    custom = custom_config(graph_inputs, run_fn, *own_code, roots=["components.trainer.component"])
    if files:
        custom[FILES_KEY] = files_fingerprint(files)
    trainer = Trainer(run_fn=run_fn, custom_config=custom, examples=examples, schema=schema)
    return trainer.with_id(ComponentId.TRAINER.value)


def create_gate(
    graph_inputs: GraphInputs,
    model: types.BaseChannel,
    baseline: base_node.BaseNode,
    examples: types.BaseChannel | None = None,
) -> base_node.BaseNode:
    """Returns an Evaluator that blesses a model by the metrics of the family's `measure`.

    Args:
      baseline: the resolver of the baseline model.
      examples: examples to evaluate with, if nodes of the family make some.
    """
    config, family = graph_inputs.context.config, graph_inputs.family
    evaluator = GateEvaluator(
        model=model,
        baseline_model=baseline.outputs["model"],
        measure=family.measure,
        bounds=bounds_of(config),
        confidence=config.evaluate.confidence,
        custom_config=custom_config(graph_inputs, family.measure),
        examples=examples,
    ).with_id(ComponentId.EVALUATOR.value)
    add_code(evaluator)
    return evaluator


def bounds_of(config: PipelineConfig) -> list[Bounds]:
    """Returns the bounds of all metrics with thresholds; if there are none, of the first metric.

    In each of these metrics, a model also has to be no worse than the model in service. The first
    of these metrics decides ties.
    """
    task, evaluate, metrics = config.target, config.evaluate, config.target.metrics()
    first_metric = (*evaluate.metric_names, *task.usual_metrics())[:1]
    thresholds = evaluate.thresholds or dict.fromkeys(first_metric, Threshold())
    return [
        Bounds(
            name,
            metrics[name].higher_is_better,
            threshold.min_value,
            threshold.max_value,
            threshold.tolerance,
            metrics[name].is_compared,
            threshold.is_min_confident,
            threshold.is_max_confident,
            keeps_ties=evaluate.ties is Ties.KEEP and name == next(iter(thresholds)),
        )
        for name, threshold in thresholds.items()
    ]


def create_certificate(
    graph_inputs: GraphInputs, model: types.BaseChannel, evaluator: base_node.BaseNode
) -> base_node.BaseNode:
    """Returns an InfraValidator that predicts the family's golden rows through each interface."""
    golden_rows = graph_inputs.family.golden_rows
    custom = custom_config(graph_inputs, *([golden_rows] if golden_rows else []))
    limits = graph_inputs.context.config.certificate.limits
    return create_infra_validator(limits, custom, model, evaluator, golden_rows=golden_rows)


def create_infra_validator(
    limits: CertificateLimits,
    settings: Mapping[str, Any],
    model: types.BaseChannel,
    evaluator: base_node.BaseNode,
    golden_rows: str | None = None,
    **examples: types.BaseChannel,
) -> base_node.BaseNode:
    """Returns an InfraValidator; a function makes its golden rows, or they are real examples.

    Args:
      limits: the tolerance of predictions, and the limits of time and memory.
      settings: the settings of the training, as a `custom_config`.
      evaluator: the Evaluator, which blesses the model.
      golden_rows: the import path of a function that makes the rows; default: rows of `examples`.
      examples: further inputs of InfraValidator, such as the examples of which it chooses rows.
    """
    validator = InfraValidator(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        limits=limits,
        custom_config=settings,
        golden_rows=golden_rows,
        **examples,
    ).with_id(ComponentId.INFRA_VALIDATOR.value)
    add_code(validator, never_loads=())
    return validator
