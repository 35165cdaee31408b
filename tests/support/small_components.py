"""Runs of small pipelines over real metadata, whose components leave what those of ours do."""

# Annotations stay objects here, not text: TFX reads those of the components.

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.components import Pusher
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.base import executor_spec
from tfx.dsl.components.base.base_node import BaseNode
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import (
    Examples,
    ExampleStatistics,
    Model,
    ModelBlessing,
    ModelEvaluation,
    ModelRun,
    Schema,
)

from components.example_validator.component import ExampleValidator, ValidationSettings
from components.example_validator.drift import Drift
from components.pusher.component import AtomicPushExecutor
from components.pusher.versions import BLESSED_MODEL_PROPERTY, WITHDRAWN_PROPERTY
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata_store import connection_config
from pipeline.runs.local import ComponentObserver, Gate, LocalRunner
from trainer_module.runtime import write_record

TRAINED = {
    "strategy": "mirrored",
    "replicas": 2,
    "workers": 1,
    "epochs": 12,
    "best_epoch": 9,
    "examples_per_second": 12345.6,
    "notes": [],
}
"""As much of a record of a training as is shown."""


def rows(number: int, south: float = 0.5, east: int = 0) -> pd.DataFrame:
    """So many rows, by the share of those in the south; `east` is unheard of."""
    side = ["south" if row < south * number else "north" for row in range(number)]
    side[:east] = ["east"] * east
    return pd.DataFrame({"side": side, "label": [row % 2 for row in range(number)]})


def statistics_of(data: pd.DataFrame) -> statistics_pb2.DatasetFeatureStatisticsList:
    return tfdv.generate_statistics_from_dataframe(data)


@component
def Read(examples: OutputArtifact[Examples]):  # noqa: N802 - a component
    """Examples, which nobody here looks into."""


@component
def Count(  # noqa: N802 - a component
    statistics: OutputArtifact[ExampleStatistics],
    train: Parameter[int],
    evaluation: Parameter[int],
    south: Parameter[float] = 0.5,
    east: Parameter[int] = 0,
):
    """What TFDV counts in rows of both splits."""
    statistics.split_names = artifact_utils.encode_split_names(["train", "eval"])
    for split, data in (("train", rows(train, south, east)), ("eval", rows(evaluation))):
        path = Path(statistics.uri) / f"Split-{split}" / "FeatureStats.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(statistics_of(data).SerializeToString())


@component
def Describe(schema: OutputArtifact[Schema]):  # noqa: N802 - a component
    """What usual rows look like."""
    inferred = tfdv.infer_schema(statistics_of(rows(100)))
    tfdv.write_schema_text(inferred, str(Path(schema.uri) / "schema.pbtxt"))


@component
def Train(  # noqa: N802 - a component
    model: OutputArtifact[Model],
    model_run: OutputArtifact[ModelRun],
    withdrawn: Parameter[int] = 0,
    workers: Parameter[int] = 1,
    replicas: Parameter[int] = 2,
    recorded: Parameter[int] = 1,
    members: Parameter[str] = "",
):
    """A model's folder, and the record of its training."""
    served = Path(model.uri) / "Format-Serving"
    served.mkdir(parents=True)
    (served / "saved_model.pb").write_bytes(b"graph")
    if withdrawn:
        model.set_int_custom_property(WITHDRAWN_PROPERTY, 1)
    if recorded:
        record = TRAINED | {"workers": workers, "replicas": replicas}
        if members:
            record["members"] = {name: {"weight": 0.5} for name in members.split()}
        write_record(model_run.uri, record)


@component
def Evaluate(  # noqa: N802 - a component
    model: InputArtifact[Model],
    evaluation: OutputArtifact[ModelEvaluation],
    blessing: OutputArtifact[ModelBlessing],
    measured: Parameter[str],
    blessed: Parameter[int],
):
    """What TFX's Evaluator has written before, and its verdict."""
    shutil.copytree(measured, evaluation.uri, dirs_exist_ok=True)
    blessing.set_int_custom_property("blessed", blessed)
    blessing.set_int_custom_property(BLESSED_MODEL_PROPERTY, model.id)


@component
def Break(why: Parameter[str]):  # noqa: N802 - a component
    """Fails."""
    raise RuntimeError(why)


def checks(config: PipelineConfig, before: int = 0, **counted: Any) -> list[BaseNode]:
    """The components that look at data; where `before` is, so many usual rows came before it."""
    counts = {"train": 100, "evaluation": 20} | counted
    now = Count(**counts).with_id("StatisticsGen")
    schema = Describe().with_id("SchemaGen")
    older = [Count(train=before, evaluation=1).with_id("Before")] if before else []
    validator = ExampleValidator(
        statistics=now.outputs["statistics"],
        schema=schema.outputs["schema"],
        settings=ValidationSettings(
            config.data.label,
            config.task,
            declared=[],
            on_anomaly=config.on_anomaly.value,
            drift=Drift(**config.drift.model_dump(mode="json")) if older else Drift(),
        ),
        previous_statistics=older[0].outputs["statistics"] if older else None,
    )
    return [Read().with_id("ExampleGen"), now, schema, *older, validator]


def training(layout: Layout, measured: str, blessed: bool, **trained: int) -> list[BaseNode]:
    """The components that make, judge and push a model; pushing is the real one."""
    trainer = Train(**trained).with_id("Trainer")
    model = trainer.outputs["model"]
    evaluator = Evaluate(model=model, measured=measured, blessed=int(blessed)).with_id("Evaluator")
    pusher = Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=layout.serving)
        ),
        custom_executor_spec=executor_spec.ExecutorClassSpec(AtomicPushExecutor),
    )
    return [trainer, evaluator, pusher]


def play(
    config: PipelineConfig,
    layout: Layout,
    observer: ComponentObserver,
    nodes: Sequence[BaseNode],
    run_id: str = "run 1",
    *gate: Gate,
) -> None:
    """Runs components as a pipeline of the config, over its own metadata."""
    pipeline = Pipeline(
        pipeline_name=config.name,
        pipeline_root=layout.artifacts,
        components=list(nodes),
        enable_cache=True,
        metadata_connection_config=connection_config(config.metadata, layout),
    )
    LocalRunner(run_id, observer, *gate).run(pipeline)
