"""The choice between settings of an ensemble's members, by unseen examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainer_module.families.supervised.ensemble.weights import (
    Labels,
    common_rows,
    greedy,
    mean,
    standard_error,
)

FINALISTS = 3
"""The number of candidates of a member, best by their own loss, that compete with the first."""

BLOCKS = 5
"""The number of blocks of examples; a choice is judged on each block by the other blocks."""

Candidates = Mapping[str, Sequence[np.ndarray]]
"""The predictions of unseen examples, [examples, units], by member and candidate. The first
candidate of a member has the settings of the config."""

Choice = dict[str, int]
"""The index of the chosen candidate by member."""

Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A function of the examples that determine a choice, and of examples to predict by this choice
(indices): it returns the outputs of the latter, [examples, units]."""


@dataclass(frozen=True)
class Judge:
    """The examples by which candidates are compared."""

    labels: Labels
    """The labels of all examples."""
    units: np.ndarray
    """The number of each example's group or time, or of the example itself: [examples] int. No
    block has a part of a unit."""
    is_ordered: bool = False
    """Whether units are times; blocks are then successive times."""

    def is_better(self, rows: np.ndarray, other: Predict, than: Predict) -> bool:
        """Returns whether a choice lowers the loss of examples by more than its standard error.

        Each block is predicted by the choice that the other blocks determine.

        Args:
          rows: the indices of the examples.
          other: the choice.
          than: the choice to compare with.
        """
        if not len(rows):
            return False
        _, units = np.unique(self.units[rows], return_inverse=True)
        count = int(units.max()) + 1
        if count < BLOCKS:
            return False
        blocks = units * BLOCKS // count if self.is_ordered else units % BLOCKS
        gains = np.zeros(len(rows))
        for block in range(BLOCKS):
            fitted, judged = rows[blocks != block], rows[blocks == block]
            labels = self.labels.only(judged)
            losses = [labels.losses(predict(fitted, judged)) for predict in (than, other)]
            gains[blocks == block] = losses[0] - losses[1]
        weight = self.labels.only(rows).weight
        return bool(np.average(gains, weights=weight) > standard_error(gains, weight, units))


def choose_candidates(candidates: Candidates, judge: Judge, network: str) -> Choice:
    """Returns the candidate of each member with which the ensemble is the best on unseen examples.

    The first candidates are kept unless others lower the loss by more than its standard error, on
    examples that have not determined the choice. The members except for the network are chosen
    first; then the network, by its mean with the others.

    Args:
      candidates: the candidates of each member. All have predicted the same examples, except for
        those of the network.
      judge: the examples.
      network: the name of the member that has fewer unseen examples; it may be absent.
    """
    others = {name: values for name, values in candidates.items() if name != network}
    choice = _choose_others(others, judge) if others else {}
    if network not in candidates:
        return choice
    networks = candidates[network]
    if others:
        chosen = _select(others, choice)
        blended = mean(chosen, greedy(chosen, judge.labels))
        networks = [(values + blended) / 2 for values in networks]
    return {**choice, network: _choose_network(networks, judge)}


def _choose_others(candidates: Candidates, judge: Judge) -> Choice:
    untuned = dict.fromkeys(candidates, 0)

    def predict(choice: Choice, fitted: np.ndarray, judged: np.ndarray) -> np.ndarray:
        chosen = _select(candidates, choice)
        weights = greedy(_rows_of(chosen, fitted), judge.labels.only(fitted))
        return mean(_rows_of(chosen, judged), weights)

    def tuned(fitted: np.ndarray, judged: np.ndarray) -> np.ndarray:
        return predict(_heaviest(candidates, judge.labels, fitted), fitted, judged)

    def before(fitted: np.ndarray, judged: np.ndarray) -> np.ndarray:
        return predict(untuned, fitted, judged)

    rows = common_rows(_select(candidates, untuned))
    if not judge.is_better(rows, tuned, before):
        return untuned
    return _heaviest(candidates, judge.labels, rows)


def _heaviest(candidates: Candidates, labels: Labels, rows: np.ndarray) -> Choice:
    """Returns the candidate of each member that has the largest weight among all candidates."""
    labels = labels.only(rows)
    found: dict[str, np.ndarray] = {}
    for name, values in candidates.items():
        losses = [labels.loss(one[rows]) for one in values[1:]]
        best = np.argsort(losses, kind="stable")[:FINALISTS] + 1
        found |= {f"{index} {name}": values[index][rows] for index in (0, *best)}
    weights = greedy(found, labels)
    choice = {}
    for name, values in candidates.items():
        own = [weights.get(f"{index} {name}", 0.0) for index in range(len(values))]
        choice[name] = int(np.argmax(own))
    return choice


def _choose_network(networks: Sequence[np.ndarray], judge: Judge) -> int:
    def best(rows: np.ndarray) -> int:
        labels = judge.labels.only(rows)
        return int(np.argmin([labels.loss(values[rows]) for values in networks]))

    rows = common_rows({"": networks[0]})
    is_better = judge.is_better(
        rows,
        lambda fitted, judged: networks[best(fitted)][judged],
        lambda _, judged: networks[0][judged],
    )
    return best(rows) if is_better else 0


def _select(candidates: Candidates, choice: Choice) -> dict[str, np.ndarray]:
    return {name: candidates[name][index] for name, index in choice.items()}


def _rows_of(outputs: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in outputs.items()}
