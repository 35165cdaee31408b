"""Environments side by side, and what is said of those that fail."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Env, spaces

from trainer_module.errors import TrainingError
from trainer_module.families.control.environments import (
    Environments,
    EnvironmentSettings,
    SeedsOf,
    episode_seed,
    play,
)

CARTPOLE = EnvironmentSettings("gymnasium:CartPole-v1", {}, 1_000)


made: list[Corridor] = []
"""All that there are."""


class Corridor(Env):
    """Of this test: three places; action 1 goes on, and the third is the end."""

    observation_space = spaces.Box(0, 3, [1])
    action_space = spaces.Discrete(2)

    def __init__(self, trouble: str = "", noise: bool = False) -> None:
        self.trouble, self.noise, self.place = trouble, noise, 0
        self.end = 1 if trouble == "ends" else 3
        self.closed = False
        made.append(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        del options
        self.place, self.drawn = 0, np.random.default_rng(None if self.noise else seed).random()
        return np.array([self.drawn], np.float32), {}

    def step(self, action: int) -> Any:
        self.place += action
        if self.place == 2 and self.trouble == "raises":
            raise KeyError("no such place")
        if self.trouble == "four":
            return np.array([self.place], np.float32), 1.0, False, {}
        reward = {"nan": float("nan"), "none": None, "list": [1.0, 2.0], "huge": 1e39}.get(
            self.trouble, 1.0
        )
        observation = np.array([self.place + self.drawn], np.float32)
        if self.trouble == "named":
            return {"place": self.place}, reward, False, False, {}
        return observation, reward, self.place == self.end, False, {}

    def close(self) -> None:
        self.closed = True


def corridor(**options: Any) -> EnvironmentSettings:
    return EnvironmentSettings(f"{__name__}.Corridor", options, 50)


def test_seeds_of_different_purposes_are_different() -> None:
    seeds = [episode_seed(1, purpose, number) for purpose in SeedsOf for number in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_episodes_go_on_in_another_process_where_they_were() -> None:
    random = np.random.default_rng(0)
    first = Environments(CARTPOLE, 3, 5, SeedsOf.TRAINING)
    for _ in range(60):
        first.step(random.integers(2, size=3))
    second = Environments(CARTPOLE, 3, 5, SeedsOf.TRAINING)
    assert second.set_state(json.loads(json.dumps(first.get_state()))) == []
    for _ in range(60):
        actions = random.integers(2, size=3)
        one, other = first.step(actions), second.step(actions)
        for name, values in vars(one).items():
            np.testing.assert_array_equal(getattr(other, name), values)
    assert first.get_state() == second.get_state()
    assert len(first.ended) > 3


def test_an_episode_that_does_not_follow_from_its_seed_begins_anew() -> None:
    first = Environments(corridor(noise=True), 2, 5, SeedsOf.TRAINING)
    first.step(np.array([1, 1]))
    second = Environments(corridor(noise=True), 2, 5, SeedsOf.TRAINING)
    assert second.set_state(first.get_state()) == [0, 1]
    # One that ends, or fails, before it comes to where it was.
    first.step(np.array([1, 1]))
    for trouble in ("ends", "raises"):
        other = Environments(corridor(trouble=trouble), 2, 5, SeedsOf.TRAINING)
        assert other.set_state(first.get_state()) == [0, 1]
        drawn = [one.drawn for one in made[-2:]]
        assert other.observations[:, 0] == pytest.approx(drawn)


def test_episodes_are_played_side_by_side_each_by_its_own_seed() -> None:
    def wait_at_the_pole(observations: np.ndarray) -> np.ndarray:
        return (observations[:, 2] > 0).astype(int)

    seeds = list(range(40))
    together = play(wait_at_the_pole, CARTPOLE, seeds)
    alone = [play(wait_at_the_pole, CARTPOLE, [seed]).returns[0] for seed in seeds[:3]]
    assert together.returns[:3].tolist() == alone
    assert together.lengths.tolist() == together.returns.tolist()  # A reward of 1 each step.


def test_an_episode_without_end_is_cut_off() -> None:
    played = play(lambda seen: np.zeros(len(seen), int), corridor(), [1, 2])
    assert played.lengths.tolist() == [50, 50]
    assert [one.closed for one in made[-2:]] == [True, True]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            corridor(trouble="raises"),
            r"Corridor' at step 2 of the episode with seed \d+ failed with KeyError: 'no such"
            r" place'\.$",
        ),
        (corridor(trouble="four"), r"step returned 4 values; gymnasium\.Env requires 5 values\.$"),
        (
            corridor(trouble="nan"),
            r"at step 1 .* returned the reward nan; expected: a finite number\.$",
        ),
        (
            corridor(trouble="none"),
            r"at step 1 .* returned the reward None; expected: a finite number\.$",
        ),
        (
            corridor(trouble="list"),
            r"returned the reward \[1\.0, 2\.0\]; expected: a finite number\.$",
        ),
        (corridor(trouble="huge"), r"returned the reward 1e\+39; expected: a finite number\.$"),
        (corridor(trouble="named"), r"returned dict as an observation; expected: 1 numbers\.$"),
        (corridor(no="argument"), r"cannot be created \(TypeError: .*'no'"),
        (
            EnvironmentSettings("gymnasium:Pendulum-v1", {}, 10),
            r"Pendulum-v1' has the actions Box\(.*dqn needs gymnasium",
        ),
        (
            EnvironmentSettings("gymnasium:CartPol-v1", {}, 10),
            r"cannot be created \(NameNotFound: .*Did you mean: `CartPole`",
        ),
        (
            EnvironmentSettings("nowhere.Room", {}, 10),
            r"environment 'nowhere\.Room': cannot import",
        ),
        (
            EnvironmentSettings("collections.Counter", {}, 10),
            r"returned Counter, which lacks observation_space or action_space",
        ),
    ],
)
def test_an_environment_that_fails_is_named(settings: EnvironmentSettings, said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        play(lambda seen: np.ones(len(seen), int), settings, [1])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TrainingError, match=r"needs the package gymnasium.*install .*'gymnasium"):
        CARTPOLE.open()


def test_observations_of_another_form_become_vectors() -> None:
    lake = EnvironmentSettings("gymnasium:FrozenLake-v1", {}, 10).open()
    assert (lake.width, lake.actions, lake.solved_at) == (16, 4, 0.7)
    assert lake.reset(1).tolist() == [1.0] + [0.0] * 15


def lake_of_larger_rewards() -> Env:
    lake = gymnasium.make("FrozenLake-v1")
    return gymnasium.wrappers.TransformReward(lake, lambda reward: 100 * reward)


class Counter:
    """No gymnasium.Env."""

    observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2)


def test_who_is_no_env_gives_vectors() -> None:
    with pytest.raises(
        TrainingError, match=r"Discrete\(5\), which can be flattened only for a gymnasium\.Env"
    ):
        EnvironmentSettings(f"{__name__}.Counter", {}, 10).open()


def test_code_that_wraps_an_environment_may_have_other_rewards() -> None:
    path = f"{__name__}.{lake_of_larger_rewards.__name__}"
    assert EnvironmentSettings(path, {}, 10).open().solved_at is None
