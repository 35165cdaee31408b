"""A replay buffer in NumPy, with uniform or prioritised sampling of transitions.

Each row of the ring buffer is a step of all environments. The rows after a transition contain the
next steps of its episode. N-step returns are therefore computed when transitions are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainer_module.families.control.environments import Steps

_MIN_ERROR = 1e-6
"""A constant that is added to errors, so that transitions whose error is 0 can be drawn again."""


class SumTree:
    """An array of numbers whose indices can be drawn in proportion to the numbers, in log time.

    The array is the leaves of a binary tree: node i is the sum of the nodes 2i and 2i + 1 (Schaul
    et al., 2016, appendix B.2.1). All methods take arrays.
    """

    def __init__(self, size: int) -> None:
        """Creates a tree with `size` numbers, which are 0."""
        self._first = 1 << max(0, size - 1).bit_length()
        self._sums = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._sums[1])

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Returns the numbers at indices, [n]."""
        return self._sums[self._first + indices]

    def __setitem__(self, indices: np.ndarray, values: np.ndarray | float) -> None:
        """Changes the numbers at indices, [n]."""
        nodes = self._first + np.asarray(indices)
        self._sums[nodes] = values
        while nodes.size and nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def find(self, sums: np.ndarray) -> np.ndarray:
        """Returns for each sum the first index at which the cumulative sum is greater, [n] int64.

        Args:
          sums: numbers from 0 to less than `total`, [n].
        """
        nodes, sums = np.ones(len(sums), np.int64), np.array(sums, np.float64)
        while nodes.size and nodes[0] < self._first:
            left = 2 * nodes
            left_sums = self._sums[left]
            # The second condition avoids leaves of 0 if rounding makes a sum slightly too large.
            goes_right = (sums >= left_sums) & (self._sums[left + 1] > 0)
            sums = np.where(goes_right, sums - left_sums, sums)
            nodes = left + goes_right
        return nodes - self._first


@dataclass(frozen=True)
class Batch:
    """Transitions of up to `n_step` steps, [n, ...] each."""

    indices: np.ndarray
    """The indices of the transitions in the replay buffer, for `Replay.update`."""
    observations: np.ndarray
    """The observations before the first step."""
    actions: np.ndarray
    """The actions of the first step."""
    rewards: np.ndarray
    """The discounted sums of the rewards of the steps."""
    next_observations: np.ndarray
    """The observations after the last step."""
    discounts: np.ndarray
    """The discounts of the values of `next_observations`, or 0 if the episode terminated."""
    weights: np.ndarray
    """The weights of the transitions in the loss, 0..1."""


