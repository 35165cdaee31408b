"""The importance of columns: how much worse a model predicts if the values of a column are permuted
(Breiman, "Random forests", 2001; Fisher, Rudin and Dominici, JMLR 20, 2019).
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from components.evaluator.explanation.prediction import ExplainedModel
from components.evaluator.explanation.record import Importance
from components.evaluator.explanation.sample import Sample
from trainer_module.errors import counted

_PLANS = ((2000, 5), (2000, 3), (1000, 3), (1000, 2), (500, 2), (250, 2))
"""The numbers of rows and of permutations, beginning with the most precise."""
_MAX_LISTED = 100
_PARTS = 8
"""The number of parts into which a group of columns is divided."""
_LEAK_SKILL, _LEAK_SHARE = 0.9, 0.97
"""The share of a constant's loss that a model with a suspected leak removes, and the share of this
gain that the column alone keeps. With 0.9 instead of 0.97, one of eight honest models of three
columns of unequal strength would be suspected."""


@dataclass
class Importances:
    """The importances of the columns of a model."""

    columns: list[Importance] = field(default_factory=list)
    """The importances, beginning with the largest. The names are those of requests."""
    suspected_leak: str | None = None
    leak_share: float = 0.0
    """The share of the model's gain that the suspected column alone keeps."""
    notes: list[str] = field(default_factory=list)


