"""Creates the components that read, check and transform the data."""

from __future__ import annotations

from dataclasses import dataclass

from tfx import types
from tfx.dsl.components.base import base_node

from components.column_types.transform import Transform
from components.example_validator.component import ExampleValidator, ValidationSettings
from components.example_validator.drift import Drift
from components.schema_gen.component import SchemaGen
from components.statistics_gen.component import StatisticsGen
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import span_kind
from pipeline.graph.cache_keys import Recipe, add_code
from pipeline.graph.resolving import resolve_analyzer_cache, resolve_statistics, resolve_window
from pipeline.ingestion import make_example_gen
from pipeline.run_context import RunContext
from trainer_module.settings import IgnoredFeature, ImageFeature


@dataclass(frozen=True)
class Spans:
    """The spans that a run reads and trains on, by number."""

    newest: int
    """The span that this run reads with ExampleGen, and evaluates on."""
    window: tuple[int, ...] = ()
    """The spans to train on, which earlier runs have read, except for the newest."""
    compared_with: int | None = None
    """The earlier span with which the newest is compared for drift, or None without a comparison.
    """


@dataclass(frozen=True)
class Data:
    """The components that read and check the data, and their outputs."""

    components: list[base_node.BaseNode]
    example_gen: base_node.BaseNode
    examples: types.BaseChannel
    statistics: types.BaseChannel
    schema: types.BaseChannel
    validator: base_node.BaseNode


def create_data(context: RunContext, spans: Spans | None) -> Data:
    """Returns the components up to ExampleValidator.

    Args:
      context: the config, and where artifacts and metadata are stored.
      spans: the spans to read, for data in spans.
    """
    config, ingestion = context.config, context.ingestion
    settings = ingestion.settings

    # Reads data of any format into splits of tf.Examples.
    newest = spans.newest if spans else None
    example_gen = make_example_gen(config.data, context.location, ingestion, newest)
    examples = example_gen.outputs["examples"]

    # Computes the statistics of every column in every split.
    classes = config.data.label if config.task.is_classification else ""
    statistics_gen = StatisticsGen(examples, classes).with_id(ComponentId.STATISTICS_GEN.value)
    add_code(statistics_gen)
    statistics = statistics_gen.outputs["statistics"]

    # Provides the schema: the user's, or the schema that the first run has inferred.
    schema_gen = SchemaGen(
        statistics=statistics,
        examples=examples,
        curated=ingestion.curated_schema,
        kept=context.layout.kept_schema,
        revision=ingestion.schema_revision,
        label=config.data.label,
        task=config.task,
        images=config.columns_of(ImageFeature),
        # A preprocessing function may use any column, so the value is None.
        aside=None
        if config.preprocessing
        else filter(None, (config.data.label, config.data.weight)),
        unsized=config.unsized_pictures,
        names=settings.exact_columns if settings.format_spec.guesses_types else (),
    ).with_id(ComponentId.SCHEMA_GEN.value)
    add_code(schema_gen)
    schema = schema_gen.outputs["schema"]

    # Finds the statistics of the earlier span for the comparison.
    previous, compared_with = None, ""
    if spans is not None and spans.compared_with is not None and config.drift.columns:
        previous = resolve_statistics(spans.compared_with, example_gen, statistics_gen)
        compared_with = f"span {span_kind(config.data).show(spans.compared_with)}"

    # Validates the data; fails before a model is trained on invalid data.
    drift = Drift(**config.drift.model_dump(mode="json")) if config.drift.columns else Drift()
    example_validator = ExampleValidator(
        statistics=statistics,
        schema=schema,
        settings=ValidationSettings(
            label=config.data.label,
            task=config.task,
            # A preprocessing function may use any column, so the value is None.
            declared=None
            if config.preprocessing
            else sorted({*config.features, config.data.weight or ""}),
            ignored=sorted(config.columns_of(IgnoredFeature)),
            on_anomaly=config.on_anomaly.value,
            named=dict(sorted(config.named_columns.items())),
            drift=drift,
            compared_with=compared_with,
            group=config.data.split_by or "",
            dates=config.dates_to_split_by,
            on_leakage=config.evaluate.leakage.value,
        ),
        previous_statistics=previous.outputs["statistics"] if previous else None,
        examples=examples,
    ).with_id(ComponentId.EXAMPLE_VALIDATOR.value)
    add_code(example_validator)
    components = [example_gen, statistics_gen, schema_gen, previous, example_validator]
    present = [component for component in components if component is not None]
    return Data(present, example_gen, examples, statistics, schema, example_validator)


@dataclass(frozen=True)
class Inputs:
    """The inputs of the Trainer, and the components that make them."""

    components: list[base_node.BaseNode]
    """The components before Transform."""
    transform: base_node.BaseNode
    window: types.BaseChannel
    """The examples of all spans to train on, before Transform."""
    examples: types.BaseChannel
    """The examples of the newest span, before Transform."""
    statistics: types.BaseChannel
    """The statistics of the newest span."""
    schema: types.BaseChannel
    anomalies: types.BaseChannel


def create_inputs(context: RunContext, spans: Spans | None, recipe: Recipe) -> Inputs:
    """Returns the components up to Transform.

    Args:
      context: the config, and where artifacts and metadata are stored.
      spans: the spans to read and to train on, for data in spans.
      recipe: the preprocessing function and the settings of Transform.
    """
    data = create_data(context, spans)
    examples, schema = data.examples, data.schema
    components = list(data.components)
    window, analyzer_cache = examples, None
    if spans is not None:
        # Finds all spans of the window, and Transform's cache for spans that it has analyzed.
        window_resolver = resolve_window(spans.window, data.example_gen)
        window = window_resolver.outputs["examples"]
        cache_resolver = resolve_analyzer_cache(window)
        analyzer_cache = cache_resolver.outputs["analyzer_cache"]
        components += [window_resolver, cache_resolver]

    # Transforms columns into model inputs, with a graph that serving uses too.
    transform = Transform(
        examples=window,
        schema=schema,
        preprocessing_fn=recipe.preprocessing_fn,
        custom_config=recipe.transform_config,
        # Statistics of inputs and outputs would double the time of Transform. The cache saves time
        # only if later runs use the same spans.
        disable_statistics=True,
        disable_analyzer_cache=analyzer_cache is None,
        analyzer_cache=analyzer_cache,
    ).with_id(ComponentId.TRANSFORM.value)
    # Transform waits for the validation even if components run concurrently.
    transform.add_upstream_node(data.validator)
    anomalies = data.validator.outputs["anomalies"]
    statistics = data.statistics
    return Inputs(components, transform, window, examples, statistics, schema, anomalies)
