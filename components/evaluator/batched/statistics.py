"""Statistics: the sums over rows from which metrics are computed, for many slices together.

The statistic of a TFMA combiner accumulates the same sums as the combiner. At the end, the sums
fill the combiner's own accumulator. TFMA's `extract_output` and TFMA's derived computations compute
the metrics from it, so values and formats equal TFMA's. For evaluations by TFMA, which process
examples one by one, `RowsCombiner` turns a statistic of this project into a combiner.

Sums are by part. A part is a slice, or the rows of a slice that are in one bootstrap group. A
resample of a slice is therefore a sum of parts, each multiplied by the number of times that the
resample draws it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2

from components.compat.tfma import Combiners, class_name, is_plain, weighs_examples
from components.evaluator.batched.slices import ModelRows, SliceMembership, UnsupportedInBatches
from trainer_module.compat.insides import Known, is_known

Sums = tuple[np.ndarray, ...]
"""The sums of a statistic, as arrays."""
Values = np.ndarray
"""The values of a metric in all resamples, [resamples]; NaN in resamples where it is undefined.

The AUC of a single class is undefined, but TFMA returns 0."""

THRESHOLDS = 10_000
"""The number of thresholds for areas under curves, as in TFMA."""
MAX_CURVE_CELLS = 250
"""The maximum number of cells of a curve. If there are more, neighbours are merged into cells of
about equal weight; the area then changes by less than 0.002, and equally in every resample."""

STATISTICS: dict[str, type[Statistic]] = {}
"""The statistics by `class_name` the type of TFMA's combiner."""

SomeStatistic = TypeVar("SomeStatistic", bound="type[Statistic]")


