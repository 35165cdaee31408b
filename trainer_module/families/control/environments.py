"""Environments by gymnasium's interface: opened by name, and acted in side by side.

An episode follows from its seed and its actions. So what an environment is in the middle of an
episode is kept as these two, and acting them out again brings it back there.
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
"""Begins the path of a registered environment."""
_LARGEST = float(np.finfo(np.float32).max)
"""Of a reward, as networks learn from it."""
_AT_ONCE = 32
"""Episodes that are played side by side: a policy answers them together."""

Policy = Callable[[np.ndarray], np.ndarray]
"""From observations, [n, width] float32, to actions, [n] int."""


class SeedsOf(IntEnum):
    """What episodes are for: the seeds of one purpose have nothing to do with those of another."""

    TRAINING = 0
    CHOICE = 1
    """Of the best policy, while training."""
    EVALUATION = 2
    COLLECTION = 3


def episode_seed(seed: int, purpose: SeedsOf, number: int) -> int:
    """Returns the seed of an episode, below 2**31.

    Args:
      seed: `train.seed`.
      purpose: what the episode is for.
      number: of the episode, counted from 0.
    """
    state = np.random.SeedSequence([seed, purpose, number]).generate_state(1)
    return int(state[0]) >> 1


@dataclass(frozen=True)
class EnvironmentSettings:
    """Which environment, and how it is made."""

    path: str
    """`gymnasium:NAME`, or an import path."""
    options: Mapping[str, Any]
    """Its arguments."""
    most_steps: int
    """After so many an episode is cut off."""

    def open(self) -> Environment:
        """Returns a new environment.

        Raises:
          TrainingError: it is not installed, is none, or has actions that cannot be counted.
        """
        return Environment(self)


class Environment:
    """One environment with vectors for observations and actions that are counted from 0."""

    def __init__(self, settings: EnvironmentSettings) -> None:
        """Makes it; see `EnvironmentSettings.open`."""
        self.name = settings.path
        self._most_steps = settings.most_steps
        self._made = _as_vectors(_make(settings), settings.path)
        self.width = int(self._made.observation_space.shape[0])
        """Numbers of an observation."""
        self.actions = int(self._made.action_space.n)
        """How many there are."""
        # What code of the user's makes may have other rewards than what it wraps.
        spec = getattr(self._made, "spec", None) if settings.path.startswith(PREFIX) else None
        self.solved_at: float | None = getattr(spec, "reward_threshold", None)
        """The mean return from which on gymnasium calls it solved; None where it does not say."""
        self._first_action = int(getattr(self._made.action_space, "start", 0))
        self.seed = 0
        """Of the episode under way."""
        self.taken: list[int] = []
        """The actions of the episode under way."""

    def reset(self, seed: int) -> np.ndarray:
        """Begins an episode; its first observation, [width] float32.

        Raises:
          TrainingError: the environment fails, or gives no finite numbers.
        """
        self.seed, self.taken = seed, []
        observation, _ = self._call("reset", lambda: self._made.reset(seed=seed), 2)
        return self._checked(observation)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Acts: the next observation, the reward, whether the episode has ended, or is cut off.

        Raises:
          TrainingError: the environment fails, or gives no finite numbers.
        """
        self.taken.append(action)
        observation, reward, terminated, truncated, _ = self._call(
            "step", lambda: self._made.step(action + self._first_action), 5
        )
        is_cut = bool(truncated) or len(self.taken) >= self._most_steps
        return self._checked(observation), self._number(reward), bool(terminated), is_cut

    def close(self) -> None:
        """Gives back what it holds, such as windows and processes."""
        if hasattr(self._made, "close"):
            with suppress(Exception):  # What it has given stays right.
                self._made.close()

    @property
    def _here(self) -> str:
        place = f"at step {len(self.taken)} of the episode with seed {self.seed}"
        return f"the environment {self.name!r} {place}"

    def _call(self, name: str, call: Callable[[], Any], values: int) -> Any:
        try:
            found = call()
        except Exception as error:  # Whatever it likes.
            lines = str(error).strip().splitlines() or ["without a word"]
            raise TrainingError(
                f"{self._here} failed with {type(error).__name__}: {lines[0].rstrip('.')}."
            ) from error
        if not isinstance(found, tuple) or len(found) != values:
            given = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise TrainingError(
                f"{self._here}: {name} gave {given}; right are {values}, as gymnasium.Env says."
            )
        return found

    def _number(self, reward: Any) -> float:
        try:
            found = float(np.asarray(reward, np.float64).item())
        except (TypeError, ValueError):
            found = math.nan
        if not abs(found) <= _LARGEST:
            raise TrainingError(f"{self._here} gave the reward {reward}; right is a number.")
        return found

    def _checked(self, observation: Any) -> np.ndarray:
        try:
            found = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise TrainingError(
                f"{self._here} gave {type(observation).__name__} as an observation; right are"
                f" {self.width} numbers."
            ) from None
        if found.shape != (self.width,):
            raise TrainingError(
                f"{self._here} gave an observation of shape {found.shape}; its observation space"
                f" says ({self.width},)."
            )
        if not np.isfinite(found).all():
            raise TrainingError(f"{self._here} gave the observation {found.tolist()}, with NaN.")
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
        return _made(path, lambda: make(**options))
    check_installed(path)
    import gymnasium

    return _made(
        path,
        lambda: gymnasium.make(path.removeprefix(PREFIX), disable_env_checker=True, **options),
    )


def check_installed(path: str, what: str = "") -> None:
    """Raises TrainingError where gymnasium, which an environment needs, is not installed.

    Args:
      path: of the environment.
      what: needs it; the environment itself by default.
    """
    if importlib.util.find_spec("gymnasium") is None:
        raise TrainingError(
            f"the environment {path!r} needs{f', for {what},' if what else ''} the package"
            " gymnasium, which is not installed:"
            " pip install 'scopeline[control]', or uv sync --extra control."
        )


