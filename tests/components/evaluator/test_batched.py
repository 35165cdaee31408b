"""Metrics computed in batches are TFMA's: every metric, task, slice and weight."""

from __future__ import annotations

import logging
import pickle
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma

from components.compat import tfma as tfma_insides
from components.evaluator.batched import statistics, tfma_statistics
from components.evaluator.batched.accumulator import Accumulator, Grouper
from components.evaluator.batched.computations import is_plot
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import ModelRows, UnsupportedInBatches
from tests.support.as_tfma import (
    ROWS,
    SLICES,
    at,
    by_tfma,
    check_metrics,
    check_plots,
    make_config,
    make_rows,
    raw_columns,
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
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "is_weighted"),
    [("binary", True), ("ordinal", True), ("regression", True), ("count", False)],
)
def test_each_metric_of_each_slice_is_that_of_tfma(
    task: str, is_weighted: bool, tmp_path: Path
) -> None:
    rows, columns, config = make_rows(task), raw_columns(), make_config(task, is_weighted)
    # What needs quantiles beside predictions is compared with its formula elsewhere.
    expected = by_tfma(config, rows, columns, tmp_path)
    found = dict(measure(config, rows, columns).results())
    assert len(found) > 10
    check_metrics(found, expected)
    check_plots(found, tmp_path)


@pytest.mark.parametrize("task", ["binary", "ordinal", "regression"])
def test_merged_metrics_of_files_are_those_of_all_rows(task: str) -> None:
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
def test_statistic_that_tfma_computes_differently_is_left_to_tfma(
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


def test_unknown_use_of_weights_is_unsupported() -> None:
    rows = ModelRows(np.zeros(2), np.zeros((2, 1)), np.zeros((2, 0)), np.array([2.0, 3.0]))
    key = SimpleNamespace(sub_key=None, output_name="", example_weighted=True)
    assert tfma_insides.is_plain(SimpleNamespace(_key=key, _aggregation_type=None))
    assert not tfma_insides.is_plain(SimpleNamespace(_renamed_key=key))

    def weights_of(**held: Any) -> list[float]:
        weights = tfma_statistics.ExampleCount(SimpleNamespace(**held)).weights(rows)
        return list(weights.tolist())

    assert weights_of(_key=key) == [2, 3]
    assert weights_of(_key=key, _example_weighted=False) == [1, 1]
    with pytest.raises(UnsupportedInBatches, match="SimpleNamespace"):
        weights_of(_renamed_key=key, _weighted=True)
