"""The pipeline as TFX components, in the order in which the data flows."""

from __future__ import annotations

from dataclasses import dataclass

from tfx import types
from tfx.components import StatisticsGen, Trainer
from tfx.dsl.components.base import base_node, executor_spec
from tfx.dsl.components.common.resolver import Resolver, ResolverStrategy
from tfx.orchestration import pipeline
from tfx.proto import trainer_pb2
from tfx.types import standard_artifacts

from components.column_types.transform import Transform
from components.evaluator.component import Evaluator
from components.example_validator.component import ExampleValidator
from components.pusher.component import Pusher
from components.resolvers.models import CANDIDATE_KEY, LatestOtherBlessedModelStrategy
from components.schema_gen.component import SchemaGen
from components.trainer.executor import ClusterTrainerExecutor
from pipeline.cache_keys import (
    add_code,
    trainer_config,
    transform_config,
    tuner_config,
)
from pipeline.component_ids import ComponentId, ResolverId
from pipeline.config.named_columns import named_columns
from pipeline.config.settings import EVAL_SPLIT, TRAIN_SPLIT, PipelineConfig
from pipeline.config.span_patterns import is_dated, show_span
from pipeline.evaluation import (
    constant_metric,
    make_eval_config,
    reference_metric,
)
from pipeline.ingestion import make_example_gen
from pipeline.judging import create_infra_validator, create_optimizer
from pipeline.resolving import (
    resolve_analyzer_cache,
    resolve_statistics,
    resolve_warm_start,
    resolve_window,
)
from pipeline.run_context import RunContext
from trainer_module.settings import IgnoredFeature, ImageFeature

PREPROCESSING_FN = "trainer_module.preprocessing.preprocessing_fn"
RUN_FN = "trainer_module.trainer.run_fn"
DEFAULT_BEAM_ARGS = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "--sdk_container_image=local",
)
"""Beam in this process. DirectRunner would try to download another runner for every pipeline, and
without the name of an image, which nothing here uses, TFX would package its sources for workers."""


@dataclass(frozen=True)
class Spans:
    """Which spans a run reads and trains on, by number."""

    newest: int
    """The one that is read in this run, and evaluated on."""
    window: tuple[int, ...] = ()
    """Those that are trained on; the older ones have been read before."""
    compared_with: int | None = None
    """The one before the newest that its drift is measured from."""


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
    inputs = _create_inputs(context, spans)
    transform, examples, schema = inputs.transform, inputs.examples, inputs.schema
    components = list(inputs.components)

    # Finds the model whose weights training begins with.
    warm_start = None
    if config.schedule_or_default.warm_start:
        warm_start = resolve_warm_start(inputs.window)
        components.append(warm_start)

    # Searches for better settings, on a part of what is learnt from.
    tuner = None
    if config.tune is not None:
        tuner = _create_tuner(config, inputs)

    # Builds and trains the model under the strategy, in processes of its own, and exports it.
    trainer = Trainer(
        run_fn=config.train.run_fn or RUN_FN,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        base_model=warm_start.outputs["model"] if warm_start else None,
        train_args=trainer_pb2.TrainArgs(splits=["train"]),
        eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        custom_config=trainer_config(config),
        custom_executor_spec=executor_spec.ExecutorClassSpec(ClusterTrainerExecutor),
    ).with_id(ComponentId.TRAINER.value)
    model = trainer.outputs["model"]

    # Finds the model to beat.
    is_ours = baseline_strategy is LatestOtherBlessedModelStrategy
    baseline = Resolver(
        strategy_class=baseline_strategy,
        model=types.Channel(type=standard_artifacts.Model),
        model_blessing=types.Channel(type=standard_artifacts.ModelBlessing),
        # TFX's own strategies know of no candidate.
        **({CANDIDATE_KEY: model} if is_ours else {}),
    ).with_id(ResolverId.BASELINE.value)

    # Measures both on the newest data, and blesses the new one if it keeps the thresholds and is
    # not worse.
    evaluator = Evaluator(
        examples=examples,
        model=model,
        baseline_model=baseline.outputs["model"],
        eval_config=make_eval_config(config),
        schema=schema,
        label=config.data.label,
        task=config.task,
        split=EVAL_SPLIT,
        constant_metric=reference_metric(config),
        constant_decides=constant_metric(config) is not None,
    ).with_id(ComponentId.EVALUATOR.value)
    code = (
        "components/evaluator",
        "components/examples_reader.py",
        "pipeline/evaluation.py",
        "trainer_module/export.py",
    )
    add_code(evaluator, *code, own=config.evaluate.own_code.values())

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
    wired = [*components, transform, tuner, trainer, baseline, *judges, pusher]
    return _pipeline(context, [component for component in wired if component is not None])


