"""Rows without a label, of one class and without a number: batches come to what TFMA comes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_batched import ROWS, by_tfma, make_config, make_rows

from components.evaluator.batched.accumulator import Accumulator
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import ModelRows, UnsupportedInBatches
from tests.support.as_tfma import check_metrics, check_plots

KINDS = ("usual", "one label", "no label", "no number", "one row", "no weight")


def make_odd_rows(task: str) -> tuple[ModelRows, pa.RecordBatch]:
    """A kind of rows by slice, so that one evaluation looks at all of them."""
    rows = make_rows(task)
    labels, said, weights = rows.labels.copy(), rows.predictions.copy(), rows.weights + 1
    numbers = np.arange(ROWS) % (len(KINDS) - 2)
    numbers[7], numbers[8:20] = KINDS.index("one row"), KINDS.index("no weight")
    kinds = np.array(KINDS)[numbers]
    labels[kinds == "one label"] = 1
    weights[kinds == "no weight"] = 0
    # Of two classes a label is 0 or 1, and a probability a number; else there is no evaluation.
    if task != "binary":
        # As a model's signature has it: a class that it never predicts.
        labels[kinds == "no label"] = 6 if labels.dtype.kind == "i" else np.nan
        said[kinds == "no number"] = np.nan
    columns = pa.RecordBatch.from_pydict({"kind": [[kind] for kind in kinds]})
    return replace(rows, labels=labels, predictions=said, weights=weights), columns


# Ordinal tasks have the metrics of multiclass tasks, and counts have those of a regression, but for
# the deviance, whose rows test_batched.py compares.
@pytest.mark.parametrize(
    "task",
    [
        "binary",
        "ordinal",
        "regression",
        pytest.param("multiclass", marks=pytest.mark.slow),
        pytest.param("count", marks=pytest.mark.slow),
    ],
)
def test_odd_rows_come_to_what_tfma_makes_of_them(task: str, tmp_path: Path) -> None:
    (rows, columns), config = make_odd_rows(task), make_config(task, True, slices=[["kind"]])
    expected = by_tfma(config, rows, columns, tmp_path)
    accumulator = Accumulator(config, [("kind",)])
    accumulator.add(PredictedBatch({"": rows}, columns))
    found = dict(accumulator.results())
    assert len(found) == 1 + len(KINDS)
    check_metrics(found, expected)
    check_plots(found, tmp_path)


def test_labels_that_are_no_classes_are_left_to_tfma() -> None:
    rows, columns = make_odd_rows("binary")
    accumulator = Accumulator(make_config("binary", True, slices=[["kind"]]), [("kind",)])
    labels = np.where(np.arange(ROWS) == 5, -1, rows.labels)
    accumulator.add(PredictedBatch({"": replace(rows, labels=labels)}, columns))
    with pytest.raises(UnsupportedInBatches):
        dict(accumulator.results())
