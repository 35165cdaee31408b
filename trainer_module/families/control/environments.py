"""Environments with gymnasium's interface: opened by name, and run side by side.

The seed and the actions of an episode determine its course. Therefore the state of an environment
in mid-episode is stored as seed and actions, and restored by repeating the actions.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from trainer_module.errors import TrainingError
from trainer_module.sections import load_own

PREFIX = "gymnasium:"
"""The prefix of the path of a registered environment."""
_LARGEST = float(np.finfo(np.float32).max)
"""The largest absolute reward, as networks compute in float32."""
_AT_ONCE = 32
"""The number of episodes that run side by side, in one batch of the policy."""

Policy = Callable[[np.ndarray], np.ndarray]
"""A function from observations, [n, width] float32, to actions, [n] int."""


class SeedsOf(IntEnum):
    """The purposes of episodes, whose seeds are independent of each other."""

    TRAINING = 0
    CHOICE = 1
    """The choice of the best policy during training."""
    EVALUATION = 2
    COLLECTION = 3


def episode_seed(seed: int, purpose: SeedsOf, number: int) -> int:
    """Returns the seed of an episode, below 2**31.

    Args:
      seed: `train.seed`.
      purpose: the purpose of the episode.
      number: the number of the episode, counted from 0.
    """
    state = np.random.SeedSequence([seed, purpose, number]).generate_state(1)
    return int(state[0]) >> 1


@dataclass(frozen=True)
class EnvironmentSettings:
    """The path and the arguments of an environment."""

    path: str
    """`gymnasium:NAME`, or an import path."""
    options: Mapping[str, Any]
    """The arguments of the environment."""
    most_steps: int
    """The number of steps after which an episode is truncated."""

    def open(self) -> Environment:
        """Returns a new environment.

        Raises:
          TrainingError: the environment is not installed, the path names no environment, or its
            actions are not discrete.
        """
        return Environment(self)


class Environment:
    """An environment with vectors as observations and discrete actions counted from 0."""

    def __init__(self, settings: EnvironmentSettings) -> None:
        """Creates the environment; see `EnvironmentSettings.open`."""
        self.name = settings.path
        self._most_steps = settings.most_steps
        self._environment = _as_vectors(_make(settings), settings.path)
        self.width = int(self._environment.observation_space.shape[0])
        """The number of values in an observation."""
        self.actions = int(self._environment.action_space.n)
        """The number of actions."""
        # A user's function may wrap an environment and change its rewards.
        is_registered = settings.path.startswith(PREFIX)
        spec = getattr(self._environment, "spec", None) if is_registered else None
        self.solved_at: float | None = getattr(spec, "reward_threshold", None)
        """The mean return above which gymnasium calls the environment solved; None if undefined."""
        self._first_action = int(getattr(self._environment.action_space, "start", 0))
        self.seed = 0
        """The seed of the current episode."""
        self.taken: list[int] = []
        """The actions of the current episode."""

    def reset(self, seed: int) -> np.ndarray:
        """Begins an episode and returns its first observation, [width] float32.

        Raises:
          TrainingError: the environment fails, or returns values that are not finite.
        """
        self.seed, self.taken = seed, []
        observation, _ = self._call("reset", lambda: self._environment.reset(seed=seed), 2)
        return self._checked(observation)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Takes an action and returns the observation, the reward, and whether the episode
        terminated or was truncated.

        Raises:
          TrainingError: the environment fails, or returns values that are not finite.
        """
        self.taken.append(action)
        observation, reward, terminated, truncated, _ = self._call(
            "step", lambda: self._environment.step(action + self._first_action), 5
        )
        is_cut = bool(truncated) or len(self.taken) >= self._most_steps
        return self._checked(observation), self._number(reward), bool(terminated), is_cut

    def close(self) -> None:
        """Releases the resources of the environment, such as windows and processes."""
        if hasattr(self._environment, "close"):
            with suppress(Exception):  # Errors do not affect the results.
                self._environment.close()

    @property
    def _location(self) -> str:
        place = f"at step {len(self.taken)} of the episode with seed {self.seed}"
        return f"the environment {self.name!r} {place}"

    def _call(self, name: str, call: Callable[[], Any], values: int) -> Any:
        try:
            found = call()
        except Exception as error:  # User code may raise any exception.
            lines = str(error).strip().splitlines() or ["no message"]
            raise TrainingError(
                f"{self._location} failed with {type(error).__name__}: {lines[0].rstrip('.')}."
            ) from error
        if not isinstance(found, tuple) or len(found) != values:
            given = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise TrainingError(
                f"{self._location}: {name} gave {given}; gymnasium.Env requires {values}."
            )
        return found

    def _number(self, reward: Any) -> float:
        try:
            found = float(np.asarray(reward, np.float64).item())
        except (TypeError, ValueError):
            found = math.nan
        if not abs(found) <= _LARGEST:
            raise TrainingError(f"{self._location} gave the reward {reward}; right is a number.")
        return found

    def _checked(self, observation: Any) -> np.ndarray:
        try:
            found = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise TrainingError(
                f"{self._location} gave {type(observation).__name__} as an observation; right are"
                f" {self.width} numbers."
            ) from None
        if found.shape != (self.width,):
            raise TrainingError(
                f"{self._location} gave an observation of shape {found.shape}; its observation"
                f" space has ({self.width},)."
            )
        if not np.isfinite(found).all():
            raise TrainingError(
                f"{self._location} gave the observation {found.tolist()}, with NaN."
            )
        return found


