"""Creates the pipeline of a config, or only its first components for a search or a data check."""

from __future__ import annotations

from tfx.dsl.components.base import base_node
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.orchestration import pipeline

from components.beam_workers.options import LOCAL_ARGS
from components.pusher.component import Pusher
from components.resolvers import LatestOtherBlessedModelStrategy
from pipeline.component_ids import ComponentId
from pipeline.graph.data import Spans
from pipeline.graph.families import FamilyNodes, GraphInputs
from pipeline.run_context import RunContext
from trainer_module.errors import ConfigError
from trainer_module.sections import import_registered


def create_pipeline(
    context: RunContext,
    spans: Spans | None = None,
    baseline_strategy: type[ResolverStrategy] = LatestOtherBlessedModelStrategy,
) -> pipeline.Pipeline:
    """Returns the pipeline of a config, with its components wired.

    Args:
      context: the config, and where artifacts, metadata and the pushed model are stored.
      spans: the spans to read and to train on, for data in spans.
      baseline_strategy: the resolver strategy that finds the baseline model.
    """
    # The family of the task wires the nodes that read, train and evaluate.
    graph_inputs = GraphInputs(context, spans, baseline_strategy)
    wired: FamilyNodes = import_registered(graph_inputs.family.graph)(graph_inputs)

    # Copies a blessed model to the folder that a model server watches.
    pusher = Pusher(
        model=wired.model,
        model_blessing=wired.blessing,
        infra_blessing=wired.infra_blessing,
        variants=wired.variants,
        base_directory=context.layout.serving,
    ).with_id(ComponentId.PUSHER.value)
    return _pipeline(context, [*wired.nodes, pusher])


def create_search(context: RunContext, spans: Spans | None = None) -> pipeline.Pipeline:
    """Returns the pipeline up to the Tuner, for `scopeline tune`.

    Raises:
      ConfigError: the family of the task has no search.
    """
    graph = context.config.family.search_graph
    return _part(context, spans, graph, "tune: a search for better values")


def create_ingestion(context: RunContext, spans: Spans | None = None) -> pipeline.Pipeline:
    """Returns the pipeline up to ExampleValidator, which only reads and checks the data.

    Raises:
      ConfigError: the family of the task has no components for the data, as training reads it.
    """
    graph = context.config.family.data_graph
    return _part(context, spans, graph, "--validate-only: a run without training")


def _part(context: RunContext, spans: Spans | None, graph: str, request: str) -> pipeline.Pipeline:
    if not graph:
        kind = context.config.target.kind
        raise ConfigError(f"{request} is not available for `task: {kind}`.")
    graph_inputs = GraphInputs(context, spans, LatestOtherBlessedModelStrategy)
    nodes: list[base_node.BaseNode] = import_registered(graph)(graph_inputs)
    return _pipeline(context, nodes)


def _pipeline(context: RunContext, components: list[base_node.BaseNode]) -> pipeline.Pipeline:
    config, layout = context.config, context.layout
    return pipeline.Pipeline(
        pipeline_name=config.name,
        pipeline_root=layout.artifacts,
        components=components,
        enable_cache=True,
        # A compiled pipeline must not contain a password.
        metadata_connection_config=None if layout.is_elsewhere else context.connection,
        # The list is copied, as TFX's executors append labels to it.
        beam_pipeline_args=list(config.beam.args or LOCAL_ARGS),
    )
