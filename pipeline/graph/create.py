"""The whole pipeline of a config, and the parts of it that commands run by themselves."""

from __future__ import annotations

from tfx.dsl.components.base import base_node
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.orchestration import pipeline

from components.beam_workers.options import LOCAL_ARGS
from components.pusher.component import Pusher
from components.resolvers.models import LatestOtherBlessedModelStrategy
from pipeline.component_ids import ComponentId
from pipeline.graph.data import Spans, create_data
from pipeline.graph.inputs import create_inputs
from pipeline.graph.judging import create_evaluator, create_infra_validator, create_optimizer
from pipeline.graph.resolving import resolve_baseline, resolve_warm_start
from pipeline.graph.training import create_trainer, create_tuner
from pipeline.run_context import RunContext


def create_pipeline(
    context: RunContext,
    spans: Spans | None = None,
    baseline_strategy: type[ResolverStrategy] = LatestOtherBlessedModelStrategy,
) -> pipeline.Pipeline:
    """Wires the components of a config; nothing runs yet.

    Args:
      context: the config, and where artifacts, metadata and the pushed model go.
      spans: what to read and to train on, where the data comes in spans.
      baseline_strategy: how the model to beat is found.
    """
    config = context.config
    inputs = create_inputs(context, spans)

    # Finds the model whose weights training begins with.
    warm_start = None
    if config.schedule_or_default.warm_start:
        warm_start = resolve_warm_start(inputs.window)

    # Searches for better settings, on a part of what is learnt from.
    tuner = None
    if config.tune is not None:
        tuner = create_tuner(config, inputs)

    # Builds and trains the model under the strategy, in processes of its own, and exports it.
    trainer = create_trainer(config, inputs, warm_start, tuner)
    model = trainer.outputs["model"]

    # Finds the model to beat; measures both on the newest data, and blesses the new one if it keeps
    # the thresholds and is not worse.
    baseline = resolve_baseline(model, baseline_strategy)
    evaluator = create_evaluator(config, inputs, model, baseline)

    # Makes smaller and faster variants of a blessed model, and accepts those that are as good.
    optimizer = None
    if config.optimize is not None and config.optimize.variants:
        optimizer = create_optimizer(config, inputs, model, evaluator)

    # Asks a blessed model by every way there is: what disagrees is not pushed.
    infra_validator = None
    if config.certificate.enabled:
        infra_validator = create_infra_validator(config, inputs, model, evaluator)

    # Puts a blessed model where a model server picks it up.
    pusher = Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=infra_validator.outputs["blessing"] if infra_validator else None,
        variants=optimizer.outputs["variants"] if optimizer else None,
        base_directory=context.layout.serving,
    ).with_id(ComponentId.PUSHER.value)
    judges = (evaluator, optimizer, infra_validator)
    wired = [
        *inputs.components,
        warm_start,
        inputs.transform,
        tuner,
        trainer,
        baseline,
        *judges,
        pusher,
    ]
    return _pipeline(context, [component for component in wired if component is not None])


def create_search(context: RunContext, spans: Spans | None = None) -> pipeline.Pipeline:
    """The components as far as the search for better settings, which the config asks for."""
    inputs = create_inputs(context, spans)
    tuner = create_tuner(context.config, inputs)
    return _pipeline(context, [*inputs.components, inputs.transform, tuner])


def create_ingestion(context: RunContext, spans: Spans | None = None) -> pipeline.Pipeline:
    """The components that read, count and check one span, or the data, and no more."""
    return _pipeline(context, create_data(context, spans).components)


def _pipeline(context: RunContext, components: list[base_node.BaseNode]) -> pipeline.Pipeline:
    config, layout = context.config, context.layout
    return pipeline.Pipeline(
        pipeline_name=config.name,
        pipeline_root=layout.artifacts,
        components=components,
        enable_cache=True,
        # What is compiled for elsewhere has no place for a password.
        metadata_connection_config=None if layout.is_elsewhere else context.connection,
        # A list of its own: TFX's executors add their labels to the one that they are given.
        beam_pipeline_args=list(config.beam.args or LOCAL_ARGS),
    )
