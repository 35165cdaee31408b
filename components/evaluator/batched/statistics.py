"""What metrics are made of: numbers that rows come to and that add up, for many slices at once.

A statistic of TFMA's accumulates what the combiner of a computation would have accumulated over the
same examples. At the end it fills an accumulator of the combiner's own, whose `extract_output` and
the computations that follow from it stay TFMA's: values and formats are the same. A statistic of
ours is itself the combiner, by `RowsCombiner`, where TFMA goes through examples one by one.

Rows are added up by parts: a slice, or those of its rows that are in one group of the bootstrap. A
resample of a slice then is a sum of parts, each as often as it was drawn.
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

from components.compat.tfma import Combiners, is_plain, name_of, weighs_examples
from components.evaluator.batched.slices import Members, ModelRows, NotByBatches
from trainer_module.compat.insides import Known, is_known

Sums = tuple[np.ndarray, ...]
"""What a statistic has added up."""
Values = np.ndarray
"""[resamples] a metric of each; NaN wherever it is undefined, such as the AUC of one class, which
TFMA says is 0."""

THRESHOLDS = 10_000
"""Of TFMA's areas under curves, and of those that we add."""
MOST_CELLS = 250
"""Into so many of about equal weight are the cells of a curve joined: its area then moves by less
than 0.002, alike in every resample."""

STATISTICS: dict[str, type[Statistic]] = {}
"""By what `name_of` calls the type of TFMA's combiner."""

SomeStatistic = TypeVar("SomeStatistic", bound="type[Statistic]")


class Statistic(ABC):
    """Adds up for many parts at once what a combiner adds up for one."""

    known: ClassVar[Known] = {}
    """The code of TFMA's whose sums and options it reproduces: with other code TFMA measures
    itself. None of a combiner of ours."""
    is_metric: ClassVar[bool] = False
    """Whether what the combiner gives is what people asked for, and `resampled` gives it too."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Else the classes of the metrics that TFMA derives from it and `resampled` gives."""

    def __init__(self, combiner: Any) -> None:
        self.combiner = combiner

    @classmethod
    def suits(cls, combiner: Any) -> bool:
        """Returns whether the combiner has no options that this statistic does not know."""
        return is_plain(combiner)

    @property
    def has_formulas(self) -> bool:
        """Whether it counts by the thresholds that the `derived` metrics have."""
        return bool(self.derived)

    @abstractmethod
    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the rows of a batch."""

    @abstractmethod
    def merge(self, other: Any, places: np.ndarray, count: int) -> None:
        """Adds what another statistic of the same combiner has added up.

        Args:
          other: the other one.
          places: [parts of the other], the number that each of its parts has here; below 0 of those
            that are left out.
          count: parts that there are here, with those of the other.
        """

    @property
    @abstractmethod
    def sums(self) -> Sums:
        """What has been added up, as arrays: what other processes are sent."""

    @sums.setter
    @abstractmethod
    def sums(self, sums: Sums) -> None:
        """Goes on from what another statistic of the same combiner has added up."""

    @abstractmethod
    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """What the combiner gives for some parts together, by TFMA's keys."""

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the metrics of resamples, as the attributes above say.

        Args:
          parts: [parts], their numbers.
          counts: [resamples, parts] float64, how often each was drawn.
        """
        raise NotImplementedError

    def exact(self, parts: np.ndarray) -> list[float]:
        """Returns the same metrics of the parts as they are."""
        return [float(one[0]) for one in self.resampled(parts, np.ones((1, len(parts))))]

    def weights(self, batch: ModelRows) -> np.ndarray:
        """What each row counts for the combiner: 1, unless it is for weighed examples.

        Raises:
          NotByBatches: the combiner does not say which of both.
        """
        is_weighed = weighs_examples(self.combiner)
        if is_weighed is None:
            kind = type(self.combiner).__name__
            raise NotByBatches(f"whether a {kind} weighs examples is not known")
        return batch.weights if is_weighed else np.ones(len(batch.weights))


def statistic_for(combiners: Combiners) -> Callable[[SomeStatistic], SomeStatistic]:
    """Registers a statistic for combiners of TFMA's."""

    def register(statistic: SomeStatistic) -> SomeStatistic:
        statistic.known = combiners.known
        STATISTICS.update(dict.fromkeys(combiners.names, statistic))
        return statistic

    return register


def find_statistic(combiner: Any) -> Statistic | None:
    """Returns an empty statistic for a combiner; None where none does what the combiner does."""
    kind = STATISTICS.get(name_of(type(combiner)))
    if isinstance(combiner, RowsCombiner):
        kind = combiner.kind
    if kind is None or not (_is_known(kind) and kind.suits(combiner)):
        return None
    return kind(combiner)


