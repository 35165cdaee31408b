"""What a Q-network learns towards, against values worked out by hand, and how it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.families.control.learner import (
    Learner,
    combine_dueling,
    conservative_loss,
    targets,
)
from trainer_module.families.control.replay import Batch
from trainer_module.families.control.task import TargetSettings
from trainer_module.settings import MirroredStrategy, ModelSettings
from trainer_module.strategies import build_strategy


def test_targets_are_of_the_best_action_by_either_network() -> None:
    rewards, discounts = tf.constant([1.0, 2.0, 3.0]), tf.constant([0.5, 0.5, 0.0])
    by_target = tf.constant([[4.0, 6.0], [8.0, 2.0], [9.0, 9.0]])
    by_learner = tf.constant([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    plain = targets(rewards, discounts, by_target, by_target)
    assert plain.numpy().tolist() == [1 + 6 / 2, 2 + 8 / 2, 3]
    # The learner takes action 0 of the first, which the target network thinks less of.
    double = targets(rewards, discounts, by_target, by_learner)
    assert double.numpy().tolist() == [1 + 4 / 2, 2 + 8 / 2, 3]


def test_a_value_and_advantages_add_up() -> None:
    found = combine_dueling(
        tf.constant([[10.0], [0.0]]), tf.constant([[1.0, 2.0, 3.0], [0.0, 0.0, 6.0]])
    )
    assert found.numpy().tolist() == [[9, 10, 11], [-2, -2, 4]]


def test_cql_counts_all_actions_against_the_logged_one() -> None:
    values = tf.math.log(tf.constant([[1.0, 3.0], [2.0, 2.0]]))
    found = conservative_loss(values, tf.constant([1, 0]))
    np.testing.assert_allclose(found, [np.log(4) - np.log(3), np.log(4) - np.log(2)], rtol=1e-6)


def batch_of(count: int, reward: float = 1.0) -> Batch:
    random = np.random.default_rng(3)
    return Batch(
        indices=np.arange(count),
        observations=random.normal(size=(count, 2)).astype(np.float32),
        actions=random.integers(3, size=count).astype(np.int32),
        rewards=np.full(count, reward, np.float32),
        next_observations=random.normal(size=(count, 2)).astype(np.float32),
        discounts=np.full(count, 0.9, np.float32),
        weights=random.random(count).astype(np.float32),
    )


def learner(
    strategy: tf.distribute.Strategy | None = None,
    target: TargetSettings | None = None,
    **changed: Any,
) -> Learner:
    tf.random.set_seed(1)
    model = ModelSettings.model_validate({"kind": "dqn", "hidden_units": [8], **changed})
    strategy, target = strategy or tf.distribute.get_strategy(), target or TargetSettings()
    made = Learner(strategy, model, 2, 3, learning_rate=0.01, target=target)
    weights = np.random.default_rng(1)
    state = made.get_state()
    network = len(made.get_weights())
    fixed = [
        weights.normal(size=state[f"variable_{n}"].shape).astype(np.float32) for n in range(network)
    ]
    for place, one in enumerate(fixed):  # The network that learns, then the target network.
        state[f"variable_{place}"] = state[f"variable_{network + place}"] = one
    made.set_state(state)
    return made


def test_errors_are_computed_before_each_step() -> None:
    one, batch = learner(dueling=False, double=False, hidden_units=[]), batch_of(4)
    kernel, bias = one.get_weights()
    values = batch.observations @ kernel + bias
    following = (batch.next_observations @ kernel + bias).max(axis=1)
    expected = values[np.arange(4), batch.actions] - (1 + 0.9 * following)
    errors, loss = one.learn(batch, steps=1)
    np.testing.assert_allclose(errors, expected, rtol=1e-5)
    huber = np.where(np.abs(expected) < 1, expected**2 / 2, np.abs(expected) - 0.5)
    assert loss == pytest.approx(np.mean(batch.weights * huber), rel=1e-5)


@pytest.mark.slow
def test_two_replicas_learn_as_one_does() -> None:
    one = learner()
    two = learner(build_strategy(MirroredStrategy(kind="mirrored")))
    for _ in range(2):
        found, same = (each.learn(batch_of(24), steps=3) for each in (one, two))
        np.testing.assert_allclose(found[0], same[0], rtol=1e-4, atol=1e-5)
        assert found[1] == pytest.approx(same[1], rel=1e-4)
    for weights, others in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(weights, others, rtol=1e-4, atol=1e-5)


def target_of(one: Learner) -> np.ndarray:
    """The first weights of the target network."""
    return one.get_state()[f"variable_{len(one.get_weights())}"]


@pytest.mark.slow
def test_the_target_network_follows_smoothly_or_in_jumps() -> None:
    smooth, jumping = (
        learner(target=TargetSettings(polyak=0.25)),
        learner(target=TargetSettings(every=2)),
    )
    before = target_of(smooth)
    smooth.learn(batch_of(4), steps=1)
    leads = smooth.get_weights()[0]
    np.testing.assert_allclose(target_of(smooth), before + 0.25 * (leads - before), rtol=1e-5)
    jumping.learn(batch_of(4), steps=1)
    np.testing.assert_array_equal(target_of(jumping), before)
    jumping.learn(batch_of(4), steps=1)
    np.testing.assert_array_equal(target_of(jumping), jumping.get_weights()[0])


@pytest.mark.slow
def test_loss_of_nan_is_reported_with_its_steps() -> None:
    one = learner()
    with pytest.raises(TrainingError, match=r"is nan in steps 1 to 2"):
        one.learn(batch_of(8, reward=float("nan")), steps=2)
