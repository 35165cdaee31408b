"""Transitions that are remembered, drawn evenly or by how wrong the last answer was, in NumPy.

Each row of the ring is one step of all environments side by side, so that the steps that follow a
transition in its own episode lie in the rows after it: what n steps come to is added up when it is
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainer_module.families.control.environments import Steps

_SMALLEST = 1e-6
"""Added to an error: what was answered well comes up again, too."""


class SumTree:
    """Numbers of which any can be changed, and drawn by their size, in a logarithm of their count.

    A binary tree in an array: node i holds the sum of nodes 2i and 2i + 1, and the numbers are its
    leaves (Schaul et al., 2016, appendix B.2.1). All of it takes arrays.
    """

    def __init__(self, size: int) -> None:
        """Takes how many numbers there are; all are 0."""
        self._first = 1 << max(0, size - 1).bit_length()
        self._sums = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all."""
        return float(self._sums[1])

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """Returns the numbers at some places, [n]."""
        return self._sums[self._first + places]

    def __setitem__(self, places: np.ndarray, values: np.ndarray | float) -> None:
        """Changes the numbers at some places, [n]."""
        nodes = self._first + np.asarray(places)
        self._sums[nodes] = values
        while nodes.size and nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def find(self, sums: np.ndarray) -> np.ndarray:
        """Returns the places at which the sum of the numbers before exceeds some sums, [n] int64.

        Args:
          sums: 0 <= each < `total`.
        """
        nodes, sums = np.ones(len(sums), np.int64), np.array(sums, np.float64)
        while nodes.size and nodes[0] < self._first:
            left = 2 * nodes
            below = self._sums[left]
            # Rounding may lead to a sum that is not quite there: never into what is empty.
            goes_right = (sums >= below) & (self._sums[left + 1] > 0)
            sums = np.where(goes_right, sums - below, sums)
            nodes = left + goes_right
        return nodes - self._first


@dataclass(frozen=True)
class Batch:
    """Transitions over n steps or fewer, [n, ...] each."""

    places: np.ndarray
    """In the replay, for `Replay.update`."""
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    """The discounted sum of the rewards of the steps."""
    next_observations: np.ndarray
    """After the last of the steps."""
    discounts: np.ndarray
    """Of the value of what follows: 0 where the episode has ended, not where it was cut off."""
    weights: np.ndarray
    """How much each counts in the loss, 0..1."""


