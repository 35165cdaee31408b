"""Environments with gymnasium's interface: opens them by name, and runs several at the same time.

In most environments, the seed and the actions determine an episode. The state of an environment is
therefore stored as the seed and the actions of its episode, and restored by repeating the actions.
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
from trainer_module.extras import install_command
from trainer_module.sections import load_own

PREFIX = "gymnasium:"
"""The prefix of the path of a registered environment."""
_MAX_REWARD = float(np.finfo(np.float32).max)
"""The maximum absolute value of a reward, as networks compute in float32."""
_BATCH_SIZE = 32
"""The maximum number of episodes that a policy plays at the same time, in batches."""

Policy = Callable[[np.ndarray], np.ndarray]
"""A function from observations, [n, width] float32, to actions, [n] int."""


class SeedsOf(IntEnum):
    """The purposes of episodes; each purpose has its own seeds."""

    TRAINING = 0
    CHOICE = 1
    """The choice of the best policy during training."""
    EVALUATION = 2
    COLLECTION = 3
    """The collection of transitions for training offline."""


def episode_seed(seed: int, purpose: SeedsOf, number: int) -> int:
    """Returns the seed of an episode, from 0 to 2**31 - 1.

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
    max_steps: int
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
        self._max_steps = settings.max_steps
        self._environment = _as_vectors(_make(settings), settings.path)
        self.width = int(self._environment.observation_space.shape[0])
        """The number of values in an observation."""
        self.actions = int(self._environment.action_space.n)
        """The number of actions."""
        # A user's function may wrap an environment and change its rewards.
        is_registered = settings.path.startswith(PREFIX)
        spec = getattr(self._environment, "spec", None) if is_registered else None
        self.solved_at: float | None = getattr(spec, "reward_threshold", None)
        """The mean return at which gymnasium defines the environment as solved, or None if
        undefined.
        """
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
        """Takes an action, and returns the observation, the reward, whether the episode has
        terminated, and whether the episode is truncated.

        Raises:
          TrainingError: the environment fails, or returns values that are not finite.
        """
        self.taken.append(action)
        observation, reward, terminated, truncated, _ = self._call(
            "step", lambda: self._environment.step(action + self._first_action), 5
        )
        is_truncated = bool(truncated) or len(self.taken) >= self._max_steps
        return self._checked(observation), self._number(reward), bool(terminated), is_truncated

    def close(self) -> None:
        """Releases the resources of the environment, such as windows and processes."""
        if hasattr(self._environment, "close"):
            with suppress(Exception):  # Errors at the end do not affect the results.
                self._environment.close()

    @property
    def _location(self) -> str:
        step = f"at step {len(self.taken)} of the episode with seed {self.seed}"
        return f"the environment {self.name!r} {step}"

    def _call(self, name: str, call: Callable[[], Any], values: int) -> Any:
        """Returns the result of a method; raises TrainingError if it fails or has another length.

        Args:
          name: the name of the method.
          call: the call of the method.
          values: the required length of the result.
        """
        try:
            result = call()
        except Exception as error:  # User code may raise any exception.
            lines = str(error).strip().splitlines() or ["no message"]
            raise TrainingError(
                f"{self._location} failed with {type(error).__name__}: {lines[0].rstrip('.')}."
            ) from error
        if not isinstance(result, tuple) or len(result) != values:
            content = (
                f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            )
            raise TrainingError(
                f"{self._location}: {name} returned {content}; gymnasium.Env requires {values}"
                " values."
            )
        return result

    def _number(self, reward: Any) -> float:
        try:
            number = float(np.asarray(reward, np.float64).item())
        except (TypeError, ValueError):
            number = math.nan
        if not abs(number) <= _MAX_REWARD:
            raise TrainingError(
                f"{self._location} returned the reward {reward}; expected: a finite number."
            )
        return number

    def _checked(self, observation: Any) -> np.ndarray:
        try:
            vector = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise TrainingError(
                f"{self._location} returned {type(observation).__name__} as an observation;"
                f" expected: {self.width} numbers."
            ) from None
        if vector.shape != (self.width,):
            raise TrainingError(
                f"{self._location} returned an observation of shape {vector.shape}; the shape of"
                f" its observation space is ({self.width},)."
            )
        if not np.isfinite(vector).all():
            raise TrainingError(
                f"{self._location} returned the observation {vector.tolist()}, which is not finite."
            )
        return vector


