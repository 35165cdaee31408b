"""What n steps come to, and how often what is drawn, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_module.families.control.environments import Steps
from trainer_module.families.control.replay import Replay, SumTree

DISCOUNT = 0.5


def steps(
    count: int, streams: int = 1, terminated: int | None = None, truncated: int | None = None
) -> list[Steps]:
    """Steps 0, 1, ... whose observations and rewards are their numbers; all streams alike."""
    ones = np.ones(streams)
    return [
        Steps(
            observations=np.full((streams, 1), n, np.float32),
            actions=(n % 2 * ones).astype(int),
            rewards=(n * ones).astype(np.float32),
            next_observations=np.full((streams, 1), n + 1, np.float32),
            terminated=(n == terminated) * ones.astype(bool),
            truncated=(n == truncated) * ones.astype(bool),
        )
        for n in range(count)
    ]


def filled(some: list[Steps], rows: int = 10, n_step: int = 3, **options: float) -> Replay:
    streams = len(some[0].actions)
    replay = Replay(rows, streams, 1, n_step=n_step, discount=DISCOUNT, **options)
    for one in some:
        replay.add(one)
    return replay


def drawn(replay: Replay) -> dict[int, tuple[float, float, float]]:
    """By the first observation: what the steps come to, what follows, and its discount."""
    batch = replay.draw(2_000, np.random.default_rng(0))
    rows = zip(
        batch.observations[:, 0],
        batch.rewards,
        batch.next_observations[:, 0],
        batch.discounts,
        strict=True,
    )
    return {int(first): (float(r), float(n), float(d)) for first, r, n, d in rows}


def test_rewards_of_n_steps_are_discounted_and_added_up() -> None:
    # 0 + 1/2 + 2/4, then the value of observation 3 by 1/8; the last two are not complete yet.
    assert drawn(filled(steps(5))) == {
        0: (1.0, 3.0, 0.125),
        1: (2.75, 4.0, 0.125),
        2: (4.5, 5.0, 0.125),
    }


def test_returns_end_at_terminations_and_bootstrap_at_truncations() -> None:
    # Step 2 is the last of its episode.
    assert drawn(filled(steps(5, terminated=2))) == {
        0: (1.0, 3.0, 0.0),
        1: (2.0, 3.0, 0.0),
        2: (2.0, 3.0, 0.0),
    }
    assert drawn(filled(steps(5, truncated=2))) == {
        0: (1.0, 3.0, 0.125),
        1: (2.0, 3.0, 0.25),
        2: (2.0, 3.0, 0.5),
    }


@pytest.mark.parametrize("options", [{}, {"alpha": 0.6}])
def test_oldest_transitions_are_overwritten(options: dict[str, float]) -> None:
    found = drawn(filled(steps(13), rows=5, **options))
    assert found.keys() == {8, 9, 10}
    assert found[10] == (10 + 11 / 2 + 12 / 4, 13.0, 0.125)


def test_transitions_are_drawn_by_their_errors_and_weighted_against_it() -> None:
    replay = filled(steps(4), n_step=1, alpha=1.0)
    replay.update(np.array([0, 1, 2, 3]), np.array([1.0, -2.0, 3.0, 4.0]))
    batch = replay.draw(20_000, np.random.default_rng(0), beta=1.0)
    shares = np.bincount(batch.indices, minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=1e-3)
    # (N P)^-1 divided by the largest: of the rarest it is 1.
    by_place = dict(zip(batch.indices.tolist(), batch.weights.tolist(), strict=True))
    assert [by_place[n] for n in range(4)] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-5)
    half = replay.draw(100, np.random.default_rng(0), beta=0.5)
    assert sorted(set(half.weights.tolist())) == pytest.approx([1 / 2, 3**-0.5, 2**-0.5, 1])


def test_new_transitions_have_the_largest_priority() -> None:
    first, second = steps(2)
    replay = filled([first], n_step=1, alpha=1.0)
    replay.update(np.array([0]), np.array([9.0]))
    replay.add(second)
    batch = replay.draw(1_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(batch.indices) / 1_000, [0.5, 0.5], atol=0.01)


def test_sum_tree_finds_places_by_their_sums() -> None:
    tree = SumTree(6)
    tree[np.arange(6)] = np.array([1.0, 0.0, 2.0, 0.0, 3.0, 0.0])
    tree[np.array([4, 4])] = np.array([5.0, 4.0])  # The last one counts.
    assert tree.total == 7
    found = tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 6.99]))
    assert found.tolist() == [0, 0, 2, 2, 4, 4]


@pytest.mark.parametrize("options", [{}, {"alpha": 0.6}])
def test_replay_resumes_from_its_state(options: dict[str, float]) -> None:
    replay = filled(steps(8, streams=2), rows=5, **options)
    replay.update(np.array([8, 9]), np.array([4.0, 2.0]))
    other = Replay(5, 2, 1, n_step=3, discount=DISCOUNT, **options)
    other.set_state(replay.get_state())
    for _ in range(2):
        one, same = (each.draw(50, np.random.default_rng(1), 0.5) for each in (replay, other))
        for name in vars(one):
            np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
        for each in (replay, other):
            each.add(steps(9, streams=2)[-1])


def test_logged_transitions_fill_a_replay_at_once() -> None:
    some = steps(5, terminated=1)
    columns = zip(*(vars(one).values() for one in some), strict=True)
    whole = Steps(*(np.concatenate(column) for column in columns))
    replay = Replay(7, 1, 1, n_step=3, discount=DISCOUNT, alpha=0.6)
    replay.fill(whole)
    complete = drawn(filled(some))
    found = drawn(replay)
    assert {place: found[place] for place in complete} == complete
    assert len(replay) == len(found) == 5