@cache
def _is_known(kind: type[Statistic]) -> bool:
    return is_known(kind.known, "measured by TFMA itself")


def padded(state: np.ndarray, parts: int) -> np.ndarray:
    """Returns a state [parts, ...] with room for more parts, which are 0."""
    missing = parts - len(state)
    return state if missing <= 0 else np.pad(state, [(0, missing)] + [(0, 0)] * (state.ndim - 1))


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """One by the other; NaN where nothing is below."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


class SumStatistic(Statistic):
    """Base of those whose state is a few numbers that add up, [parts, width]."""

    width: int
    fields: ClassVar[tuple[str, ...]] = ()
    """What TFMA's accumulator calls these numbers."""

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
        """What each row adds, [rows, width]."""

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the values of the rows, by part."""
        self.totals = padded(self.totals, members.count) + members.total(self.values(batch))

    def merge(self, other: SumStatistic, places: np.ndarray, count: int) -> None:
        """Adds the totals of the other one."""
        self.totals = padded(self.totals, count).copy()
        kept = places >= 0
        self.totals[places[kept]] += padded(other.totals, len(places))[kept]

    def accumulator(self, sums: np.ndarray) -> Any:
        """What the combiner would have accumulated, of [width] sums."""
        filled = self.combiner.create_accumulator()
        for name, value in zip(self.fields, sums.tolist(), strict=True):
            setattr(filled, name, value)
        return filled

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """By the combiner's `extract_output`."""
        sums = self.totals[parts].sum(0)
        found: dict[Any, Any] = self.combiner.extract_output(self.accumulator(sums))
        return found


class MeanStatistic(SumStatistic):
    """Base of those whose state is values times weights, each beside the weights it is of."""

    width = 2
    is_metric = True

    def resampled(self, parts: np.ndarray, counts: np.ndarray) -> list[Values]:
        """Returns the means of each resample."""
        sums = counts @ self.totals[parts]
        return [ratio(sums[:, at], sums[:, at + 1]) for at in range(0, self.width, 2)]