def _make(settings: EnvironmentSettings) -> Any:
    path, options = settings.path, dict(settings.options)
    if ":" in path.removeprefix(PREFIX):
        raise TrainingError(
            f"the environment {path!r} names a module, which gymnasium would import; give"
            f" {PREFIX}NAME, or the import path of a function of yours that creates an environment."
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


def check_installed(path: str, purpose: str = "") -> None:
    """Raises TrainingError if gymnasium is not installed.

    Args:
      path: the path of the environment.
      purpose: the part of the environment that needs gymnasium, for the message, or an empty string
        for the whole environment.
    """
    if importlib.util.find_spec("gymnasium") is None:
        raise TrainingError(
            f"the environment {path!r} needs{f', for {purpose},' if purpose else ''} the package"
            f" gymnasium, which is not installed; run `{install_command('control')}`."
        )


def _create(path: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:  # gymnasium, its dependencies and user code may raise any exception.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise TrainingError(
            f"the environment {path!r} cannot be created ({type(error).__name__}: "
            f"{lines[0].rstrip('.')})."
        ) from error


def _as_vectors(environment: Any, path: str) -> Any:
    """Returns the environment with observations of one dimension.

    Raises:
      TrainingError: the actions are not discrete, or the object is not an environment.
    """
    spaces = [getattr(environment, name, None) for name in ("observation_space", "action_space")]
    if None in spaces:
        raise TrainingError(
            f"{path!r} returned {type(environment).__name__}, which lacks observation_space or"
            " action_space; return a gymnasium.Env."
        )
    observations, actions = spaces
    if not hasattr(actions, "n") or getattr(actions, "shape", ()) != ():
        raise TrainingError(
            f"the environment {path!r} has the actions {actions}; dqn needs"
            " gymnasium.spaces.Discrete. Wrap the environment in one with a finite number of"
            " actions."
        )
    if len(getattr(observations, "shape", None) or ()) == 1:
        return environment
    check_installed(path, "observations that are not vectors")
    import gymnasium

    if not isinstance(environment, gymnasium.Env):
        raise TrainingError(
            f"the environment {path!r} has the observations {observations}, which"
            " can be flattened only for a gymnasium.Env; derive"
            f" {type(environment).__name__} from gymnasium.Env, or return vectors."
        )
    try:
        return gymnasium.wrappers.FlattenObservation(environment)
    except Exception as error:  # The space cannot be flattened.
        raise TrainingError(
            f"the environment {path!r} has the observations {observations}, which cannot be "
            "flattened to a vector."
        ) from error


@dataclass(frozen=True)
class Steps:
    """Transitions: the results of a step of each environment, [environments, ...] each."""

    observations: np.ndarray
    """The observations before the actions."""
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    """The observations after the actions. After the last step of an episode, they are the last
    observations of the episode, and not the first observations of the next episode."""
    terminated: np.ndarray
    truncated: np.ndarray


class Environments:
    """Several environments that run at the same time, one episode after another."""

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
        """The number of episodes that have begun."""
        self._returns = np.zeros(count)
        self.ended: list[float] = []
        """The returns of the episodes that have ended; the caller empties the list."""
        self.observations = np.stack([self._begin(environment) for environment in self._all])
        """The current observations, [environments, width] float32."""

    @property
    def width(self) -> int:
        """The number of values in an observation."""
        return self._all[0].width

    @property
    def actions(self) -> int:
        """The number of actions."""
        return self._all[0].actions

    def _begin(self, environment: Environment) -> np.ndarray:
        seed = episode_seed(self._seed, self._purpose, self.begun)
        self.begun += 1
        return environment.reset(seed)

    def step(self, actions: np.ndarray) -> Steps:
        """Takes an action in each environment, and returns the transitions.

        Args:
          actions: the actions, [environments] int.
        """
        results = [
            environment.step(int(action))
            for environment, action in zip(self._all, actions, strict=True)
        ]
        next_observations, rewards, terminated, truncated = (
            np.array(values) for values in zip(*results, strict=True)
        )
        steps = Steps(
            self.observations,
            actions,
            rewards.astype(np.float32),
            next_observations,
            terminated,
            truncated,
        )
        self._returns += rewards
        self.observations = next_observations.copy()
        for index in np.flatnonzero(terminated | truncated):
            self.ended.append(float(self._returns[index]))
            self._returns[index] = 0.0
            self.observations[index] = self._begin(self._all[index])
        return steps

    def get_state(self) -> dict[str, Any]:
        """Returns the state of all environments as JSON."""
        return {
            "begun": self.begun,
            "ended": self.ended,
            "returns": self._returns.tolist(),
            "episodes": [
                {"seed": environment.seed, "actions": environment.taken}
                for environment in self._all
            ],
            "observations": self.observations.tolist(),
        }

    def set_state(self, state: Mapping[str, Any]) -> list[int]:
        """Restores the state by repeating the actions of the stored episodes.

        Returns:
          The indices of environments that begin a new episode, as their episode cannot be repeated:
          it does not depend only on the seed and the actions.
        """
        self.begun, self.ended = state["begun"], list(state["ended"])
        self._returns = np.array(state["returns"])
        expected = np.array(state["observations"], np.float32)
        restarted = []
        episodes = zip(self._all, state["episodes"], strict=True)
        for index, (environment, episode) in enumerate(episodes):
            observation = _repeat_episode(environment, episode["seed"], episode["actions"])
            if observation is None or not np.array_equal(observation, expected[index]):
                restarted.append(index)
                observation, self._returns[index] = self._begin(environment), 0.0
            self.observations[index] = observation
        return restarted


def _repeat_episode(
    environment: Environment, seed: int, actions: Sequence[int]
) -> np.ndarray | None:
    """Repeats the actions of an episode, and returns the last observation.

    The result is None if the episode ends or the environment fails before the last action.
    """
    try:
        observation = environment.reset(seed)
        for action in actions:
            observation, _, terminated, truncated = environment.step(action)
            if terminated or truncated:
                return None
    except TrainingError:  # The repeated episode differs from the stored episode.
        return None
    return observation


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
    on_step: Callable[[int, np.ndarray, int, tuple[np.ndarray, float, bool, bool]], None]
    | None = None,
) -> EpisodeResults:
    """Plays an episode for each seed with a policy, and returns the results.

    Args:
      policy: the policy that chooses the actions.
      settings: the path and the arguments of the environment.
      seeds: the seeds of the episodes.
      on_step: a function that is called after each step with the index of the episode, the
        observation before the step, the action, and the result of `Environment.step`.

    Raises:
      TrainingError: the environment fails.
    """
    slots = [settings.open() for _ in range(min(_BATCH_SIZE, len(seeds)))]
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    waiting = list(range(len(seeds)))
    playing: dict[int, int] = {}  # The index of the episode in each slot.
    observations: dict[int, np.ndarray] = {}
    while True:
        for slot in range(len(slots)):
            if slot not in playing and waiting:
                playing[slot] = waiting.pop(0)
                observations[slot] = slots[slot].reset(seeds[playing[slot]])
        if not playing:
            for environment in slots:
                environment.close()
            return EpisodeResults(np.array(seeds, np.int64), returns, lengths)
        order = sorted(playing)
        actions = policy(np.stack([observations[slot] for slot in order]))
        for slot, action in zip(order, actions, strict=True):
            episode, result = playing[slot], slots[slot].step(int(action))
            if on_step is not None:
                on_step(episode, observations[slot], int(action), result)
            observations[slot], reward, terminated, truncated = result
            returns[episode] += reward
            lengths[episode] += 1
            if terminated or truncated:
                del playing[slot]