def measure_importances(
    model: ExplainedModel, sample: Sample, seconds: float, seed: int
) -> Importances:
    """Returns the permutation importances of the columns.

    Args:
      seconds: the time for the predictions. If all columns take longer, groups of columns are
        permuted first, and only the strongest columns are measured one by one.
    """
    names, notes = list(sample.columns), list[str]()
    capacity, stop = model.capacity(seconds), time.perf_counter() + 2 * seconds
    rows, repeats = next(
        (plan for plan in _PLANS if min(plan[0], len(sample)) * plan[1] * len(names) <= capacity),
        (_PLANS[-1][0], 0),
    )
    permuter = Permuter(model, sample.take(slice(rows)), seed)
    if not repeats:
        calls, repeats = capacity // permuter.rows, _PLANS[-1][1]
        strongest = _screen(permuter, names, calls // 2, stop) if calls >= 2 * _PARTS else []
        names = strongest[: calls // 2 // repeats]
        if not names:
            speed = f"{model.rows_per_second:,.0f} rows per second"
            return Importances(notes=[f"no importances: the model predicts only {speed}"])
        notes.append(
            f"{counted(len(sample.columns), 'column')} would take too long one by one: groups of "
            f"columns were permuted, and {counted(len(names), 'column')} of the strongest groups "
            "were measured"
        )
    measured = permuter.measure(names, repeats, stop)
    if len(measured) < len(names):
        notes.append(f"{len(measured)} of {len(names)} columns were measured: the time was over")
    total = sum(max(one.increase, 0) for one in measured) or 1.0
    ordered = sorted(measured, key=lambda one: -one.increase)
    for one in ordered:
        one.share = max(one.increase, 0) / total
    found = Importances(ordered[:_MAX_LISTED], notes=notes)
    if len(ordered) > _MAX_LISTED:
        notes.append(f"the {_MAX_LISTED} largest of {len(ordered):,} importances are listed")
    kept = permuter.kept_gain(ordered[0].column) if ordered else 0.0
    if kept >= _LEAK_SHARE:
        found.suspected_leak, found.leak_share = ordered[0].column, kept
    return found


class Permuter:
    """A model, rows, and the loss of each row without permutation."""

    def __init__(self, model: ExplainedModel, sample: Sample, seed: int) -> None:
        self._model, self._sample = model, sample
        self._random = np.random.default_rng(seed)
        self._losses = model.target.losses(sample.outputs, sample.labels)
        self._constant = model.target.constant_loss(sample.labels, sample.weights)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._sample)

    def donors(self) -> np.ndarray:
        """Returns a random row for each row, [rows]: no row twice, and no row for itself."""
        order, donors = self._random.permutation(self.rows), np.empty(self.rows, np.int64)
        donors[order] = np.roll(order, self._random.integers(1, max(self.rows, 2)))
        return donors

    def increases(self, groups: Sequence[Sequence[str]], donors: np.ndarray) -> np.ndarray:
        """Returns by how much the loss of each row increases, [groups, rows] float64.

        Args:
          groups: groups of columns that get the values of other rows.
          donors: the row with the values for each row, [groups, rows].
        """
        rows = np.tile(np.arange(self.rows), len(groups))
        moved = dict[str, np.ndarray]()
        for number, group in enumerate(groups):
            part = slice(number * self.rows, (number + 1) * self.rows)
            for name in group:
                if name not in moved:
                    moved[name] = rows.copy()
                moved[name][part] = donors[number]
        outputs = self._model.predict_mixed(self._sample.columns, moved, rows)
        losses = self._model.target.losses(outputs, self._sample.labels[rows])
        return np.asarray(losses.reshape(len(groups), self.rows) - self._losses)

    def mean_increases(self, groups: Sequence[Sequence[str]]) -> np.ndarray:
        """Returns the mean increase for groups of columns after one permutation, [groups]."""
        donors = np.broadcast_to(self.donors(), (len(groups), self.rows))
        return np.average(self.increases(groups, donors), axis=1, weights=self._sample.weights)

    def measure(self, names: Sequence[str], repeats: int, stop: float) -> list[Importance]:
        """Returns the importances of columns one by one, until the time is over.

        Args:
          repeats: the number of permutations of each column.
          stop: the time of `time.perf_counter` after which no further column is measured.
        """
        donors, measured = np.stack([self.donors() for _ in range(repeats)]), list[Importance]()
        together = max(1, self._model.batch_rows // (repeats * self.rows))
        for start in range(0, len(names), together):
            if time.perf_counter() > stop:
                break
            part = names[start : start + together]
            groups = [[name] for name in part for _ in range(repeats)]
            increases = self.increases(groups, np.tile(donors, (len(part), 1)))
            for name, one in zip(part, np.split(increases, len(part)), strict=True):
                mean, low, high = self._interval(one, donors)
                measured.append(Importance(column=name, increase=mean, low=low, high=high, share=0))
        return measured

    def _interval(self, increases: np.ndarray, donors: np.ndarray) -> tuple[float, float, float]:
        """Returns the mean increase and its bounds at 95 %.

        The mean is a U-statistic of pairs of rows. Its variance is that of a bootstrap over rows,
        in closed form: the sum of the squared influences of rows (Hoeffding, "A class of statistics
        with asymptotically normal distribution", 1948), each as receiver and as donor of values.
        The influences of rows of a unit are added first.

        Args:
          increases: the increases by permutation, [repeats, rows].
          donors: the donors by permutation, [repeats, rows].
        """
        weights = self._sample.weights / self._sample.weights.sum()
        mean = float(np.average(increases.mean(0), weights=weights))
        influence = weights * (increases - mean) / len(increases)
        total = influence.sum(0)
        for donor, of_pairs in zip(donors, influence, strict=True):
            total[donor] += of_pairs
        units = self._sample.units if len(np.unique(self._sample.units)) > 1 else None
        by_unit = total if units is None else np.bincount(units, total)
        count = len(by_unit) if units is None else len(np.unique(units))
        variance = float((by_unit**2).sum()) * count / max(count - 1, 1)
        half = float(stats.t.ppf(0.975, max(count - 1, 1))) * variance**0.5
        return mean, mean - half, mean + half

    def kept_gain(self, column: str) -> float:
        """Returns how much of its gain a model keeps if all other columns get the values of other
        rows.

        The gain is the loss of a constant prediction minus the loss of the model. The result is 0
        for an only column, and for a model that removes less than 90 % of the constant's loss.
        """
        others = [name for name in self._sample.columns if name != column]
        average = float(np.average(self._losses, weights=self._sample.weights))
        gain = self._constant - average
        if not others or gain <= 0 or gain < _LEAK_SKILL * self._constant:
            return 0.0
        return 1 - max(float(self.mean_increases([others])[0]), 0.0) / gain


def _screen(permuter: Permuter, names: Sequence[str], calls: int, stop: float) -> list[str]:
    """Returns single columns of the groups whose permutation increases the loss most.

    Args:
      calls: the maximum number of permutations.
      stop: the time of `time.perf_counter` at which the search ends.
    """
    waiting, singles, number = [(0.0, 0, list(names))], list[tuple[float, str]](), 0
    while waiting and calls > 0 and time.perf_counter() < stop:
        score, _, group = heapq.heappop(waiting)
        if len(group) == 1:
            singles.append((score, group[0]))
            continue
        cuts = np.linspace(0, len(group), min(_PARTS, len(group)) + 1).astype(np.int64)
        parts = [group[a:b] for a, b in itertools.pairwise(cuts)]
        for part, increase in zip(parts, permuter.mean_increases(parts), strict=True):
            number += 1
            if increase > 0:
                heapq.heappush(waiting, (-float(increase), number, part))
        calls -= len(parts)
    singles += [(score, group[0]) for score, _, group in waiting if len(group) == 1]
    return [name for _, name in sorted(singles)]
