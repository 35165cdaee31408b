"""Our side of the comparison: Transform once per split, and a trained model per seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tfx import types
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.components.transform.executor import Executor
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from benchmarks.models.tables import Rows, Table
from components.beam_workers.options import IN_PROCESS_ARGS
from components.column_types.decision import choose_types
from components.column_types.facts import collect_facts
from components.processes.local.launcher import LocalLauncher
from components.schema_gen.component import fill_gaps
from components.schema_gen.inference import infer_schema
from components.tuner.records import choose
from components.tuner.search import Search, SearchJob
from trainer_module.settings import Task, TrainerSettings
from trainer_module.settings.model import load_trainer
from trainer_module.settings.tune import TuneSettings
from trainer_module.tuning.plan import SearchPlan

TUNED = "tuned"
"""The default model with the settings that an automatic search finds."""


@dataclass(frozen=True)
class Transformed:
    """The output of Transform for a table, in a folder."""

    root: Path
    table: Table
    numbers: frozenset[str]
    features: Mapping[str, Any]
    """The settings of the text columns."""

    def predict(self, kind: str, seed: int, rows: Rows, seconds: int = 0) -> np.ndarray:
        """Trains a model with its defaults; returns [rows] numbers or [rows, classes] scores.

        Args:
          kind: the kind of model; `TUNED` uses the result of `tune: auto`.
          seed: the seed of the model and of the search.
          rows: the rows to predict.
          seconds: the time limit of a search.
        """
        sections = {"model": {"kind": kind}, "train": {"seed": seed}, "features": self.features}
        target = self.root / f"{kind}-{seed}"
        if kind == TUNED:
            settings = self._search(seed, seconds, target)
        else:
            settings = _settings(self.table, sections)
        load_trainer(settings.model.kind).run_fn(
            FnArgs(
                train_files=[self._split("train")],
                eval_files=[self._split("eval")],
                transform_graph_path=str(self.root / "graph"),
                serving_model_dir=str(target / "model"),
                model_run_dir=str(target / "run"),
                custom_config=settings.to_custom_config(),
            )
        )
        serve = tf.saved_model.load(str(target / "model")).signatures["serving_default"]
        found = serve(tf.constant([self._example(row) for row in rows]))
        name = "value" if self.table.task is Task.REGRESSION else "scores"
        return np.asarray(found[name].numpy())

    def _search(self, seed: int, seconds: int, target: Path) -> TrainerSettings:
        """Returns the settings that an automatic search finds."""
        settings = {"label": self.table.label, "task": self.table.task, "features": self.features}
        plan = SearchPlan(
            given={**settings, "model": {}, "train": {"seed": seed}},
            tune=TuneSettings.model_validate({"auto": True, "timeout": f"{seconds}s"}),
        )
        (target / "search").mkdir(parents=True)
        train = [self._split("train")]
        arguments = {
            "train_files": train,
            "eval_files": train,
            "transform_graph_path": str(self.root / "graph"),
            "custom_config": {},
        }
        job = SearchJob(plan, str(target / "search"), arguments, {}, has_own_split=False)
        trials = Search(LocalLauncher(), job).run()
        best = choose(trials, plan.objective, True, plan.searches_members)
        assert best is not None  # noqa: S101 - else the search would have raised
        return plan.settings(best.values)

    def _split(self, name: str) -> str:
        return str(self.root / "transformed" / f"Split-{name}" / "*")

    def _example(self, row: dict[str, str]) -> bytes:
        return to_example(row, self.numbers)


def transform(table: Table, train: Rows, evaluation: Rows, root: Path) -> Transformed:
    """Infers the schema of the train rows as SchemaGen does, and runs Transform on both splits."""
    numbers = numeric_columns(table, [*train, *evaluation])
    records = [to_example(row, numbers) for row in train]
    for split, rows in (("train", records), ("eval", [to_example(r, numbers) for r in evaluation])):
        _write(root / "raw" / f"Split-{split}" / "data.gz", rows)
    batch = ExamplesToRecordBatchDecoder().DecodeBatch(records)
    features = _find_texts(table, train)
    settings = _settings(table, {"features": features})
    schema = infer_schema([generate_statistics_in_memory(batch)], settings.label, settings.task, [])
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
    return Transformed(root, table, numbers, features)


def _find_texts(table: Table, rows: Rows) -> dict[str, Any]:
    """Returns the settings of text columns, as a first run chooses them."""
    columns = {name: pa.array([row[name] for row in rows]) for name in table.texts}
    return {name: c.settings for name, c in choose_types(collect_facts(columns, {})).items()}


def numeric_columns(table: Table, rows: Rows) -> frozenset[str]:
    """Returns the columns of numbers or empty cells, without the label of a classification."""
    names = frozenset(name for name in rows[0] if all(_is_number(row[name]) for row in rows))
    return names if table.task is Task.REGRESSION else names - {table.label}


def to_example(row: dict[str, str], numbers: frozenset[str]) -> bytes:
    """Returns a serialised tf.Example without the empty cells."""
    features = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=[float(cell)]))
        if name in numbers
        else tf.train.Feature(bytes_list=tf.train.BytesList(value=[cell.encode()]))
        for name, cell in row.items()
        if cell
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _settings(table: Table, sections: Mapping[str, object]) -> TrainerSettings:
    return TrainerSettings.model_validate({"label": table.label, "task": table.task, **sections})


def _is_number(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return False
    return True


def _write(path: Path, records: Sequence[bytes]) -> None:
    path.parent.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for record in records:
            writer.write(record)


def _artifact(kind: type[types.Artifact], path: Path) -> types.Artifact:
    artifact = kind()
    artifact.uri = str(path)
    if kind is standard_artifacts.Examples:
        artifact.split_names = json.dumps(["train", "eval"])
    return artifact