def create_search(context: RunContext, spans: Spans | None = None) -> pipeline.Pipeline:
    """The components as far as the search for better settings, which the config asks for."""
    inputs = _create_inputs(context, spans)
    tuner = _create_tuner(context.config, inputs)
    return _pipeline(context, [*inputs.components, inputs.transform, tuner])


def create_ingestion(context: RunContext, spans: Spans | None = None) -> pipeline.Pipeline:
    """The components that read, count and check one span, or the data, and no more."""
    return _pipeline(context, _create_data_components(context, spans).components)


@dataclass(frozen=True)
class _Inputs:
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


def _create_inputs(context: RunContext, spans: Spans | None) -> _Inputs:
    config = context.config
    data = _create_data_components(context, spans)
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
        preprocessing_fn=config.preprocessing or PREPROCESSING_FN,
        custom_config=transform_config(config),
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
    return _Inputs(components, transform, window, examples, statistics, schema, anomalies)


@dataclass(frozen=True)
class _Data:
    """The components that look at the data itself, and what they give."""

    components: list[base_node.BaseNode]
    example_gen: base_node.BaseNode
    examples: types.BaseChannel
    statistics: types.BaseChannel
    schema: types.BaseChannel
    validator: base_node.BaseNode


def _create_data_components(context: RunContext, spans: Spans | None) -> _Data:
    config, ingestion = context.config, context.ingestion
    settings = ingestion.settings

    # Reads the data, whatever its format, into splits of tf.Examples.
    newest = spans.newest if spans else None
    example_gen = make_example_gen(config.data, context.location, ingestion, newest)
    examples = example_gen.outputs["examples"]

    # Counts what is in every column of every split.
    statistics_gen = StatisticsGen(examples=examples).with_id(ComponentId.STATISTICS_GEN.value)
    statistics = statistics_gen.outputs["statistics"]

    # Says what the data has to look like: curated, or inferred from the first data and kept.
    schema_gen = SchemaGen(
        statistics=statistics,
        examples=examples,
        curated=ingestion.curated_schema,
        kept=context.layout.kept_schema,
        revision=ingestion.schema_revision,
        label=config.data.label,
        task=config.task,
        images=config.columns_of(ImageFeature),
        # What a function of the user's makes of a column is not known.
        aside=None
        if config.preprocessing
        else filter(None, (config.data.label, config.data.weight)),
        names=settings.names if settings.format_spec.guesses_types else (),
    ).with_id(ComponentId.SCHEMA_GEN.value)
    add_code(
        schema_gen,
        "components/schema_gen",
        "components/column_types",
        "components/examples_reader.py",
    )
    schema = schema_gen.outputs["schema"]

    # Finds what the data looked like before.
    previous, compared_with = None, ""
    if spans is not None and spans.compared_with is not None and config.drift.columns:
        previous = resolve_statistics(spans.compared_with, example_gen, statistics_gen)
        compared_with = f"span {show_span(spans.compared_with, is_dated(config.data))}"

    # Compares; stops the run before a model learns from broken data.
    example_validator = ExampleValidator(
        statistics=statistics,
        schema=schema,
        label=config.data.label,
        task=config.task,
        # What a function of the user's makes of a column is not known.
        declared=None if config.preprocessing else [*config.features, config.data.weight or ""],
        ignored=config.columns_of(IgnoredFeature),
        on_anomaly=config.on_anomaly.value,
        named=named_columns(config),
        drift=config.drift.model_dump_json() if config.drift.columns else "",
        previous_statistics=previous.outputs["statistics"] if previous else None,
        compared_with=compared_with,
        examples=examples,
    ).with_id(ComponentId.EXAMPLE_VALIDATOR.value)
    code = (
        "example_validator",
        "examples_reader.py",
        "named_columns.py",
        "column_types/choice.py",
    )
    add_code(example_validator, *(f"components/{path}" for path in code))
    components = [example_gen, statistics_gen, schema_gen, previous, example_validator]
    present = [component for component in components if component is not None]
    return _Data(present, example_gen, examples, statistics, schema, example_validator)


def _create_tuner(config: PipelineConfig, inputs: _Inputs) -> base_node.BaseNode:
    # It imports what runs without a search do without.
    from components.tuner.component import Tuner

    others = [split for split in config.data.splits if split not in (TRAIN_SPLIT, EVAL_SPLIT)]
    reuses = config.tune is not None and config.tune.reuse
    return Tuner(
        examples=inputs.transform.outputs["transformed_examples"],
        transform_graph=inputs.transform.outputs["transform_graph"],
        schema=inputs.schema,
        # Drift is found by comparison with older data.
        anomalies=inputs.anomalies if reuses else None,
        train_split=TRAIN_SPLIT,
        judged_split=others[0] if others else TRAIN_SPLIT,
        custom_config=tuner_config(config),
    ).with_id(ComponentId.TUNER.value)


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
        beam_pipeline_args=list(config.beam.args or DEFAULT_BEAM_ARGS),
    )
