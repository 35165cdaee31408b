"""What a training is given: the data, Transform, and what earlier runs have left for it."""

from __future__ import annotations

from dataclasses import dataclass

from tfx import types
from tfx.dsl.components.base import base_node

from components.column_types.transform import Transform
from pipeline.component_ids import ComponentId
from pipeline.graph.cache_keys import Recipe
from pipeline.graph.data import Spans, create_data
from pipeline.graph.resolving import resolve_analyzer_cache, resolve_window
from pipeline.run_context import RunContext


@dataclass(frozen=True)
class Inputs:
    """What a training is given, and the components that make it."""

    components: list[base_node.BaseNode]
    """Those before Transform."""
    transform: base_node.BaseNode
    window: types.BaseChannel
    """The examples that are learnt from, as they are read."""
    examples: types.BaseChannel
    """The newest ones."""
    statistics: types.BaseChannel
    """Of the newest ones."""
    schema: types.BaseChannel
    anomalies: types.BaseChannel


def create_inputs(context: RunContext, spans: Spans | None, recipe: Recipe) -> Inputs:
    """The components as far as Transform.

    Args:
      context: the config, and where artifacts and metadata go.
      spans: what to read and to train on, where the data comes in spans.
      recipe: what Transform runs.
    """
    data = create_data(context, spans)
    examples, schema = data.examples, data.schema
    components = list(data.components)
    window, analyzer_cache = examples, None
    if spans is not None:
        # All spans of the window; what Transform found in those that it has seen before.
        window_resolver = resolve_window(spans.window, data.example_gen)
        window = window_resolver.outputs["examples"]
        cache_resolver = resolve_analyzer_cache(window)
        analyzer_cache = cache_resolver.outputs["analyzer_cache"]
        components += [window_resolver, cache_resolver]

    # Turns columns into model inputs, by a graph that serving uses as well.
    transform = Transform(
        examples=window,
        schema=schema,
        preprocessing_fn=recipe.preprocessing_fn,
        custom_config=recipe.transform_config,
        # Statistics of what goes in and comes out would double its time; the cache costs more than
        # it saves where no span comes up again.
        disable_statistics=True,
        disable_analyzer_cache=analyzer_cache is None,
        analyzer_cache=analyzer_cache,
    ).with_id(ComponentId.TRANSFORM.value)
    # Where components run side by side, too.
    transform.add_upstream_node(data.validator)
    anomalies = data.validator.outputs["anomalies"]
    statistics = data.statistics
    return Inputs(components, transform, window, examples, statistics, schema, anomalies)