class Replay:
    """A ring of steps; a transition can be drawn once the steps after it are there, too."""

    def __init__(
        self,
        rows: int,
        streams: int,
        width: int,
        *,
        n_step: int,
        discount: float,
        alpha: float | None = None,
    ) -> None:
        """Makes room.

        Args:
          rows: steps that are remembered, above `n_step`.
          streams: environments that take each step.
          width: numbers of an observation.
          n_step: steps that a target adds up.
          discount: of a reward that comes a step later.
          alpha: the power of an error that transitions are drawn by; None draws them evenly.
        """
        self._rows, self._streams = max(rows, n_step + 1), streams
        self._n_step, self._discount, self._alpha = n_step, discount, alpha
        shape = (self._rows, streams)
        self._observations = np.zeros((*shape, width), np.float32)
        self._next_observations = np.zeros((*shape, width), np.float32)
        self._actions = np.zeros(shape, np.int32)
        self._rewards = np.zeros(shape, np.float32)
        self._terminated = np.zeros(shape, bool)
        self._truncated = np.zeros(shape, bool)
        self._written = 0
        self._tree = None if alpha is None else SumTree(self._rows * streams)
        self._highest = 1.0
        """Of the priorities so far: what has not been learnt from yet has it."""

    @property
    def _complete(self) -> range:
        """The rows, counted from the first that was ever written, that can be drawn from."""
        return range(max(0, self._written - self._rows), self._written - self._n_step + 1)

    def __len__(self) -> int:
        """Transitions that can be drawn."""
        return len(self._complete) * self._streams

    def add(self, steps: Steps) -> None:
        """Remembers a step of each environment."""
        row = self._written % self._rows
        self._observations[row], self._actions[row] = steps.observations, steps.actions
        self._rewards[row], self._next_observations[row] = steps.rewards, steps.next_observations
        self._terminated[row], self._truncated[row] = steps.terminated, steps.truncated
        self._written += 1
        if self._tree is not None:
            self._tree[self._places(np.array([row]))] = 0.0
            if complete := self._complete:
                newest = np.array([complete[-1] % self._rows])
                self._tree[self._places(newest)] = self._highest

    def fill(self, steps: Steps) -> None:
        """Remembers the steps of one environment one after another, [steps, ...] each.

        The replay needs a row for each of the steps and `n_step - 1` more. The last step counts as
        cut off, so that all can be drawn.
        """
        count = len(steps.actions)
        self._observations[:count, 0], self._actions[:count, 0] = steps.observations, steps.actions
        self._rewards[:count, 0] = steps.rewards
        self._next_observations[:count, 0] = steps.next_observations
        self._terminated[:count, 0], self._truncated[:count, 0] = steps.terminated, steps.truncated
        self._truncated[count - 1, 0] = True
        self._written = count + self._n_step - 1
        if self._tree is not None:
            self._tree[np.array(self._complete)] = self._highest

    def cut(self, streams: list[int]) -> None:
        """Says of some environments that what they do next does not follow from their last step."""
        if self._written:
            self._truncated[(self._written - 1) % self._rows, streams] = True

    def _places(self, rows: np.ndarray) -> np.ndarray:
        return (rows[:, np.newaxis] * self._streams + np.arange(self._streams)).ravel()

    def draw(self, count: int, random: np.random.Generator, beta: float = 1.0) -> Batch:
        """Draws transitions, in any order.

        Args:
          count: how many.
          random: draws them.
          beta: the power of the weights that make up for drawing some more often than others.
        """
        if self._tree is None:
            complete = self._complete
            drawn = random.integers(complete.start, complete.stop, count) % self._rows
            places = drawn * self._streams + random.integers(self._streams, size=count)
            return self._batch(places, np.ones(count, np.float32))
        # One from each of `count` equal parts of the sum: less chance, the same shares.
        parts = (np.arange(count) + random.random(count)) / count
        places = random.permutation(self._tree.find(parts * self._tree.total))
        shares = self._tree[places] / self._tree.total
        weights = (len(self) * shares) ** -beta
        return self._batch(places, (weights / weights.max()).astype(np.float32))

    def update(self, places: np.ndarray, errors: np.ndarray) -> None:
        """Draws transitions by how wrong their values were from now on.

        Args:
          places: of the transitions, [n]; those that come up twice take the last.
          errors: of their values, [n].
        """
        if self._tree is None or self._alpha is None:
            return
        priorities = (np.abs(errors) + _SMALLEST) ** self._alpha
        self._highest = max(self._highest, float(priorities.max()))
        self._tree[places] = priorities

    def _batch(self, places: np.ndarray, weights: np.ndarray) -> Batch:
        """Adds up what n steps come to: sum of discount^k r_k, up to the end of the episode."""
        rows, streams = places // self._streams, places % self._streams
        rewards, discounts = np.zeros(len(places)), np.ones(len(places))
        goes_on, last = np.ones(len(places), bool), rows
        for step in range(self._n_step):
            row = (rows + step) % self._rows
            last = np.where(goes_on, row, last)
            rewards += np.where(goes_on, discounts * self._rewards[row, streams], 0.0)
            discounts *= np.where(goes_on, self._discount, 1.0)
            goes_on &= ~(self._terminated | self._truncated)[row, streams]
        discounts *= ~self._terminated[last, streams]
        return Batch(
            places,
            self._observations[rows, streams],
            self._actions[rows, streams],
            rewards.astype(np.float32),
            self._next_observations[last, streams],
            discounts.astype(np.float32),
            weights,
        )

    def get_state(self) -> dict[str, np.ndarray]:
        """All that it knows, as arrays; rows that were never written are left out."""
        filled = min(self._written, self._rows)
        state = {name: getattr(self, f"_{name}")[:filled] for name in _ARRAYS}
        return {**state, "written": np.array(self._written), **self.get_priorities()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes back what it knew."""
        filled = len(state["rewards"])
        for name in _ARRAYS:
            getattr(self, f"_{name}")[:filled] = state[name]
        self._written = int(state["written"])
        self.set_priorities(state)

    def get_priorities(self) -> dict[str, np.ndarray]:
        """By what its transitions are drawn, as arrays; nothing where they are drawn evenly."""
        if self._tree is None:
            return {}
        filled = min(self._written, self._rows)
        priorities = self._tree[np.arange(filled * self._streams)]
        return {"priorities": priorities, "highest": np.array(self._highest)}

    def set_priorities(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes back by what its transitions are drawn."""
        if self._tree is not None:
            self._tree[np.arange(len(state["priorities"]))] = state["priorities"]
            self._highest = float(state["highest"])


_ARRAYS = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminated",
    "truncated",
)
"""What a step consists of."""