class Statistic(ABC):
    """The sums of a combiner, for many parts together."""

    known: ClassVar[Known] = {}
    """The TFMA code whose sums and options the statistic reproduces. If the installed TFMA has
    other code, TFMA measures. Empty for combiners of this project."""
    is_metric: ClassVar[bool] = False
    """Whether the combiner's outputs are metrics of the config, which `resampled` also returns."""
    derived: ClassVar[tuple[str, ...]] = ()
    """The class names of the metrics that TFMA derives from the combiner's output, and that
    `resampled` returns. Empty if `is_metric` is set."""

    def __init__(self, combiner: Any) -> None:
        self.combiner = combiner

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the statistic supports all options of the combiner."""
        return is_plain(combiner)

    @property
    def has_formulas(self) -> bool:
        """Whether `resampled` can compute the `derived` metrics from the sums."""
        return bool(self.derived)

    @abstractmethod
    def add(self, batch: ModelRows, members: SliceMembership) -> None:
        """Adds the rows of a batch."""

    @abstractmethod
    def merge(self, other: Any, numbers: np.ndarray, count: int) -> None:
        """Adds the sums of another statistic of the same combiner.

        Args:
          numbers: [parts of the other], the number of each of its parts here, or a negative number
            for a part that is left out.
          count: the number of parts here, including new parts.
        """

    @property
    @abstractmethod
    def sums(self) -> Sums:
        """The sums as arrays, for other processes."""

    @sums.setter
    @abstractmethod
    def sums(self, sums: Sums) -> None:
        """Replaces the sums by the sums of another statistic of the same combiner."""

    @abstractmethod
    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the combiner's output for the sum of some parts, by TFMA's keys."""

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the values of each metric in all resamples.

        If `is_metric` is set, the metrics have the order of the combiner's outputs, otherwise the
        order of `derived`.

        Args:
          parts: [parts], the numbers of the parts.
          counts: [resamples, parts] float64, the number of times that each part is drawn.
        """
        raise NotImplementedError

    def exact(self, parts: np.ndarray) -> list[float]:
        """Returns the same metrics without resampling: each part counts once."""
        return [float(one[0]) for one in self.resampled(parts, np.ones((1, len(parts))))]

    def weights(self, batch: ModelRows) -> np.ndarray:
        """Returns the weight of each row for the combiner: 1 if the combiner ignores weights.

        Raises:
          UnsupportedInBatches: it is unknown whether the combiner uses weights.
        """
        is_weighed = weighs_examples(self.combiner)
        if is_weighed is None:
            kind = type(self.combiner).__name__
            raise UnsupportedInBatches(f"{kind} does not declare its use of example weights")
        return batch.weights if is_weighed else np.ones(len(batch.weights))


def statistic_for(combiners: Combiners) -> Callable[[SomeStatistic], SomeStatistic]:
    """Returns a decorator that registers a statistic for combiners of TFMA."""

    def register(statistic: SomeStatistic) -> SomeStatistic:
        statistic.known = combiners.known
        STATISTICS.update(dict.fromkeys(combiners.names, statistic))
        return statistic

    return register


def find_statistic(combiner: Any) -> Statistic | None:
    """Returns an empty statistic for a combiner, or None if no statistic reproduces it."""
    kind = STATISTICS.get(class_name(type(combiner)))
    if isinstance(combiner, RowsCombiner):
        kind = combiner.kind
    if kind is None or not (_is_known(kind) and kind.supports(combiner)):
        return None
    return kind(combiner)


@cache
def _is_known(kind: type[Statistic]) -> bool:
    return is_known(kind.known, "measured by TFMA itself")


def pad(state: np.ndarray, parts: int) -> np.ndarray:
    """Returns a state [parts, ...] padded with zeros to a larger number of parts."""
    missing = parts - len(state)
    return state if missing <= 0 else np.pad(state, [(0, missing)] + [(0, 0)] * (state.ndim - 1))


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Returns one array divided by another, and NaN where the divisor is 0."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


class SumStatistic(Statistic):
    """Base of the statistics that have a few sums for each part, [parts, width]."""

    width: int
    """The number of sums of a part."""
    fields: ClassVar[tuple[str, ...]] = ()
    """The attributes of TFMA's accumulator that hold these sums."""

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        self.totals = np.zeros((0, self.width))

    @property
    def sums(self) -> Sums:
        """The totals by part."""
        return (self.totals,)

    @sums.setter
    def sums(self, sums: Sums) -> None:
        (self.totals,) = sums

    @abstractmethod
    def values(self, batch: ModelRows) -> np.ndarray:
        """Returns the values that each row adds, [rows, width]."""

    def add(self, batch: ModelRows, members: SliceMembership) -> None:
        """Adds the values of the rows, by part."""
        self.totals = pad(self.totals, members.count) + members.total(self.values(batch))

    def merge(self, other: SumStatistic, numbers: np.ndarray, count: int) -> None:
        """Adds the totals of the other statistic."""
        self.totals = pad(self.totals, count).copy()
        is_kept = numbers >= 0
        self.totals[numbers[is_kept]] += pad(other.totals, len(numbers))[is_kept]

    def accumulator(self, sums: np.ndarray) -> Any:
        """Returns the combiner's accumulator, filled with sums of shape [width]."""
        filled = self.combiner.create_accumulator()
        for name, value in zip(self.fields, sums.tolist(), strict=True):
            setattr(filled, name, value)
        return filled

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the result of the combiner's `extract_output`."""
        sums = self.totals[parts].sum(0)
        results: dict[Any, Any] = self.combiner.extract_output(self.accumulator(sums))
        return results


class MeanStatistic(SumStatistic):
    """Base of the statistics of means: pairs of a weighted sum of values and a sum of weights."""

    width = 2
    is_metric = True

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the means in all resamples."""
        sums = counts @ self.totals[parts]
        return [ratio(sums[:, column], sums[:, column + 1]) for column in range(0, self.width, 2)]


def weigh(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns two columns, [rows, 2] float64: the values times their weights, and the weights."""
    return np.stack([values.astype(np.float64) * weights, weights], axis=1)