def weighed(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values, [rows], times their weights, beside the weights: [rows, 2] float64."""
    return np.stack([values.astype(np.float64) * weights, weights], axis=1)


class CellStatistic(Statistic):
    """Base of those that count in many cells of which a part has few: [cells used, width].

    A slice is all of 10,000 buckets wide; of 1,000 slices that would be a gigabyte.
    """

    width: int
    cells: int
    """The number of a part's cells, at least."""

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        self._sums: Sums = np.zeros(0, np.int64), np.zeros((0, self.width))
        self._waiting: list[Sums] = []
        self._starts: np.ndarray | None = None

    @property
    def sums(self) -> Sums:
        """[cells used] part times `cells` plus cell, ascending, and [cells used, width] totals."""
        if self._waiting:
            self.sums = _added_up([self._sums, *self._waiting])
        return self._sums

    @sums.setter
    def sums(self, sums: Sums) -> None:
        self._sums, self._waiting, self._starts = sums, [], None

    @abstractmethod
    def values(self, batch: ModelRows) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cell of each row, [rows] int64, below 0 of none; and what it adds, [rows,
        width].
        """

    def add(self, batch: ModelRows, members: Members) -> None:
        """Adds the rows to their cells."""
        cells, values = self.values(batch)
        counted = cells[members.rows] >= 0
        rows, parts = members.rows[counted], members.slices[counted]
        self._add(parts * self.cells + cells[rows], values[rows])

    def _add(self, places: np.ndarray, values: np.ndarray) -> None:
        self._waiting.append(_added_up([(places, values)]))
        # Merged once they are as many: so each cell is sorted a few times, however many batches.
        if sum(len(waiting[0]) for waiting in self._waiting) > len(self._sums[0]):
            self.sums = _added_up([self._sums, *self._waiting])

    def merge(self, other: CellStatistic, places: np.ndarray, count: int) -> None:
        """Adds the cells of the other one."""
        del count
        where, totals = other.sums
        parts, cells = np.divmod(where, self.cells)
        kept = places[parts] >= 0
        self._add(places[parts[kept]] * self.cells + cells[kept], totals[kept])

    def used(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the cells that some parts have used.

        Returns:
          [used] places in `parts`, [used] cells, and their totals, [used, width].
        """
        where, totals = self.sums
        if self._starts is None:  # Found once for all slices.
            count = int(where[-1]) // self.cells + 1 if len(where) else 0
            self._starts = np.searchsorted(where, np.arange(count + 1) * self.cells)
        last = len(self._starts) - 1
        starts = self._starts[np.minimum(parts, last)]
        counts = self._starts[np.minimum(parts + 1, last)] - starts
        of = np.repeat(np.arange(len(parts)), counts)
        places = starts[of] + np.arange(len(of)) - np.repeat(counts.cumsum() - counts, counts)
        return of, where[places] - parts[of] * self.cells, totals[places]

    def together(self, parts: np.ndarray) -> Sums:
        """Returns the cells of some parts together, [cells] ascending, and their sums, [cells,
        width].
        """
        _, cells, totals = self.used(parts)
        return (cells, totals) if len(parts) == 1 else _added_up([(cells, totals)])

    def accumulator(self, cells: np.ndarray, sums: np.ndarray) -> Any:
        """What the combiner would have accumulated, of what `together` gives."""
        raise NotImplementedError

    def output(self, parts: np.ndarray) -> dict[Any, Any]:
        """By the combiner's `extract_output`."""
        filled = self.accumulator(*self.together(parts))
        found: dict[Any, Any] = self.combiner.extract_output(filled)
        return found


def _added_up(parts: Sequence[Sums]) -> Sums:
    """Cells and their totals, each cell once and in ascending order."""
    places, where = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    values = np.concatenate([part[1] for part in parts])
    columns = [np.bincount(where, column, len(places)) for column in values.T]
    return places, np.stack(columns, axis=1)


def table(
    counts: np.ndarray, parts: np.ndarray, columns: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Values of parts added up by columns in each resample, [resamples, columns].

    Args:
      counts: [resamples, parts].
      parts: [used] places among them.
      columns: [used], from 0.
      values: [used].
    """
    width = int(columns.max(initial=-1)) + 1
    dense = np.bincount(parts * width + columns, values, counts.shape[1] * width)
    dense = dense.reshape(counts.shape[1], width)
    if len(counts) == 1:
        return counts @ dense
    # Of many resamples seven digits are enough, and take half the time.
    drawn = counts.astype(np.float32) @ dense.astype(np.float32)
    return drawn.astype(np.float64)


def joined_cells(cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Numbers of cells from 0, in their order; neighbours of little weight have the same.

    Args:
      cells: [used], some of which are the same.
      weights: [used], what is in each.
    """
    distinct, where = np.unique(cells, return_inverse=True)
    if len(distinct) <= MOST_CELLS:
        return where
    totals = np.bincount(where, weights)
    before = totals.cumsum() - totals
    places = (before / max(totals.sum(), np.finfo(float).tiny) * MOST_CELLS).astype(np.int64)
    return np.unique(places, return_inverse=True)[1][where]


class RowsCombiner(beam.CombineFn):
    """A statistic of ours as TFMA takes it, example by example; the accumulator is its sums."""

    def __init__(
        self,
        key: metric_types.MetricKey,
        eval_config: config_pb2.EvalConfig | None,
        kind: type[Statistic],
        metric: Any = None,
    ) -> None:
        """Reads the model and the output of the key, by weights if that says so.

        Args:
          key: of what the statistic gives.
          eval_config: TFMA's.
          kind: of the statistic.
          metric: what it may ask how to add rows up.
        """
        super().__init__()
        self._key = key
        self._eval_config = eval_config
        self.kind = kind
        self.metric = metric

    @property
    def key(self) -> metric_types.MetricKey:
        """The key of what the statistic gives."""
        return self._key

    def create_accumulator(self) -> Sums:
        """Returns the sums of no examples."""
        return self._statistic().sums

    def add_input(self, accumulator: Sums, element: metric_types.StandardMetricInputs) -> Sums:
        """Adds what an example comes to."""
        statistic = self._statistic(accumulator)
        for rows in self._rows(element):
            statistic.add(rows, Members.of_all(1))
        return statistic.sums

    def merge_accumulators(self, accumulators: Iterable[Sums]) -> Sums:
        """Returns the sums of several together."""
        total = self._statistic()
        for accumulator in accumulators:
            total.merge(self._statistic(accumulator), np.array([0]), 1)
        return total.sums

    def extract_output(self, accumulator: Sums) -> dict[Any, Any]:
        """What the statistic gives."""
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
    """What the signature of evaluation gives beside its predictions; of models that have some."""
    output = element.prediction
    if model_name:
        output = output[model_name]
    if not isinstance(output, Mapping) or "quantiles" not in output:
        return np.zeros((1, 0))
    return np.asarray(output["quantiles"], np.float64).reshape(1, -1)
