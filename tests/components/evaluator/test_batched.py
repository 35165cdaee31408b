"""Metrics added up by batches are TFMA's: every metric, task, slice, weight and odd value."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma
from apache_beam.options.pipeline_options import PipelineOptions

from components.beam_workers.options import IN_PROCESS_ARGS
from components.compat import tfma as tfma_insides
from components.evaluator.batched import statistics, tfma_statistics
from components.evaluator.batched.accumulator import Accumulator, Grouper
from components.evaluator.batched.computations import is_plot
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import ModelRows, UnsupportedInBatches
from pipeline.config.settings import PipelineConfig
from pipeline.graph.evaluation import make_eval_config
from tests.support.as_tfma import check_metrics, check_plots
from trainer_module.settings.tasks import SUPERVISED_TASKS, supervised_class

ROWS = 300
SLICES = [["shop"], ["size"], ["shop", "tags"]]
OPTIONS: dict[str, dict[str, Any]] = {
    "ordinal": {"order": list("abcdef")},
    "regression": {"quantiles": [0.1, 0.9]},
}


def make_rows(task: str, seed: int = 3) -> ModelRows:
    """Right more often than not; scores on thresholds and at both ends, and rows that weigh 0."""
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
    with beam.Pipeline(options=PipelineOptions(list(IN_PROCESS_ARGS))) as pipeline:
        _ = (
            pipeline
            | beam.Create([pa.RecordBatch.from_pydict(data)])
            | tfma.ExtractEvaluateAndWriteResults(eval_config=config, output_path=str(to))
        )
    return tfma.load_eval_result(str(to))


def at(rows: ModelRows, places: Any) -> ModelRows:
    """Some of the rows."""
    return ModelRows(
        rows.labels[places], rows.predictions[places], rows.quantiles[places], rows.weights[places]
    )


def measure(config: tfma.EvalConfig, rows: ModelRows, columns: pa.RecordBatch) -> Accumulator:
    """In batches of another size each time."""
    accumulator, first = Accumulator(config, [tuple(names) for names in SLICES], Grouper(0)), 0
    for size in (1, 99, 200):
        part = slice(first, first + size)
        accumulator.add(PredictedBatch({"": at(rows, part)}, columns.slice(first, size)))
        first += size
    return accumulator


# The metrics of an ordinal task contain those of a multiclass task.
@pytest.mark.parametrize(
    ("task", "is_weighted"),
    [
        ("binary", True),
        ("ordinal", True),
        ("regression", True),
        ("count", False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("multiclass", True), ("count", True), ("binary", False))
        ),
    ],
)
def test_each_metric_of_each_slice_is_as_tfma_has_it(
    task: str, is_weighted: bool, tmp_path: Path
) -> None:
    rows, columns, config = make_rows(task), raw_columns(), make_config(task, is_weighted)
    # What needs quantiles beside predictions is compared with its formula elsewhere.
    expected = by_tfma(config, rows, columns, tmp_path)
    found = dict(measure(config, rows, columns).results())
    assert len(found) > 10
    check_metrics(found, expected)
    check_plots(found, tmp_path)


@pytest.mark.parametrize("task", SUPERVISED_TASKS)
def test_two_measurements_add_up(task: str) -> None:
    """As those of several files do, whose slices come up in another order."""
    rows, columns, config = make_rows(task), raw_columns(), make_config(task, is_weighted=True)
    whole = dict(measure(config, rows, columns).results())
    reverse = np.arange(ROWS)[::-1]
    parts = []
    for file, places in enumerate((reverse[:100], reverse[100:])):
        one = Accumulator(config, [tuple(names) for names in SLICES], Grouper(file))
        one.add(PredictedBatch({"": at(rows, places)}, columns.take(pa.array(places))))
        # As it is sent from one process to another.
        parts.append(pickle.loads(pickle.dumps(one)))  # noqa: S301
    parts[0].merge(parts[1])
    found = dict(parts[0].results())
    assert set(found) == set(whole)
    for key, metrics in whole.items():
        for name, value in metrics.items():
            if is_plot(name):
                assert str(found[key][name]) == str(value)
                continue
            assert float(found[key][name]) == pytest.approx(float(value), rel=1e-9, nan_ok=True)


PATCHED = [
    (kind, module, path)
    for kind in dict.fromkeys(statistics.STATISTICS.values())
    for module, prints in kind.known.items()
    for path in prints
]


@pytest.mark.parametrize(
    ("kind", "module", "path"), PATCHED, ids=[f"{t.__name__}-{path}" for t, _, path in PATCHED]
)
def test_what_tfma_computes_otherwise_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type[statistics.Statistic],
    module: str,
    path: str,
) -> None:
    name = next(name for name, found in statistics.STATISTICS.items() if found is kind)
    of_module, _, of_class = name.partition(":")
    combiner = getattr(import_module(of_module), of_class)
    monkeypatch.setattr(kind, "supports", lambda _: True)
    monkeypatch.setattr(kind, "__init__", lambda *_: None)
    plain = object.__new__(combiner)
    statistics._is_known.cache_clear()
    assert isinstance(statistics.find_statistic(plain), kind)
    statistics._is_known.cache_clear()
    owner = import_module(module)
    stock = getattr(owner, path)
    if isinstance(stock, type):
        name = next(name for name, value in vars(stock).items() if callable(value))
        monkeypatch.setattr(stock, name, lambda *given: given)
    else:
        monkeypatch.setattr(owner, path, lambda *given, **named: stock(*given, **named))
    with caplog.at_level(logging.WARNING):
        assert statistics.find_statistic(plain) is statistics.find_statistic(plain) is None
    statistics._is_known.cache_clear()
    (line,) = caplog.messages
    assert f"{module}:{path}" in line


def test_every_statistic_of_tfmas_says_what_it_knows() -> None:
    assert all(kind.known for kind in statistics.STATISTICS.values())


def test_options_and_weights_that_cannot_be_told_are_not_taken_for_none() -> None:
    rows = ModelRows(np.zeros(2), np.zeros((2, 1)), np.zeros((2, 0)), np.array([2.0, 3.0]))
    key = SimpleNamespace(sub_key=None, output_name="", example_weighted=True)
    assert tfma_insides.is_plain(SimpleNamespace(_key=key, _aggregation_type=None))
    assert not tfma_insides.is_plain(SimpleNamespace(_renamed_key=key))

    def weights_of(**held: Any) -> list[float]:
        weights = tfma_statistics.ExampleCount(SimpleNamespace(**held)).weights(rows)
        return list(weights.tolist())

    assert weights_of(_key=key) == [2, 3]
    assert weights_of(_key=key, _example_weighted=False) == [1, 1]
    with pytest.raises(
        UnsupportedInBatches, match="SimpleNamespace does not declare its use of example weights"
    ):
        weights_of(_renamed_key=key, _weighted=True)
