"""The resolvers of a pipeline, which find artifacts of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence

from tfx import types
from tfx.dsl.components.base import base_node
from tfx.dsl.components.common.resolver import Resolver, ResolverStrategy
from tfx.types import standard_artifacts

from components.evaluator.intervals import BASELINE_EXAMPLES_KEY
from components.resolvers import (
    CANDIDATE_KEY,
    LatestOtherBlessedModelStrategy,
    OlderAnalyzerCacheStrategy,
    SpanWindowStrategy,
    StatisticsOfSpanStrategy,
    WarmStartModelStrategy,
)
from pipeline.component_ids import ComponentId, ResolverId


def resolve_window(window: Sequence[int], example_gen: base_node.BaseNode) -> Resolver:
    """Returns the resolver of the examples of all spans in the window.

    Args:
      window: the numbers of the spans.
      example_gen: the component that has read the spans, in this run or an earlier run.
    """
    resolver = Resolver(
        strategy_class=SpanWindowStrategy,
        config={"spans": list(window)},
        examples=types.Channel(
            type=standard_artifacts.Examples, producer_component_id=example_gen.id
        ),
    ).with_id(ResolverId.WINDOW.value)
    resolver.add_upstream_node(example_gen)
    return resolver


def resolve_analyzer_cache(window: types.BaseChannel) -> Resolver:
    """Returns the resolver of Transform's analyzer cache for spans of earlier runs."""
    return Resolver(
        strategy_class=OlderAnalyzerCacheStrategy,
        examples=window,
        analyzer_cache=types.Channel(type=standard_artifacts.TransformCache),
    ).with_id(ResolverId.ANALYZER_CACHE.value)


def resolve_statistics(
    span: int, example_gen: base_node.BaseNode, statistics_gen: base_node.BaseNode
) -> Resolver:
    """Returns the resolver of the statistics of an older span."""
    return Resolver(
        strategy_class=StatisticsOfSpanStrategy,
        config={"span": span},
        examples=types.Channel(
            type=standard_artifacts.Examples, producer_component_id=example_gen.id
        ),
        statistics=types.Channel(
            type=standard_artifacts.ExampleStatistics, producer_component_id=statistics_gen.id
        ),
    ).with_id(ResolverId.PREVIOUS_STATISTICS.value)


def resolve_warm_start(window: types.BaseChannel) -> Resolver:
    """Returns the resolver of the model whose weights training starts from."""
    return Resolver(
        strategy_class=WarmStartModelStrategy,
        examples=window,
        model=types.Channel(type=standard_artifacts.Model),
        model_blessing=types.Channel(type=standard_artifacts.ModelBlessing),
    ).with_id(ResolverId.WARM_START.value)


def resolve_baseline(
    model: types.BaseChannel, strategy: type[ResolverStrategy], has_examples: bool = True
) -> Resolver:
    """Returns the resolver of the baseline model.

    Args:
      model: the new model, which is never its own baseline.
      strategy: the resolver strategy.
      has_examples: whether the pipeline has an ExampleGen.
    """
    # TFX's own strategies have no inputs for the new model and for examples.
    is_own_strategy = strategy is LatestOtherBlessedModelStrategy
    own_inputs = {CANDIDATE_KEY: model} if is_own_strategy else {}
    if is_own_strategy and has_examples:
        own_inputs[BASELINE_EXAMPLES_KEY] = types.Channel(
            type=standard_artifacts.Examples, producer_component_id=ComponentId.EXAMPLE_GEN.value
        )
    return Resolver(
        strategy_class=strategy,
        model=types.Channel(type=standard_artifacts.Model),
        model_blessing=types.Channel(type=standard_artifacts.ModelBlessing),
        **own_inputs,
    ).with_id(ResolverId.BASELINE.value)