def _make(settings: EnvironmentSettings) -> Any:
    path, options = settings.path, dict(settings.options)
    if ":" in path.removeprefix(PREFIX):
        raise TrainingError(
            f"the environment {path!r} is of a module that gymnasium would run; right is"
            f" {PREFIX}NAME, or the import path of a function of yours that makes one."
        )
    if not path.startswith(PREFIX):
        make = load_own("environment", path)
        return _create(path, lambda: make(**options))
    check_installed(path)
    import gymnasium

    return _create(
        path,
        lambda: gymnasium.make(path.removeprefix(PREFIX), disable_env_checker=True, **options),
    )


def check_installed(path: str, what: str = "") -> None:
    """Raises TrainingError if gymnasium is not installed.

    Args:
      path: the path of the environment.
      what: the part that needs gymnasium; by default the environment itself.
    """
    if importlib.util.find_spec("gymnasium") is None:
        raise TrainingError(
            f"the environment {path!r} needs{f', for {what},' if what else ''} the package"
            " gymnasium, which is not installed:"
            " pip install 'scopeline[control]', or uv sync --extra control."
        )


def _create(path: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:  # Raised by gymnasium, a dependency or the environment.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise TrainingError(
            f"the environment {path!r} cannot be made ({type(error).__name__}: "
            f"{lines[0].rstrip('.')})."
        ) from error


def _as_vectors(made: Any, path: str) -> Any:
    """Returns the environment with observations of one dimension.

    Raises:
      TrainingError: the actions are not discrete, or the object is not an environment.
    """
    spaces = getattr(made, "observation_space", None), getattr(made, "action_space", None)
    if None in spaces:
        raise TrainingError(
            f"{path!r} gave {type(made).__name__}, which has no observation_space and action_space;"
            " right is a gymnasium.Env."
        )
    observations, actions = spaces
    if not hasattr(actions, "n") or getattr(actions, "shape", ()) != ():
        raise TrainingError(
            f"the environment {path!r} has the actions {actions}; dqn needs a"
            " gymnasium.spaces.Discrete: wrap it in an environment with a finite number of"
            " actions."
        )
    if len(getattr(observations, "shape", None) or ()) == 1:
        return made
    check_installed(path, "observations that are not vectors")
    import gymnasium

    if not isinstance(made, gymnasium.Env):
        raise TrainingError(
            f"the environment {path!r} has the observations {observations}, which"
            f" are flattened only for a gymnasium.Env; derive {type(made).__name__} from it, or"
            " return vectors."
        )
    try:
        return gymnasium.wrappers.FlattenObservation(made)
    except Exception as error:  # The space cannot be flattened.
        raise TrainingError(
            f"the environment {path!r} has the observations {observations}, which cannot be "
            "flattened to a vector."
        ) from error


@dataclass(frozen=True)
class Steps:
    """The results of one step of each environment, each [environments, ...]."""

    observations: np.ndarray
    """The observations before the actions."""
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    """The observations after the actions, also after the last step of an episode."""
    terminated: np.ndarray
    truncated: np.ndarray


