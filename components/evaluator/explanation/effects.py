"""The effect of a column: the mean prediction by its value, with the other columns unchanged
(partial dependence: Friedman, "Greedy function approximation", 2001).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from components.evaluator.explanation.prediction import ExplainedModel
from components.evaluator.explanation.record import Effect
from components.evaluator.explanation.sample import Sample
from components.evaluator.explanation.values import show_value
from trainer_module.export.interface import RawColumn

_MAX_VALUES, _MAX_ROWS, _MIN_ROWS = 20, 500, 50
_MIN_SHARE = 0.2
"""The minimum share of rows with one of the most frequent strings. Other columns are free text."""
_MAX_OUTPUTS = 20
"""The maximum number of classes, the most frequently predicted ones, that an effect is shown of."""


def measure_effects(
    model: ExplainedModel, sample: Sample, columns: Sequence[RawColumn], seconds: float
) -> tuple[list[Effect], list[str]]:
    """Returns the effects of columns, and notes on effects that were left out.

    Args:
      columns: the columns, beginning with the most important one.
      seconds: the time for the predictions. In less time, fewer rows and then fewer columns are
        predicted.
    """
    grids = {
        column.request: (column, grid)
        for column in columns
        if (grid := _choose_values(sample.columns[column.request], column)) is not None
    }
    capacity = model.capacity(seconds)
    calls = _MAX_VALUES * max(1, len(grids))
    rows = min(_MAX_ROWS, len(sample), max(min(_MIN_ROWS, len(sample)), capacity // calls))
    measured = list(grids.values())[: capacity // (_MAX_VALUES * rows)]
    effects = [
        _measure(model, sample.take(slice(rows)), sample, column, grid) for column, grid in measured
    ]
    notes = []
    if len(measured) < len(grids):
        speed = f"the model predicts only {model.rows_per_second:,.0f} rows per second"
        found = f"of only {len(measured)} of {len(grids)} columns" if measured else "of no column"
        notes.append(f"the effects {found} were measured: {speed}")
    return effects, notes


def _choose_values(values: np.ndarray, column: RawColumn) -> np.ndarray | None:
    """Returns up to 20 values of a column, or None for lists, pictures and free text.

    Numbers are in ascending order, at evenly spaced ranks, with NaN as the last for missing
    numbers. Infinite numbers, which JSON lacks, are left out. Strings begin with the most frequent
    one.
    """
    values = _flat(values)
    if column.picture or column.width != 1 or values.ndim > 1:
        return None
    if values.dtype == object:
        frequent = Counter(values.tolist()).most_common(_MAX_VALUES)
        shown = sum(count for _, count in frequent)
        # Values of which each is in one row are free text.
        if shown < _MIN_SHARE * len(values) or shown == len(frequent):
            return None
        grid = np.empty(len(frequent), object)
        grid[:] = [value for value, _ in frequent]
        return grid if len(grid) > 1 else None
    is_missing, finite = np.isnan(values), values[np.isfinite(values)]
    present = np.unique(finite)
    count = _MAX_VALUES - bool(is_missing.any())
    if len(present) > count:
        ranks = np.linspace(0.01, 0.99, count)
        ranked = np.quantile(finite, ranks, method="closest_observation")
        present = np.unique(ranked)
    grid = np.concatenate([present, [np.nan] * bool(is_missing.any())]).astype(values.dtype)
    return grid if len(grid) > 1 else None


def _flat(values: np.ndarray) -> np.ndarray:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _measure(
    model: ExplainedModel, sample: Sample, counted: Sample, column: RawColumn, grid: np.ndarray
) -> Effect:
    """Returns the effect of one column.

    Args:
      sample: the rows to predict.
      counted: the rows to count by value.
      grid: its values, [values].
    """
    name, rows = column.request, len(sample)
    values = sample.columns[name]
    extended = np.concatenate([values, grid.reshape(-1, *values.shape[1:])])
    places = np.repeat(rows + np.arange(len(grid)), rows)
    outputs = model.predict_mixed(
        sample.columns | {name: extended}, {name: places}, np.tile(np.arange(rows), len(grid))
    )
    answers = outputs.reshape(len(grid), rows, -1)
    output = _strongest_output(answers, sample)
    answers = answers[:, :, output]
    quartiles = np.quantile(answers, [0.25, 0.75], axis=1)
    return Effect(
        column=column.name,
        is_numeric=grid.dtype != object,
        values=[show_value(value, column) for value in grid],
        answers=np.average(answers, axis=1, weights=sample.weights).tolist(),
        low=quartiles[0].tolist(),
        high=quartiles[1].tolist(),
        rows=_count(_flat(counted.columns[name]), grid).tolist(),
        output=f"probability of {model.target.classes[output]}" if model.target.classes else "",
    )


def _strongest_output(answers: np.ndarray, sample: Sample) -> int:
    """Returns the output whose mean changes most; the only number, or the second of two classes."""
    count = answers.shape[2]
    if count <= 2:
        return count - 1
    frequent = np.bincount(sample.outputs.argmax(1), minlength=count)
    shown = np.argsort(-frequent, kind="stable")[:_MAX_OUTPUTS]
    means = np.average(answers[:, :, shown], axis=1, weights=sample.weights)
    return int(shown[np.argmax(np.ptp(means, axis=0))])


def _count(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Returns the number of rows with each value of the grid, or with a number nearest to it."""
    if grid.dtype == object:
        counts = Counter(values.tolist())
        return np.array([counts[value] for value in grid])
    is_missing = np.isnan(grid)
    present = grid[~is_missing].astype(np.float64)
    middles = (present[:-1] + present[1:]) / 2
    places = np.searchsorted(middles, values[np.isfinite(values)].astype(np.float64))
    found = np.bincount(places, minlength=len(present))
    return np.concatenate([found, [np.isnan(values).sum()] * int(is_missing.sum())]).astype(int)
