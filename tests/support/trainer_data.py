"""Tiny data taken through the real TFDV and TFX Transform, as TFX's components would."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
import tensorflow_transform as tft
from PIL import Image
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tfx import types
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.components.transform.executor import Executor
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.beam_workers.options import IN_PROCESS_ARGS
from components.compat.beam import remember_lookups
from components.schema_gen.component import fill_gaps
from components.schema_gen.inference import infer_schema
from tests.support import warm
from trainer_module.problem import Problem
from trainer_module.runtime import RECORD_FILE
from trainer_module.settings import TrainerSettings, TrainSettings
from trainer_module.strategies.base import BaseStrategy

Row = dict[str, Any]

SMALLEST_BERT = {"layers": 1, "hidden": 8, "heads": 2, "max_tokens": 16}


def strategy_settings(strategy: Any) -> BaseStrategy:
    """The settings of a strategy, given by name or with options."""
    return TrainSettings.model_validate({"strategy": strategy}).strategy


def run_script(script: Path, *arguments: str, timeout: float = 150) -> None:
    """Runs a script of a test in a process of its own, which has so many seconds."""
    done = warm.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-5000:]


def to_example(row: Row) -> bytes:
    """A serialized tf.Example; a value of None is left out, an empty list has no type."""
    features = {name: _to_feature(value) for name, value in row.items() if value is not None}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _to_feature(value: Any) -> tf.train.Feature:
    values = value if isinstance(value, list) else [value]
    values = [v.encode() if isinstance(v, str) else v for v in values]
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if all(isinstance(v, int) for v in values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def write_examples(path: Path, records: Iterable[bytes]) -> None:
    """A gzipped TFRecord file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for record in records:
            writer.write(record)


def read_record(model: str | Path) -> dict[str, Any]:
    """What the training has noted of which a model was exported."""
    return dict(json.loads((Path(model).parent / "model_run" / RECORD_FILE).read_text()))


def make_image(shade: int, size: int = 8) -> bytes:
    """A grey PNG, all of one shade."""
    encoded = io.BytesIO()
    Image.new("L", (size, size), shade).save(encoded, "PNG")
    return encoded.getvalue()


@dataclass(frozen=True)
class Transformed:
    """What Transform leaves behind, and what went in."""

    root: Path
    settings: TrainerSettings
    train: list[Row]
    evaluation: list[Row]

    @property
    def tft_output(self) -> tft.TFTransformOutput:
        return tft.TFTransformOutput(str(self.root / "graph"))

    @property
    def problem(self) -> Problem:
        settings = self.settings
        return Problem.from_transform(
            self.tft_output, settings.task, settings.label, settings.features
        )

    def files(self, split: str) -> list[str]:
        return [str(self.root / "transformed" / f"Split-{split}" / "*")]

    def transform(self, rows: list[Row]) -> dict[str, np.ndarray]:
        """Rows through the transform graph, as serving would do it."""
        layer, spec = _serving_graph(str(self.root / "graph"))
        examples = tf.io.parse_example([to_example(row) for row in rows], spec)
        return {name: value.numpy() for name, value in layer(examples).items()}

    def fn_args(self, directory: Path, **sections: Any) -> FnArgs:
        """The arguments of a training run, with keys of `sections` of the settings changed."""
        values = self.settings.model_dump(mode="json")
        for section, changed in sections.items():
            values[section].update(changed)
        settings = TrainerSettings.model_validate(values)
        return FnArgs(
            train_files=self.files("train"),
            eval_files=self.files("eval"),
            transform_graph_path=str(self.root / "graph"),
            serving_model_dir=str(directory / "Format-Serving"),
            model_run_dir=str(directory / "model_run"),
            custom_config=settings.to_custom_config(),
        )


@lru_cache(maxsize=12)
def _serving_graph(path: str) -> tuple[Any, dict[str, Any]]:
    """The transform graph, and the raw columns that it takes; loaded once in a process."""
    output = tft.TFTransformOutput(path)
    return output.transform_features_layer(), output.raw_feature_spec()


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first of pytest's workers to ask for it fills, and all of them read."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    directory, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            make(directory)
            done.touch()
    return directory


def transformed_once(
    factory: pytest.TempPathFactory,
    name: str,
    train: list[Row],
    evaluation: list[Row],
    settings: TrainerSettings,
) -> Transformed:
    """The same as `run_transform`, which runs in one of pytest's workers alone."""
    root = made_once(factory, name, lambda root: run_transform(root, train, evaluation, settings))
    return Transformed(root, settings, train, evaluation)


def run_transform(
    root: Path, train: list[Row], evaluation: list[Row], settings: TrainerSettings
) -> Transformed:
    """Infers the schema of the train split as SchemaGen does, and runs Transform over both."""
    remember_lookups()
    for split, rows in (("train", train), ("eval", evaluation)):
        write_examples(root / "raw" / f"Split-{split}" / "data.gz", map(to_example, rows))
    batch = ExamplesToRecordBatchDecoder().DecodeBatch([to_example(row) for row in train])
    images = [name for name, feature in settings.features.items() if feature.type == "image"]
    statistics = [generate_statistics_in_memory(batch)]
    schema = infer_schema(statistics, settings.label, settings.task, images)
    fill_gaps(schema)
    (root / "schema").mkdir()
    tfdv.write_schema_text(schema, str(root / "schema" / "schema.pbtxt"))
    context = BaseBeamExecutor.Context(
        beam_pipeline_args=list(IN_PROCESS_ARGS), tmp_dir=str(root / "tmp"), unique_id="1"
    )
    Executor(context).Do(
        {
            "examples": [_artifact(standard_artifacts.Examples, root / "raw")],
            "schema": [_artifact(standard_artifacts.Schema, root / "schema")],
        },
        {
            "transform_graph": [_artifact(standard_artifacts.TransformGraph, root / "graph")],
            "transformed_examples": [_artifact(standard_artifacts.Examples, root / "transformed")],
        },
        {
            "preprocessing_fn": "trainer_module.preprocessing.preprocessing_fn",
            "custom_config": json.dumps(settings.to_custom_config()),
            "disable_statistics": 1,
        },
    )
    return Transformed(root, settings, train, evaluation)


def _artifact(kind: type[types.Artifact], path: Path) -> types.Artifact:
    artifact = kind()
    artifact.uri = str(path)
    if kind is standard_artifacts.Examples:
        artifact.split_names = json.dumps(["train", "eval"])
    return artifact
