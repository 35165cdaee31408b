"""What a family of tasks is given to wire its pipeline, what it gives, and the usual nodes."""

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
from pipeline.own_modules import is_ours
from pipeline.run_context import RunContext
from trainer_module.families import DATA_FILES_KEY, Family


@dataclass(frozen=True)
class Given:
    """What the pipeline has resolved before a family wires its nodes."""

    context: RunContext
    """The config, and where artifacts, metadata and the pushed model go."""
    spans: Spans | None
    """What to read and to train on, where the data comes in spans."""
    baseline_strategy: type[ResolverStrategy]
    """How the model to beat is found."""

    @property
    def family(self) -> Family:
        """That of the config's task."""
        return self.context.config.family

    @cached_property
    def recipe(self) -> Recipe:
        """What Transform, Tuner and Trainer run, and by which settings."""
        return Recipe.of(self.context.config)


@dataclass(frozen=True)
class Wired:
    """The nodes of a pipeline, and which of their outputs Pusher takes."""

    nodes: Sequence[base_node.BaseNode]
    """In the order in which the data flows; Pusher comes after them. The node that gives the model
    is called Trainer, the one that blesses it Evaluator, and the one of a certificate
    InfraValidator: summaries, versions and schedules know them by these ids."""
    model: types.BaseChannel
    """What is pushed."""
    blessing: types.BaseChannel
    """Whether it is good enough."""
    infra_blessing: types.BaseChannel | None = None
    """Whether it answers alike by every way, if that is asked."""
    variants: types.BaseChannel | None = None
    """Smaller and faster models that are pushed with it."""


def wire(given: Given) -> Wired:
    """Returns the usual nodes of a family: its `run_fn` trains, its `measure` is what decides."""
    return wire_judges(given, [create_trainer(given)])


def wire_judges(
    given: Given, nodes: Sequence[base_node.BaseNode], examples: types.BaseChannel | None = None
) -> Wired:
    """Adds what judges a model: Evaluator, by the family's `measure`, and the certificate.

    Args:
      given: to the family.
      nodes: those before, the last of which is Trainer.
      examples: what models are measured with, where nodes of the family have made some.
    """
    model = nodes[-1].outputs["model"]
    # Finds the model to beat; a model that is not worse is blessed.
    baseline = resolve_baseline(model, given.baseline_strategy, has_examples=False)
    evaluator = create_gate(given, model, baseline, examples)
    judges, infra_blessing = [baseline, evaluator], None
    # Asks a blessed model by every way there is: what disagrees is not pushed.
    if given.context.config.certificate.enabled:
        validator = create_certificate(given, model, evaluator)
        judges.append(validator)
        infra_blessing = validator.outputs["blessing"]
    return Wired([*nodes, *judges], model, evaluator.outputs["blessing"], infra_blessing)


def custom_config(given: Given, *functions: str, roots: Sequence[str] = ()) -> dict[str, Any]:
    """What code of a family is told: the settings, the data's files, and a hash of that code.

    Args:
      given: to the family.
      functions: import paths of the code.
      roots: modules of ours that run it, where the component has no other place for their hash.
    """
    context = given.context
    files = [file.path for span in context.data for file in span.files]
    data: dict[str, Any] = {
        "files": files,
        "revisions": [span.signature for span in context.data],
    }
    if not FORMATS[context.config.data.format].has_files:
        data["source"] = context.config.data.source
    called = [*functions, *given.family.own_code(context.config).values()]
    code = code_fingerprint(
        [*roots, *(path.rpartition(".")[0] for path in called if is_ours(path))],
        [path for path in called if not is_ours(path)],
    )
    settings = context.config.trainer_settings.to_custom_config()
    return {**settings, DATA_FILES_KEY: data, CODE_KEY: code}


def create_trainer(
    given: Given,
    examples: types.BaseChannel | None = None,
    schema: types.BaseChannel | None = None,
) -> base_node.BaseNode:
    """Trainer, which calls the family's `run_fn` in the processes of the strategy.

    Args:
      given: to the family.
      examples: what it learns from, where nodes of the family have made some.
      schema: likewise, whose choices complete the settings.
    """
    settings, run_fn = given.context.config.trainer_settings, given.family.run_fn
    own, read = settings.own_code.values(), files_read(settings)
    told = custom_config(given, run_fn, *own, roots=["components.trainer.component"])
    if read:
        told[FILES_KEY] = files_fingerprint(read)
    trainer = Trainer(run_fn=run_fn, custom_config=told, examples=examples, schema=schema)
    return trainer.with_id(ComponentId.TRAINER.value)


def create_gate(
    given: Given,
    model: types.BaseChannel,
    baseline: base_node.BaseNode,
    examples: types.BaseChannel | None = None,
) -> base_node.BaseNode:
    """Evaluator, which blesses a model by what the family's `measure` finds.

    Args:
      given: to the family.
      model: what was trained.
      baseline: finds the model to beat.
      examples: what models are measured with, where nodes of the family have made some.
    """
    config, family = given.context.config, given.family
    evaluator = GateEvaluator(
        model=model,
        baseline_model=baseline.outputs["model"],
        measure=family.measure,
        bounds=bounds_of(config),
        confidence=config.evaluate.confidence,
        custom_config=custom_config(given, family.measure),
        examples=examples,
    ).with_id(ComponentId.EVALUATOR.value)
    add_code(evaluator)
    return evaluator


def bounds_of(config: PipelineConfig) -> list[Bounds]:
    """What the metrics that decide have to keep: those with thresholds, or else the first.

    A model is not worse than the one in service in any of them. Ties are kept in the first one.
    """
    task, evaluate, known = config.target, config.evaluate, config.target.metrics()
    usual = (*evaluate.named, *task.usual_metrics())[:1]
    thresholds = evaluate.thresholds or dict.fromkeys(usual, Threshold())
    return [
        Bounds(
            name,
            known[name].higher_is_better,
            threshold.least,
            threshold.most,
            threshold.tolerance,
            known[name].is_compared,
            threshold.is_least_sure,
            threshold.is_most_sure,
            keeps_ties=evaluate.ties is Ties.KEEP and name == next(iter(thresholds)),
        )
        for name, threshold in thresholds.items()
    ]


def create_certificate(
    given: Given, model: types.BaseChannel, evaluator: base_node.BaseNode
) -> base_node.BaseNode:
    """InfraValidator, which asks a blessed model for the family's golden rows by every way."""
    golden_rows = given.family.golden_rows
    told = custom_config(given, *([golden_rows] if golden_rows else []))
    limits = given.context.config.certificate.limits
    return create_infra_validator(limits, told, model, evaluator, golden_rows=golden_rows)


def create_infra_validator(
    limits: CertificateLimits,
    settings: Mapping[str, Any],
    model: types.BaseChannel,
    evaluator: base_node.BaseNode,
    golden_rows: str | None = None,
    **examples: types.BaseChannel,
) -> base_node.BaseNode:
    """InfraValidator by itself, wherever its golden rows come from.

    Args:
      limits: how far answers may be apart, and what finding out may take.
      settings: of the training, as a `custom_config`.
      model: what was trained.
      evaluator: blesses it.
      golden_rows: the import path of a function that makes the rows.
      examples: else the inputs of InfraValidator that rows are chosen from, by their names.
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