class CellStatistic(Statistic):
    """Base of the statistics that have sums for many cells, of which each part uses only a few.

    The sums are a sparse array, [used cells, width]. A dense array of 10,000 cells for each of
    1,000 slices and their parts would take a gigabyte.
    """

    width: int
    cells: int
    """The number of cells of a part, or an upper bound of that number."""

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        self._sums: Sums = np.zeros(0, np.int64), np.zeros((0, self.width))
        self._waiting: list[Sums] = []
        self._starts: np.ndarray | None = None

    @property
    def sums(self) -> Sums:
        """The keys and the totals of the used cells: [used], ascending, and [used, width].

        A key is the number of the part times `cells`, plus the cell.
        """
        if self._waiting:
            self.sums = _sum_duplicates([self._sums, *self._waiting])
        return self._sums

    @sums.setter
    def sums(self, sums: Sums) -> None:
        self._sums, self._waiting, self._starts = sums, [], None

    @abstractmethod
    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cell of each row, [rows] int64, and the values that each row adds, [rows,
        width].

        A row with a negative cell is not counted.
        """

    def add(self, batch: ModelRows, members: SliceMembership) -> None:
        """Adds the rows to their cells."""
        cells, values = self.values(batch)
        is_counted = cells[members.rows] >= 0
        rows, parts = members.rows[is_counted], members.slices[is_counted]
        self._add(parts * self.cells + cells[rows], values[rows])

    def _add(self, keys: np.ndarray, values: np.ndarray) -> None:
        self._waiting.append(_sum_duplicates([(keys, values)]))
        # Cells are merged only if more cells wait than there are sums, so each cell is sorted only
        # a few times.
        if sum(len(waiting[0]) for waiting in self._waiting) > len(self._sums[0]):
            self.sums = _sum_duplicates([self._sums, *self._waiting])

    def merge(self, other: CellStatistic, numbers: np.ndarray, count: int) -> None:
        """Adds the cells of the other statistic."""
        del count
        keys, totals = other.sums
        parts, cells = np.divmod(keys, self.cells)
        is_kept = numbers[parts] >= 0
        self._add(numbers[parts[is_kept]] * self.cells + cells[is_kept], totals[is_kept])

    def used_cells(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the cells that some parts use.

        Returns:
          For each used cell: the index of its part in `parts`, [used]; the cell, [used]; and the
            totals, [used, width].
        """
        keys, totals = self.sums
        if self._starts is None:  # All slices use the same starts.
            count = int(keys[-1]) // self.cells + 1 if len(keys) else 0
            self._starts = np.searchsorted(keys, np.arange(count + 1) * self.cells)
        last = len(self._starts) - 1
        starts = self._starts[np.minimum(parts, last)]
        counts = self._starts[np.minimum(parts + 1, last)] - starts
        owners = np.repeat(np.arange(len(parts)), counts)
        positions = (
            starts[owners] + np.arange(len(owners)) - np.repeat(counts.cumsum() - counts, counts)
        )
        return owners, keys[positions] - parts[owners] * self.cells, totals[positions]

    def sum_cells(self, parts: np.ndarray) -> Sums:
        """Returns the cells that some parts use, [cells] ascending, and their sums, [cells,
        width].
        """
        _, cells, totals = self.used_cells(parts)
        return (cells, totals) if len(parts) == 1 else _sum_duplicates([(cells, totals)])

    def accumulator(self, cells: np.ndarray, sums: np.ndarray) -> Any:
        """Returns the combiner's accumulator, filled with the result of `sum_cells`."""
        raise NotImplementedError

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the result of the combiner's `extract_output`."""
        filled = self.accumulator(*self.sum_cells(parts))
        results: dict[Any, Any] = self.combiner.extract_output(filled)
        return results


def _sum_duplicates(parts: Sequence[Sums]) -> Sums:
    """Returns the distinct keys of cells, ascending, and their totals."""
    keys, inverse = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    values = np.concatenate([part[1] for part in parts])
    columns = [np.bincount(inverse, column, len(keys)) for column in values.T]
    return keys, np.stack(columns, axis=1)


