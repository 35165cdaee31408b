"""Rows without a label, of one class or without a number have TFMA's metrics in batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.evaluator.batched.accumulator import Accumulator
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import ModelRows
from tests.support.as_tfma import ROWS, by_tfma, check_metrics, check_plots, make_config, make_rows

KINDS = ("usual", "one label", "no label", "no number", "one row", "no weight")


def make_odd_rows(task: str) -> tuple[ModelRows, pa.RecordBatch]:
    """A kind of rows by slice, so that one evaluation looks at all of them."""
    rows = make_rows(task)
    labels, output, weights = rows.labels.copy(), rows.predictions.copy(), rows.weights + 1
    numbers = np.arange(ROWS) % (len(KINDS) - 2)
    numbers[7], numbers[8:20] = KINDS.index("one row"), KINDS.index("no weight")
    kinds = np.array(KINDS)[numbers]
    labels[kinds == "one label"] = 1
    weights[kinds == "no weight"] = 0
    # Of two classes a label is 0 or 1, and a probability a number; else there is no evaluation.
    if task != "binary":
        # As a model's signature has it: a class that it never predicts.
        labels[kinds == "no label"] = 6 if labels.dtype.kind == "i" else np.nan
        output[kinds == "no number"] = np.nan
    columns = pa.RecordBatch.from_pydict({"kind": [[kind] for kind in kinds]})
    return replace(rows, labels=labels, predictions=output, weights=weights), columns


# Ordinal tasks have the metrics of multiclass tasks, and counts have those of a regression, but for
# the deviance, whose rows test_batched.py compares.
@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        "binary",
        "ordinal",
        "regression",
    ],
)
def test_metrics_of_odd_rows_are_those_of_tfma(task: str, tmp_path: Path) -> None:
    (rows, columns), config = make_odd_rows(task), make_config(task, True, slices=[["kind"]])
    expected = by_tfma(config, rows, columns, tmp_path)
    accumulator = Accumulator(config, [("kind",)])
    accumulator.add(PredictedBatch({"": rows}, columns))
    found = dict(accumulator.results())
    assert len(found) == 1 + len(KINDS)
    check_metrics(found, expected)
    check_plots(found, tmp_path)
