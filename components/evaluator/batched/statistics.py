"""Statistics that metrics are computed from: sums over rows, for many slices at once.

A statistic of a TFMA combiner accumulates the sums that the combiner would accumulate over the same
examples. At the end it fills the combiner's own accumulator; `extract_output` and the derived
computations stay TFMA's, so that values and formats are the same. A statistic of our own becomes a
combiner through `RowsCombiner`, where TFMA processes examples one by one.

Rows are added up by parts: a part is a slice, or the rows of a slice that are in one bootstrap
group. A resample of a slice is then a sum of parts, each multiplied by the number of times that it
was drawn.
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
"""A metric of each resample, [resamples]; NaN where it is undefined, such as the AUC of one class,
for which TFMA returns 0."""

THRESHOLDS = 10_000
"""The number of thresholds of TFMA's areas under curves, and of our own."""
MOST_CELLS = 250
"""The number of cells of about equal weight into which the cells of a curve are joined. Its area
changes by less than 0.002, and alike in every resample."""

STATISTICS: dict[str, type[Statistic]] = {}
"""The statistics by `class_name` the type of TFMA's combiner."""

SomeStatistic = TypeVar("SomeStatistic", bound="type[Statistic]")


class Statistic(ABC):
    """Sums for many parts at once that a combiner accumulates for one."""

    known: ClassVar[Known] = {}
    """The TFMA code whose sums and options the statistic reproduces; if TFMA's code differs, TFMA
    measures. Empty for our own combiners."""
    is_metric: ClassVar[bool] = False
    """Whether the combiner's outputs are metrics of the config; `resampled` returns them too."""
    derived: ClassVar[tuple[str, ...]] = ()
    """The classes of the metrics that TFMA derives from the combiner's output and that `resampled`
    returns, where `is_metric` is False."""

    def __init__(self, combiner: Any) -> None:
        self.combiner = combiner

    @classmethod
    def supports(cls, combiner: Any) -> bool:
        """Returns whether the combiner has only options that this statistic supports."""
        return is_plain(combiner)

    @property
    def has_formulas(self) -> bool:
        """Whether the statistic counts by the thresholds that the `derived` metrics use."""
        return bool(self.derived)

    @abstractmethod
    def add(self, batch: ModelRows, members: SliceMembership) -> None:
        """Adds the rows of a batch."""

    @abstractmethod
    def merge(self, other: Any, places: np.ndarray, count: int) -> None:
        """Adds the sums of another statistic of the same combiner.

        Args:
          other: the other statistic.
          places: [parts of the other], the number of each of its parts here; below 0 for parts that
            are left out.
          count: the number of parts here, including those of the other.
        """

    @property
    @abstractmethod
    def sums(self) -> Sums:
        """The sums as arrays, which are sent to other processes."""

    @sums.setter
    @abstractmethod
    def sums(self, sums: Sums) -> None:
        """Replaces the sums by those of another statistic of the same combiner."""

    @abstractmethod
    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the combiner's output for the sum of some parts, by TFMA's keys."""

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the metrics of resamples, in the order that `is_metric` or `derived` defines.

        Args:
          parts: [parts], the numbers of the parts.
          counts: [resamples, parts] float64, the number of times that each part was drawn.
        """
        raise NotImplementedError

    def exact(self, parts: np.ndarray) -> list[float]:
        """Returns the same metrics of the parts without resampling."""
        return [float(one[0]) for one in self.resampled(parts, np.ones((1, len(parts))))]

    def weights(self, batch: ModelRows) -> np.ndarray:
        """Returns the weight of each row for the combiner: 1, unless the combiner weighs examples.

        Raises:
          UnsupportedInBatches: the combiner does not define whether it weighs examples.
        """
        is_weighed = weighs_examples(self.combiner)
        if is_weighed is None:
            kind = type(self.combiner).__name__
            raise UnsupportedInBatches(f"{kind} does not declare its use of example weights")
        return batch.weights if is_weighed else np.ones(len(batch.weights))


