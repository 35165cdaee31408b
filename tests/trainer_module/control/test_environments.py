"""Environments side by side, and the errors of those that fail."""

from __future__ import annotations

import json
from typing import Any

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
        reward = float("nan") if self.trouble == "nan" else 1.0
        observation = np.array([self.place + self.drawn], np.float32)
        return observation, reward, self.place == self.end, False, {}

    def close(self) -> None:
        self.closed = True


def corridor(**options: Any) -> EnvironmentSettings:
    return EnvironmentSettings(f"{__name__}.Corridor", options, 50)


def test_seeds_of_different_purposes_are_different() -> None:
    seeds = [episode_seed(1, purpose, number) for purpose in SeedsOf for number in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_episodes_resume_from_their_state() -> None:
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


def test_episode_that_its_seed_does_not_reproduce_begins_anew() -> None:
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


def test_episodes_played_together_equal_those_played_alone() -> None:
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
    ("settings", "message"),
    [
        (
            corridor(trouble="raises"),
            r"Corridor' at step 2 .* seed \d+ .* KeyError: 'no such place'",
        ),
        (
            corridor(trouble="nan"),
            r"at step 1 .* reward nan",
        ),
        (
            EnvironmentSettings("gymnasium:CartPol-v1", {}, 10),
            r"NameNotFound: .*`CartPole`",
        ),
        (
            EnvironmentSettings("nowhere.Room", {}, 10),
            r"environment 'nowhere\.Room': cannot import",
        ),
    ],
)
def test_failing_environment_is_named(settings: EnvironmentSettings, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        play(lambda seen: np.ones(len(seen), int), settings, [1])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TrainingError, match=r"needs the package gymnasium.*install .*'gymnasium"):
        CARTPOLE.open()


def test_observations_of_another_form_become_vectors() -> None:
    lake = EnvironmentSettings("gymnasium:FrozenLake-v1", {}, 10).open()
    assert (lake.width, lake.actions, lake.solved_at) == (16, 4, 0.7)
    assert lake.reset(1).tolist() == [1.0] + [0.0] * 15