def _made(path: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:  # Of gymnasium, of what an environment needs, or of its code.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise TrainingError(
            f"the environment {path!r} cannot be made ({type(error).__name__}: "
            f"{lines[0].rstrip('.')})."
        ) from error


def _as_vectors(made: Any, path: str) -> Any:
    """Returns the environment with observations of one dimension.

    Raises:
      TrainingError: its actions cannot be counted, or it is no environment.
    """
    spaces = getattr(made, "observation_space", None), getattr(made, "action_space", None)
    if None in spaces:
        raise TrainingError(
            f"{path!r} gave {type(made).__name__}, which has no observation_space and action_space;"
            " right is an environment, as gymnasium.Env says."
        )
    observations, actions = spaces
    if not hasattr(actions, "n") or getattr(actions, "shape", ()) != ():
        raise TrainingError(
            f"the environment {path!r} has the actions {actions}; dqn chooses between actions that"
            " are counted, as gymnasium.spaces.Discrete has them: wrap it in an environment of"
            " yours that offers some of its actions."
        )
    if len(getattr(observations, "shape", None) or ()) == 1:
        return made
    check_installed(path, "its observations, which are no vector")
    import gymnasium

    if not isinstance(made, gymnasium.Env):
        raise TrainingError(
            f"the environment {path!r} has the observations {observations}, and"
            f" {type(made).__name__} is no gymnasium.Env, of whose observations vectors are made;"
            " derive it from that, or give vectors."
        )
    try:
        return gymnasium.wrappers.FlattenObservation(made)
    except Exception as error:  # Of a space that has no vector.
        raise TrainingError(
            f"the environment {path!r} has the observations {observations}, which no vector holds."
        ) from error


@dataclass(frozen=True)
class Steps:
    """What one step of each environment gave, [environments, ...] each."""

    observations: np.ndarray
    """That were acted on."""
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    """Also of the last step of an episode."""
    terminated: np.ndarray
    truncated: np.ndarray


class Environments:
    """Several environments side by side; an episode that ends makes room for the next."""

    def __init__(
        self, settings: EnvironmentSettings, count: int, seed: int, purpose: SeedsOf
    ) -> None:
        """Makes them and begins an episode in each.

        Args:
          settings: of the environment.
          count: how many.
          seed: `train.seed`.
          purpose: of the episodes.

        Raises:
          TrainingError: see `EnvironmentSettings.open`.
        """
        self._all = [settings.open() for _ in range(count)]
        self._seed, self._purpose = seed, purpose
        self.begun = 0
        """Episodes."""
        self._returns = np.zeros(count)
        self.ended: list[float] = []
        """The returns of the episodes that have ended since somebody has emptied the list."""
        self.observations = np.stack([self._begin(one) for one in self._all])
        """Of now, [environments, width] float32."""

    @property
    def width(self) -> int:
        """Numbers of an observation."""
        return self._all[0].width

    @property
    def actions(self) -> int:
        """How many there are."""
        return self._all[0].actions

    def _begin(self, one: Environment) -> np.ndarray:
        seed = episode_seed(self._seed, self._purpose, self.begun)
        self.begun += 1
        return one.reset(seed)

    def step(self, actions: np.ndarray) -> Steps:
        """Acts once in each, [environments] int."""
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
        """What brings them back to where they are, as JSON."""
        return {
            "begun": self.begun,
            "ended": self.ended,
            "returns": self._returns.tolist(),
            "episodes": [{"seed": one.seed, "actions": one.taken} for one in self._all],
            "observations": self.observations.tolist(),
        }

    def set_state(self, state: Mapping[str, Any]) -> list[int]:
        """Brings them back there; the places of those that could not be, and begin anew.

        An environment that draws from elsewhere than its seed does not come to the same place.
        """
        self.begun, self.ended = state["begun"], list(state["ended"])
        self._returns = np.array(state["returns"])
        expected = np.array(state["observations"], np.float32)
        lost = []
        for place, (one, episode) in enumerate(zip(self._all, state["episodes"], strict=True)):
            found = _act_out(one, episode["seed"], episode["actions"])
            if found is None or not np.array_equal(found, expected[place]):
                lost.append(place)
                found, self._returns[place] = self._begin(one), 0.0
            self.observations[place] = found
        return lost


def _act_out(one: Environment, seed: int, actions: Sequence[int]) -> np.ndarray | None:
    """Where an episode comes to by some actions; None where it ends, or fails, before."""
    try:
        found = one.reset(seed)
        for action in actions:
            found, _, terminated, truncated = one.step(action)
            if terminated or truncated:
                return None
    except TrainingError:  # What was fine before fails in another episode.
        return None
    return found


@dataclass(frozen=True)
class Played:
    """Episodes that a policy has played."""

    seeds: np.ndarray
    """[episodes] int64."""
    returns: np.ndarray
    """The sum of the rewards of each, [episodes] float64."""
    lengths: np.ndarray
    """Steps of each, [episodes] int64."""


def play(
    policy: Policy,
    settings: EnvironmentSettings,
    seeds: Sequence[int],
    see: Callable[[int, np.ndarray, int, tuple[np.ndarray, float, bool, bool]], None] | None = None,
) -> Played:
    """Plays an episode of each seed by a policy.

    Args:
      policy: chooses the actions.
      settings: of the environment.
      seeds: of the episodes.
      see: sees each step: the episode's place among the seeds, the observation, the action, and
        what `Environment.step` gave.

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
            return Played(np.array(seeds, np.int64), returns, lengths)
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
