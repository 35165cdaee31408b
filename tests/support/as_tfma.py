"""Rows of each task, their evaluation by TFMA, and the comparison of metrics with TFMA's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma
import tfx.components  # noqa: F401 - else TFMA lacks names such as `tfma.EvalConfig`
from apache_beam.options.pipeline_options import PipelineOptions
from google.protobuf import json_format
from tensorflow_model_analysis.proto.metrics_for_slice_pb2 import PlotsForSlice
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as plots_writer

from components.beam_workers.options import IN_PROCESS_ARGS
from components.evaluator.batched.computations import is_plot
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import ModelRows
from pipeline.config.settings import PipelineConfig
from pipeline.graph.evaluation import make_eval_config
from tests.support.quick_beam import speed_up_beam
from trainer_module.settings.tasks import supervised_class

ROWS = 300

SLICES = [["shop"], ["size"], ["shop", "tags"]]

OPTIONS: dict[str, dict[str, Any]] = {
    "ordinal": {"order": list("abcdef")},
    "regression": {"quantiles": [0.1, 0.9]},
}


def make_rows(task: str, seed: int = 3) -> ModelRows:
    """Rows of a task with a model's output; some weights are 0, some scores on thresholds."""
    random = np.random.default_rng(seed)
    weights = random.integers(0, 4, ROWS).astype(np.float64)
    none = np.zeros((ROWS, 0))
    if task in ("multiclass", "ordinal"):
        truth = random.integers(0, 6, ROWS)
        output = random.uniform(0, 1, (ROWS, 6)) + 0.6 * np.eye(6)[truth]
        output = (output / output.sum(1, keepdims=True)).astype(np.float32)
        output[:9] = np.float32(1 / 6)  # Of equal scores.
        # A class that the model does not know.
        return ModelRows(
            np.where(random.random(ROWS) < 0.02, 6, truth), _padded(output), none, weights
        )
    if task == "binary":
        truth = random.integers(0, 2, ROWS)
        output = np.clip(truth * 0.3 + random.uniform(0, 0.7, ROWS), 1e-7, 1 - 1e-7)
        output[:6] = [0.5, 1e-7, 1 - 1e-7, 0.25, 0.75, 0.1]
        return ModelRows(truth, output.astype(np.float32)[:, np.newaxis], none, weights)
    truth = random.poisson(3, ROWS) if task == "count" else random.normal(100, 20, ROWS)
    output = (truth * random.uniform(0.5, 1.5, ROWS) + 0.5).astype(np.float32)
    quantiles = np.stack([output - 20, output + 20], 1).astype(np.float64)
    labels = truth.astype(np.float32)
    return ModelRows(
        labels, output[:, np.newaxis], quantiles if task == "regression" else none, weights
    )


def _padded(output: np.ndarray) -> np.ndarray:
    return np.pad(output, [(0, 0), (0, 1)])


def raw_columns(seed: int = 3) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    shops = [None if one == 3 else [f"shop{one}".encode()] for one in random.integers(0, 4, ROWS)]
    sizes = [[int(one)] for one in random.integers(-1, 2, ROWS)]
    tags = [[b"a", "\u00e9".encode(), b"a"][: int(n)] for n in random.integers(0, 4, ROWS)]
    return pa.RecordBatch.from_pydict({"shop": shops, "size": sizes, "tags": tags})


def make_config(
    task: str, is_weighted: bool, slices: Sequence[Sequence[str]] = SLICES
) -> tfma.EvalConfig:
    kind = {"kind": task, **OPTIONS.get(task, {})}
    metrics = list(supervised_class(task).model_validate(kind).metrics())
    config = make_eval_config(
        PipelineConfig.model_validate(
            {
                "name": "measured",
                "data": {"format": "csv", "path": "nowhere.csv"}
                | ({"weight": "weight"} if is_weighted else {}),
                "task": kind,
                "evaluate": {"metrics": metrics, "slices": slices},
            }
        ).criteria
    )
    config.model_specs[0].CopyFrom(tfma.ModelSpec(label_key="truth", prediction_key="output"))
    if is_weighted:
        config.model_specs[0].example_weight_key = "weight"
    for spec in config.metrics_specs:
        for metric in spec.metrics:
            metric.ClearField("per_slice_thresholds")
    return config


def by_tfma(config: tfma.EvalConfig, rows: ModelRows, columns: pa.RecordBatch, to: Path) -> Any:
    outputs = pa.array(rows.predictions.tolist(), pa.list_(pa.float32()))
    data = {
        "truth": pa.array([[v] for v in rows.labels.tolist()]),
        "output": outputs,
        "weight": pa.array([[v] for v in rows.weights.tolist()]),
        **{name: columns.column(name) for name in columns.schema.names},
    }
    with pytest.MonkeyPatch.context() as patch:
        speed_up_beam(patch)
        pipeline = beam.Pipeline(options=PipelineOptions(list(IN_PROCESS_ARGS)))
        _ = (
            pipeline
            | beam.Create([pa.RecordBatch.from_pydict(data)])
            | tfma.ExtractEvaluateAndWriteResults(eval_config=config, output_path=str(to))
        )
        pipeline.run().wait_until_finish()
    return tfma.load_eval_result(str(to))


def at(rows: ModelRows, places: Any) -> ModelRows:
    """Some of the rows."""
    return ModelRows(
        rows.labels[places], rows.predictions[places], rows.quantiles[places], rows.weights[places]
    )


def as_batch(rows: ModelRows, columns: pa.RecordBatch, places: np.ndarray) -> PredictedBatch:
    """Some of the rows."""
    return PredictedBatch({"": at(rows, places)}, columns.take(pa.array(places)))


OF_QUANTILES = ("coverage", "interval_width", "pinball_loss")
"""What needs quantiles beside predictions is compared with its formula elsewhere."""


def check_metrics(found: dict[Any, Any], expected: tfma.EvalResult) -> None:
    """Each number of each slice is TFMA's."""
    assert {key for key, _ in expected.slicing_metrics} == set(found)
    for key, by_output in expected.slicing_metrics:
        ours = {one.name: value for one, value in found[key].items()}
        for name, value in by_output[""][""].items():
            if name in OF_QUANTILES:
                continue
            right = float(value["doubleValue"])
            assert float(ours[name]) == pytest.approx(right, rel=1e-6, abs=1e-9, nan_ok=True), (
                key,
                name,
            )


def check_plots(found: dict[Any, Any], folder: Path) -> None:
    """Curves and matrices are those that TFMA has written, number for number."""
    plots = {
        str(one.slice_key): numbers_of(one)
        for one in tfma.load_plots(str(folder))
        if numbers_of(one)
    }
    ours = (
        plots_writer.convert_slice_plots_to_proto(
            (key, {one: value for one, value in metrics.items() if is_plot(one)}), None
        )
        for key, metrics in found.items()
    )
    numbers = {str(one.slice_key): numbers_of(one) for one in ours if numbers_of(one)}
    assert set(numbers) == set(plots)
    for key, expected in plots.items():
        assert numbers[key] == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True), key


def numbers_of(plots: PlotsForSlice) -> dict[str, float]:
    """All numbers, by their path."""

    def walk(path: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(f"{path}.{key}", inner)
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                yield from walk(f"{path}.{place}", inner)
        elif not isinstance(value, bool | str):
            yield path, float(value)

    return dict(walk("", json_format.MessageToDict(plots).get("plotKeysAndValues", [])))