class Environments:
    """Several environments side by side, which begin a new episode after each ended one."""

    def __init__(
        self, settings: EnvironmentSettings, count: int, seed: int, purpose: SeedsOf
    ) -> None:
        """Creates the environments and begins an episode in each.

        Args:
          settings: the path and the arguments of the environment.
          count: the number of environments.
          seed: `train.seed`.
          purpose: the purpose of the episodes.

        Raises:
          TrainingError: see `EnvironmentSettings.open`.
        """
        self._all = [settings.open() for _ in range(count)]
        self._seed, self._purpose = seed, purpose
        self.begun = 0
        """The number of episodes begun."""
        self._returns = np.zeros(count)
        self.ended: list[float] = []
        """The returns of ended episodes; the caller empties the list."""
        self.observations = np.stack([self._begin(one) for one in self._all])
        """The current observations, [environments, width] float32."""

    @property
    def width(self) -> int:
        """The number of values in an observation."""
        return self._all[0].width

    @property
    def actions(self) -> int:
        """The number of actions."""
        return self._all[0].actions

    def _begin(self, one: Environment) -> np.ndarray:
        seed = episode_seed(self._seed, self._purpose, self.begun)
        self.begun += 1
        return one.reset(seed)

    def step(self, actions: np.ndarray) -> Steps:
        """Takes an action in each environment, [environments] int."""
        found = [one.step(int(a)) for one, a in zip(self._all, actions, strict=True)]
        following, rewards, terminated, truncated = (
            np.array(values) for values in zip(*found, strict=True)
        )
        steps = Steps(
            self.observations, actions, rewards.astype(np.float32), following, terminated, truncated
        )
        self._returns += rewards
        self.observations = following.copy()
        for place in np.flatnonzero(terminated | truncated):
            self.ended.append(float(self._returns[place]))
            self._returns[place] = 0.0
            self.observations[place] = self._begin(self._all[place])
        return steps

    def get_state(self) -> dict[str, Any]:
        """Returns the state of all environments as JSON."""
        return {
            "begun": self.begun,
            "ended": self.ended,
            "returns": self._returns.tolist(),
            "episodes": [{"seed": one.seed, "actions": one.taken} for one in self._all],
            "observations": self.observations.tolist(),
        }

    def set_state(self, state: Mapping[str, Any]) -> list[int]:
        """Restores the state, and returns the indices of environments that had to begin a new
        episode.

        An environment with other sources of randomness than its seed cannot be restored.
        """
        self.begun, self.ended = state["begun"], list(state["ended"])
        self._returns = np.array(state["returns"])
        expected = np.array(state["observations"], np.float32)
        lost = []
        for place, (one, episode) in enumerate(zip(self._all, state["episodes"], strict=True)):
            found = _replay_episode(one, episode["seed"], episode["actions"])
            if found is None or not np.array_equal(found, expected[place]):
                lost.append(place)
                found, self._returns[place] = self._begin(one), 0.0
            self.observations[place] = found
        return lost


def _replay_episode(one: Environment, seed: int, actions: Sequence[int]) -> np.ndarray | None:
    """Repeats the actions of an episode and returns its observation; None if it ends or fails
    before.
    """
    try:
        found = one.reset(seed)
        for action in actions:
            found, _, terminated, truncated = one.step(action)
            if terminated or truncated:
                return None
    except TrainingError:  # The replayed episode differs.
        return None
    return found


@dataclass(frozen=True)
class EpisodeResults:
    """The results of episodes that a policy has played."""

    seeds: np.ndarray
    """The seeds of the episodes, [episodes] int64."""
    returns: np.ndarray
    """The sum of the rewards of each episode, [episodes] float64."""
    lengths: np.ndarray
    """The number of steps of each episode, [episodes] int64."""


def play(
    policy: Policy,
    settings: EnvironmentSettings,
    seeds: Sequence[int],
    see: Callable[[int, np.ndarray, int, tuple[np.ndarray, float, bool, bool]], None] | None = None,
) -> EpisodeResults:
    """Plays an episode for each seed with a policy.

    Args:
      policy: the policy that chooses the actions.
      settings: the path and the arguments of the environment.
      seeds: the seeds of the episodes.
      see: a callback for each step, with the index of the episode, the observation, the action, and
        the result of `Environment.step`.

    Raises:
      TrainingError: the environment fails.
    """
    slots = [settings.open() for _ in range(min(_AT_ONCE, len(seeds)))]
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    waiting = list(range(len(seeds)))
    playing: dict[int, int] = {}  # The episode that a slot plays.
    seen: dict[int, np.ndarray] = {}
    while True:
        for slot in range(len(slots)):
            if slot not in playing and waiting:
                playing[slot] = waiting.pop(0)
                seen[slot] = slots[slot].reset(seeds[playing[slot]])
        if not playing:
            for one in slots:
                one.close()
            return EpisodeResults(np.array(seeds, np.int64), returns, lengths)
        order = sorted(playing)
        actions = policy(np.stack([seen[slot] for slot in order]))
        for slot, action in zip(order, actions, strict=True):
            episode, found = playing[slot], slots[slot].step(int(action))
            if see is not None:
                see(episode, seen[slot], int(action), found)
            seen[slot], reward, terminated, truncated = found
            returns[episode] += reward
            lengths[episode] += 1
            if terminated or truncated:
                del playing[slot]