class Replay:
    """A ring buffer of steps. A transition can be drawn after its next `n_step` - 1 steps are
    stored.
    """

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
        """Allocates the arrays of the buffer.

        Args:
          rows: the number of stored steps per environment; at least `n_step` + 1 are stored.
          streams: the number of environments.
          width: the number of values in an observation.
          n_step: the number of steps whose rewards a target adds.
          discount: the discount factor per step.
          alpha: the power of the errors in prioritised sampling, or None for uniform sampling.
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
        """The highest priority so far; new transitions get this priority."""

    @property
    def _complete(self) -> range:
        """The rows that can be drawn, counted from the first written row."""
        return range(max(0, self._written - self._rows), self._written - self._n_step + 1)

    def __len__(self) -> int:
        """Returns the number of transitions that can be drawn."""
        return len(self._complete) * self._streams

    def add(self, steps: Steps) -> None:
        """Stores a step of each environment."""
        row = self._written % self._rows
        self._observations[row], self._actions[row] = steps.observations, steps.actions
        self._rewards[row], self._next_observations[row] = steps.rewards, steps.next_observations
        self._terminated[row], self._truncated[row] = steps.terminated, steps.truncated
        self._written += 1
        if self._tree is not None:
            self._tree[self._indices(np.array([row]))] = 0.0
            if complete := self._complete:
                newest = np.array([complete[-1] % self._rows])
                self._tree[self._indices(newest)] = self._highest

    def fill(self, steps: Steps) -> None:
        """Stores consecutive steps of one environment, [steps, ...] each.

        The buffer needs a row for each step, and `n_step` - 1 additional rows. The last step counts
        as truncated, so that all transitions can be drawn.
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

    def truncate(self, streams: list[int]) -> None:
        """Marks the last step of some environments as truncated, before they begin a new episode.

        Args:
          streams: the indices of the environments.
        """
        if self._written:
            self._truncated[(self._written - 1) % self._rows, streams] = True

    def _indices(self, rows: np.ndarray) -> np.ndarray:
        """Returns the indices of all transitions in some rows."""
        return (rows[:, np.newaxis] * self._streams + np.arange(self._streams)).ravel()

    def draw(self, count: int, random: np.random.Generator, beta: float = 1.0) -> Batch:
        """Returns transitions that are drawn at random, in random order.

        Args:
          count: the number of transitions.
          random: the random generator.
          beta: the power of the importance weights, which correct for prioritised sampling.
        """
        if self._tree is None:
            complete = self._complete
            rows = random.integers(complete.start, complete.stop, count) % self._rows
            indices = rows * self._streams + random.integers(self._streams, size=count)
            return self._batch(indices, np.ones(count, np.float32))
        # Sampling is stratified: a draw from each of `count` equal parts of the sum reduces the
        # variance.
        parts = (np.arange(count) + random.random(count)) / count
        indices = random.permutation(self._tree.find(parts * self._tree.total))
        shares = self._tree[indices] / self._tree.total
        weights = (len(self) * shares) ** -beta
        return self._batch(indices, (weights / weights.max()).astype(np.float32))

    def update(self, indices: np.ndarray, errors: np.ndarray) -> None:
        """Updates the priorities of transitions.

        Args:
          indices: the indices of the transitions, [n]; for equal indices, the last error counts.
          errors: the errors of the transitions' values, [n].
        """
        if self._tree is None or self._alpha is None:
            return
        priorities = (np.abs(errors) + _MIN_ERROR) ** self._alpha
        self._highest = max(self._highest, float(priorities.max()))
        self._tree[indices] = priorities

    def _batch(self, indices: np.ndarray, weights: np.ndarray) -> Batch:
        """Returns the transitions at indices.

        Their rewards are n-step returns: the sum of discount^k r_k, up to the end of the episode.
        """
        rows, streams = indices // self._streams, indices % self._streams
        rewards, discounts = np.zeros(len(indices)), np.ones(len(indices))
        continues, last = np.ones(len(indices), bool), rows
        for step in range(self._n_step):
            row = (rows + step) % self._rows
            last = np.where(continues, row, last)
            rewards += np.where(continues, discounts * self._rewards[row, streams], 0.0)
            discounts *= np.where(continues, self._discount, 1.0)
            continues &= ~(self._terminated | self._truncated)[row, streams]
        discounts *= ~self._terminated[last, streams]
        return Batch(
            indices,
            self._observations[rows, streams],
            self._actions[rows, streams],
            rewards.astype(np.float32),
            self._next_observations[last, streams],
            discounts.astype(np.float32),
            weights,
        )

    def get_state(self) -> dict[str, np.ndarray]:
        """Returns the state of the buffer as arrays, without rows that are not written yet."""
        filled = min(self._written, self._rows)
        state = {name: getattr(self, f"_{name}")[:filled] for name in _ARRAYS}
        return {**state, "written": np.array(self._written), **self.get_priorities()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the state of the buffer."""
        filled = len(state["rewards"])
        for name in _ARRAYS:
            getattr(self, f"_{name}")[:filled] = state[name]
        self._written = int(state["written"])
        self.set_priorities(state)

    def get_priorities(self) -> dict[str, np.ndarray]:
        """Returns the priorities as arrays, or an empty dictionary for uniform sampling."""
        if self._tree is None:
            return {}
        filled = min(self._written, self._rows)
        priorities = self._tree[np.arange(filled * self._streams)]
        return {"priorities": priorities, "highest": np.array(self._highest)}

    def set_priorities(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the priorities of the buffer."""
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
"""The names of the arrays of steps, which are also the names in the state."""