def table(
    counts: np.ndarray, parts: np.ndarray, columns: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Returns the sums of each column in each resample, [resamples, columns].

    Args:
      counts: [resamples, parts], the number of times that each part is drawn.
      parts: [used], the index of each value's part.
      columns: [used], the column of each value, counted from 0.
      values: [used], the values to sum.
    """
    width = int(columns.max(initial=-1)) + 1
    dense = np.bincount(parts * width + columns, values, counts.shape[1] * width)
    dense = dense.reshape(counts.shape[1], width)
    if len(counts) == 1:
        return counts @ dense
    # For many resamples float32 is precise enough, and takes half the time.
    drawn = counts.astype(np.float32) @ dense.astype(np.float32)
    return drawn.astype(np.float64)


def merge_cells(cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Merges neighbouring cells of little weight, and returns the new number of each cell.

    The numbers begin at 0, and have the order of the cells.

    Args:
      cells: [used], possibly with duplicates.
      weights: [used], the weight in each cell.
    """
    distinct, inverse = np.unique(cells, return_inverse=True)
    if len(distinct) <= MAX_CURVE_CELLS:
        return inverse
    totals = np.bincount(inverse, weights)
    before = totals.cumsum() - totals
    columns = (before / max(totals.sum(), np.finfo(float).tiny) * MAX_CURVE_CELLS).astype(np.int64)
    return np.unique(columns, return_inverse=True)[1][inverse]


class RowsCombiner(beam.CombineFn):
    """A TFMA combiner for a statistic of this project, which adds one example after the other.

    The accumulator is the sums of the statistic.
    """

    def __init__(
        self,
        key: metric_types.MetricKey,
        eval_config: config_pb2.EvalConfig | None,
        kind: type[Statistic],
        metric: Any = None,
    ) -> None:
        """Creates a combiner for a statistic.

        Args:
          key: the key of the statistic's output; it also contains the model and the model's output.
          metric: the metric that computes the value of each row, or None if the statistic needs no
            metric.
        """
        super().__init__()
        self._key = key
        self._eval_config = eval_config
        self.kind = kind
        self.metric = metric

    @property
    def key(self) -> metric_types.MetricKey:
        """The key of the statistic's output."""
        return self._key

    def create_accumulator(self) -> Sums:
        """Returns the sums of an empty statistic."""
        return self._statistic().sums

    def add_input(self, accumulator: Sums, element: metric_types.StandardMetricInputs) -> Sums:
        """Adds the values of one example."""
        statistic = self._statistic(accumulator)
        for rows in self._rows(element):
            statistic.add(rows, SliceMembership.of_all(1))
        return statistic.sums

    def merge_accumulators(self, accumulators: Iterable[Sums]) -> Sums:
        """Returns the merged sums of several accumulators."""
        total = self._statistic()
        for accumulator in accumulators:
            total.merge(self._statistic(accumulator), np.array([0]), 1)
        return total.sums

    def extract_output(self, accumulator: Sums) -> dict[Any, Any]:
        """Returns the output of the statistic."""
        return self._statistic(self.merge_accumulators([accumulator])).output(np.array([0]))

    def _statistic(self, sums: Sums | None = None) -> Statistic:
        statistic = self.kind(self)
        if sums is not None:
            statistic.sums = sums
        return statistic

    def _rows(self, element: metric_types.StandardMetricInputs) -> Iterable[ModelRows]:
        quantiles = _quantiles(element, self._key.model_name)
        for label, predicted, weight in metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._eval_config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            example_weighted=self._key.example_weighted,
            flatten=False,
        ):
            yield ModelRows(
                label.reshape(1), predicted.reshape(1, -1), quantiles, weight.reshape(1)
            )


def _quantiles(element: metric_types.StandardMetricInputs, model_name: str) -> np.ndarray:
    """Returns the predicted quantiles of an example, [1, levels], or [1, 0] if there are none."""
    output = element.prediction
    if model_name:
        output = output[model_name]
    if not isinstance(output, Mapping) or "quantiles" not in output:
        return np.zeros((1, 0))
    return np.asarray(output["quantiles"], np.float64).reshape(1, -1)