def statistic_for(combiners: Combiners) -> Callable[[SomeStatistic], SomeStatistic]:
    """Registers a statistic for combiners of TFMA."""

    def register(statistic: SomeStatistic) -> SomeStatistic:
        statistic.known = combiners.known
        STATISTICS.update(dict.fromkeys(combiners.names, statistic))
        return statistic

    return register


def find_statistic(combiner: Any) -> Statistic | None:
    """Returns an empty statistic for a combiner; None if no statistic reproduces the combiner."""
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
    """Returns one array divided by another; NaN where the divisor is 0."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


class SumStatistic(Statistic):
    """Base of the statistics whose state is a few sums, [parts, width]."""

    width: int
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

    def merge(self, other: SumStatistic, places: np.ndarray, count: int) -> None:
        """Adds the totals of the other statistic."""
        self.totals = pad(self.totals, count).copy()
        kept = places >= 0
        self.totals[places[kept]] += pad(other.totals, len(places))[kept]

    def accumulator(self, sums: np.ndarray) -> Any:
        """Returns the combiner's accumulator for sums of shape [width]."""
        filled = self.combiner.create_accumulator()
        for name, value in zip(self.fields, sums.tolist(), strict=True):
            setattr(filled, name, value)
        return filled

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the result of the combiner's `extract_output`."""
        sums = self.totals[parts].sum(0)
        found: dict[Any, Any] = self.combiner.extract_output(self.accumulator(sums))
        return found


class MeanStatistic(SumStatistic):
    """Base of the statistics whose state is values times weights, each beside its weights."""

    width = 2
    is_metric = True

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the means of each resample."""
        sums = counts @ self.totals[parts]
        return [ratio(sums[:, at], sums[:, at + 1]) for at in range(0, self.width, 2)]


def weigh(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns values, [rows], times their weights, beside the weights: [rows, 2] float64."""
    return np.stack([values.astype(np.float64) * weights, weights], axis=1)


class CellStatistic(Statistic):
    """Base of the statistics that count in many cells of which each part uses few: [cells used,
    width].

    A dense array would have 10,000 buckets for each slice: a gigabyte for 1,000 slices.
    """

    width: int
    cells: int
    """The number of cells of a part, or an upper bound of it."""

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        self._sums: Sums = np.zeros(0, np.int64), np.zeros((0, self.width))
        self._waiting: list[Sums] = []
        self._starts: np.ndarray | None = None

    @property
    def sums(self) -> Sums:
        """[cells used] part times `cells` plus cell, ascending, and [cells used, width] totals."""
        if self._waiting:
            self.sums = _sum_duplicates([self._sums, *self._waiting])
        return self._sums

    @sums.setter
    def sums(self, sums: Sums) -> None:
        self._sums, self._waiting, self._starts = sums, [], None

    @abstractmethod
    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cell of each row, [rows] int64, below 0 for none; and the values that each
        row adds, [rows, width].
        """

    def add(self, batch: ModelRows, members: SliceMembership) -> None:
        """Adds the rows to their cells."""
        cells, values = self.values(batch)
        counted = cells[members.rows] >= 0
        rows, parts = members.rows[counted], members.slices[counted]
        self._add(parts * self.cells + cells[rows], values[rows])

    def _add(self, places: np.ndarray, values: np.ndarray) -> None:
        self._waiting.append(_sum_duplicates([(places, values)]))
        # Merging only once they outnumber the sums sorts each cell only a few times.
        if sum(len(waiting[0]) for waiting in self._waiting) > len(self._sums[0]):
            self.sums = _sum_duplicates([self._sums, *self._waiting])

    def merge(self, other: CellStatistic, places: np.ndarray, count: int) -> None:
        """Adds the cells of the other statistic."""
        del count
        where, totals = other.sums
        parts, cells = np.divmod(where, self.cells)
        kept = places[parts] >= 0
        self._add(places[parts[kept]] * self.cells + cells[kept], totals[kept])

    def cells_of(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the cells that some parts use.

        Returns:
          [used] places in `parts`, [used] cells, and their totals, [used, width].
        """
        where, totals = self.sums
        if self._starts is None:  # Computed once for all slices.
            count = int(where[-1]) // self.cells + 1 if len(where) else 0
            self._starts = np.searchsorted(where, np.arange(count + 1) * self.cells)
        last = len(self._starts) - 1
        starts = self._starts[np.minimum(parts, last)]
        counts = self._starts[np.minimum(parts + 1, last)] - starts
        of = np.repeat(np.arange(len(parts)), counts)
        places = starts[of] + np.arange(len(of)) - np.repeat(counts.cumsum() - counts, counts)
        return of, where[places] - parts[of] * self.cells, totals[places]

    def sum_cells(self, parts: np.ndarray) -> Sums:
        """Returns the cells of the sum of some parts, [cells] ascending, and their sums, [cells,
        width].
        """
        _, cells, totals = self.cells_of(parts)
        return (cells, totals) if len(parts) == 1 else _sum_duplicates([(cells, totals)])

    def accumulator(self, cells: np.ndarray, sums: np.ndarray) -> Any:
        """Returns the combiner's accumulator for the cells and sums that `together` returns."""
        raise NotImplementedError

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """Returns the result of the combiner's `extract_output`."""
        filled = self.accumulator(*self.sum_cells(parts))
        found: dict[Any, Any] = self.combiner.extract_output(filled)
        return found


