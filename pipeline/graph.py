"""The pipeline as TFX components, in the order in which the data flows."""

from __future__ import annotations

from pathlib import Path

from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.components import Evaluator, Pusher, StatisticsGen, Trainer, Transform
from tfx.dsl.components.base import base_node, executor_spec
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration import pipeline
from tfx.proto import pusher_pb2, trainer_pb2
from tfx.types import standard_artifacts

import trainer_module
from components.baseline import CANDIDATE_KEY, LatestOtherBlessedModelStrategy
from components.example_validator import ExampleValidator
from components.pusher import AtomicPushExecutor
from components.schema_gen import SchemaGen
from components.trainer.executor import ClusterTrainerExecutor
from pipeline.config import PipelineConfig
from pipeline.evaluation import make_eval_config
from pipeline.fingerprint import CODE_KEY, code_fingerprint
from pipeline.ingestion import make_example_gen
from pipeline.layout import Layout
from trainer_module.settings import IgnoredFeature, ImageFeature, TrainerSettings

PREPROCESSING_FN = "trainer_module.preprocessing.preprocessing_fn"
RUN_FN = "trainer_module.trainer.run_fn"
BASELINE_RESOLVER = "BaselineResolver"
DEFAULT_BEAM_ARGS = [
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "--sdk_container_image=local",
]
"""Beam in this process. DirectRunner would try to download another runner for every pipeline, and
without the name of an image, which nothing here uses, TFX would package its sources for workers."""


def create_pipeline(config: PipelineConfig, layout: Layout) -> pipeline.Pipeline:
    """Wires the components of a config; nothing runs yet.

    Args:
      config: a checked config.
      layout: where artifacts, metadata and the pushed model go.
    """
    # Reads the data, whatever its format, into splits of tf.Examples.
    example_gen = make_example_gen(config, layout)
    examples = example_gen.outputs["examples"]

    # Counts what is in every column of every split.
    statistics_gen = StatisticsGen(examples=examples)
    statistics = statistics_gen.outputs["statistics"]

    # Says what the data has to look like: curated, or inferred from the first data and kept.
    schema_gen = SchemaGen(
        statistics=statistics,
        curated=Path(config.schema_file).resolve() if config.schema_file else None,
        kept=layout.schema,
        label=config.data.label,
        task=config.task,
        images=config.columns_of(ImageFeature),
    )
    schema = schema_gen.outputs["schema"]

    # Compares the two; stops the run before a model learns from broken data.
    example_validator = ExampleValidator(
        statistics=statistics,
        schema=schema,
        label=config.data.label,
        ignored=config.columns_of(IgnoredFeature),
        on_anomaly=config.on_anomaly.value,
        named=_named_columns(config),
    )

    # Turns columns into model inputs, by a graph that serving uses as well.
    transform = Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn=config.preprocessing or PREPROCESSING_FN,
        custom_config=_custom_config(_transform_settings(config), config.preprocessing),
        # Statistics of what goes in and comes out would double its time, and the analyzer cache
        # costs more than it saves while every run analyses one span.
        disable_statistics=True,
        disable_analyzer_cache=True,
    )

    # Builds and trains the model under the strategy, in processes of its own, and exports it.
    trainer = Trainer(
        run_fn=RUN_FN,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        train_args=trainer_pb2.TrainArgs(splits=["train"]),
        eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
        custom_config=_custom_config(
            config.trainer_settings, config.model.kind if config.model.is_custom else None
        ),
        custom_executor_spec=executor_spec.ExecutorClassSpec(ClusterTrainerExecutor),
    )
    model = trainer.outputs["model"]

    # Finds the model to beat.
    baseline = Resolver(
        strategy_class=LatestOtherBlessedModelStrategy,
        model=types.Channel(type=standard_artifacts.Model),
        model_blessing=types.Channel(type=standard_artifacts.ModelBlessing),
        **{CANDIDATE_KEY: model},
    ).with_id(BASELINE_RESOLVER)

    # Measures both, and blesses the new one if it keeps the thresholds and is not worse.
    evaluator = Evaluator(
        examples=examples,
        model=model,
        baseline_model=baseline.outputs["model"],
        eval_config=make_eval_config(config),
        schema=schema,
    )

    # Puts a blessed model where a model server picks it up.
    pusher = Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=layout.serving)
        ),
        custom_executor_spec=executor_spec.ExecutorClassSpec(AtomicPushExecutor),
    )

    components: list[base_node.BaseNode] = [
        example_gen,
        statistics_gen,
        schema_gen,
        example_validator,
        transform,
        trainer,
        baseline,
        evaluator,
        pusher,
    ]
    return pipeline.Pipeline(
        pipeline_name=config.name,
        pipeline_root=str(layout.pipeline_root),
        components=components,
        enable_cache=True,
        metadata_connection_config=sqlite_connection(layout.metadata),
        beam_pipeline_args=config.beam.args or DEFAULT_BEAM_ARGS,
    )


def sqlite_connection(path: Path) -> metadata_store_pb2.ConnectionConfig:
    """A metadata store in a file, which is made when it is first opened."""
    connection = metadata_store_pb2.ConnectionConfig()
    connection.sqlite.filename_uri = str(path)
    connection.sqlite.connection_mode = (
        metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    )
    return connection


def _named_columns(config: PipelineConfig) -> dict[str, str]:
    """The columns that the config names besides the label, by the key that does."""
    features = {f"features.{name}": name for name in config.features}
    slices = {
        f"evaluate.slices.{i}": name
        for i, columns in enumerate(config.evaluate.slices)
        for name in columns
    }
    return features | slices


def _transform_settings(config: PipelineConfig) -> TrainerSettings:
    """What Transform is told: without the model's settings, which must not invalidate its cache."""
    return TrainerSettings(label=config.data.label, task=config.task, features=config.features)


def _custom_config(settings: TrainerSettings, import_path: str | None) -> dict[str, object]:
    package = Path(trainer_module.__file__).parent
    return {
        **settings.to_custom_config(),
        CODE_KEY: code_fingerprint(package, [import_path] if import_path else []),
    }