def _sum_duplicates(parts: Sequence[Sums]) -> Sums:
    """Returns cells and their totals, each cell once and in ascending order."""
    places, where = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    values = np.concatenate([part[1] for part in parts])
    columns = [np.bincount(where, column, len(places)) for column in values.T]
    return places, np.stack(columns, axis=1)


def table(
    counts: np.ndarray, parts: np.ndarray, columns: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Returns the values of parts, summed by columns in each resample, [resamples, columns].

    Args:
      counts: [resamples, parts].
      parts: [used], places among the parts.
      columns: [used], from 0.
      values: [used].
    """
    width = int(columns.max(initial=-1)) + 1
    dense = np.bincount(parts * width + columns, values, counts.shape[1] * width)
    dense = dense.reshape(counts.shape[1], width)
    if len(counts) == 1:
        return counts @ dense
    # For many resamples seven digits are enough, and take half the time.
    drawn = counts.astype(np.float32) @ dense.astype(np.float32)
    return drawn.astype(np.float64)


def merge_cells(cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the cells renumbered from 0 in their order; neighbours of little weight share a
    number.

    Args:
      cells: [used], possibly with duplicates.
      weights: [used], the weight in each cell.
    """
    distinct, where = np.unique(cells, return_inverse=True)
    if len(distinct) <= MOST_CELLS:
        return where
    totals = np.bincount(where, weights)
    before = totals.cumsum() - totals
    places = (before / max(totals.sum(), np.finfo(float).tiny) * MOST_CELLS).astype(np.int64)
    return np.unique(places, return_inverse=True)[1][where]


class RowsCombiner(beam.CombineFn):
    """A TFMA combiner for a statistic of our own, example by example; its accumulator is the
    sums.
    """

    def __init__(
        self,
        key: metric_types.MetricKey,
        eval_config: config_pb2.EvalConfig | None,
        kind: type[Statistic],
        metric: Any = None,
    ) -> None:
        """Creates the combiner for the model, the output and the weighting of a key.

        Args:
          key: the key of the statistic's output.
          eval_config: TFMA's config.
          kind: the class of the statistic.
          metric: the metric that defines the value of each row, if the statistic needs one.
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
        """Returns the sums of no examples."""
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
    """Returns the quantiles in the evaluation signature's output, [1, levels]; no levels if it has
    none.
    """
    output = element.prediction
    if model_name:
        output = output[model_name]
    if not isinstance(output, Mapping) or "quantiles" not in output:
        return np.zeros((1, 0))
    return np.asarray(output["quantiles"], np.float64).reshape(1, -1)
