"""Additive shares: they add up, and are what formulas and complete enumerations give."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from trainer_module.attribution import (
    additive_shares,
    choose_players,
    part_shares,
    text_shares,
)

GENERATOR = np.random.default_rng(5)
Columns = dict[str, np.ndarray]


def make_rows(count: int) -> Columns:
    """Numbers with gaps, bytes and padded lists."""
    number = GENERATOR.normal(size=count)
    number[::4] = np.nan
    words = np.array([GENERATOR.choice([b"cash", b"card", b""]) for _ in range(count)], object)
    return {"number": number, "word": words, "list": GENERATOR.normal(size=(count, 3))}


def predict(columns: Columns) -> np.ndarray:
    """A model in which all columns interact."""
    number = np.nan_to_num(columns["number"], nan=2.0)
    return np.tanh(number + columns["list"].sum(1) * (columns["word"] == b"cash"))


def test_shares_and_base_are_the_prediction_for_columns_of_every_kind() -> None:
    rows, background = make_rows(30), make_rows(50)
    shares = additive_shares(predict, rows, background)
    assert shares.players == (("number",), ("word",), ("list",))
    np.testing.assert_allclose(shares.values.sum(1) + shares.base, predict(rows), atol=1e-12)
    again = additive_shares(predict, rows, background)
    np.testing.assert_array_equal(shares.values, again.values)
    assert len(set(shares.base)) == 1


def test_linear_shares_are_coefficients_times_differences_from_the_mean() -> None:
    rows, background = GENERATOR.normal(size=(20, 4)), GENERATOR.normal(size=(64, 4))
    coefficients = np.array([3.0, -2.0, 0.5, 0.0])

    def named(values: np.ndarray) -> Columns:
        return {f"x{index}": values[:, index] for index in range(4)}

    def linear(columns: Columns) -> np.ndarray:
        return 7 + sum(c * columns[f"x{i}"] for i, c in enumerate(coefficients))

    # As many permutations as rows of the background, so that each is used once.
    shares = additive_shares(linear, named(rows), named(background), 64)
    np.testing.assert_allclose(shares.values, coefficients * (rows - background.mean(0)))
    np.testing.assert_allclose(shares.base, 7 + background.mean(0) @ coefficients)


def enumerate_shares(value: dict[tuple[bool, ...], float], players: int) -> list[float]:
    """Shapley's formula, over all coalitions."""
    shares = []
    for player in range(players):
        share = 0.0
        for kept in itertools.product([False, True], repeat=players):
            if not kept[player]:
                joined = (*kept[:player], True, *kept[player + 1 :])
                size = sum(kept)
                ways = math.factorial(size) * math.factorial(players - size - 1)
                share += ways / math.factorial(players) * (value[joined] - value[kept])
        shares.append(share)
    return shares


def test_sampled_shares_approach_those_of_all_coalitions() -> None:
    value = {kept: float(GENERATOR.normal()) for kept in itertools.product([False, True], repeat=4)}
    expected = enumerate_shares(value, 4)
    found = np.zeros((30, 4))
    for seed in range(30):
        found[seed], base = part_shares(
            lambda kept: np.array([value[tuple(row)] for row in kept.tolist()]), 4, seed
        )
        assert base == value[(False,) * 4]
        assert found[seed].sum() + base == pytest.approx(value[(True,) * 4])
    deviation = found.std(0)
    assert (np.abs(found.mean(0) - expected) < 4 * deviation / math.sqrt(30)).all()
    assert deviation.max() < 0.3 * np.abs(expected).max()


def test_strongest_of_many_columns_have_own_shares() -> None:
    wide = {f"c{index}": GENERATOR.normal(size=100) for index in range(300)}
    sizes: list[int] = []

    def predict_wide(columns: Columns) -> np.ndarray:
        sizes.append(len(columns["c0"]))
        weak = sum(0.01 * columns[f"c{index}"] for index in range(300))
        return 3 * columns["c7"] - 2 * columns["c40"] * columns["c41"] + weak

    players = choose_players(predict_wide, wide, wide, most=5)
    assert [len(group) for group in players] == [1] * 5 + [295]
    assert {("c7",), ("c40",), ("c41",)} < set(players)
    assert sum(sizes) < 32 * 2 * 300 + 200
    few = {name: values[:3] for name, values in wide.items()}
    shares = additive_shares(predict_wide, few, wide, players=players)
    np.testing.assert_allclose(shares.values.sum(1) + shares.base, predict_wide(few), atol=1e-12)


def test_words_share_the_prediction_of_their_text() -> None:
    def count_good(texts: list[str]) -> np.ndarray:
        return np.array([0.5 + t.count("good") - 2 * t.count("not good") for t in texts])

    words, base = text_shares(count_good, "It was not good, but good 很好")
    assert [word for word, _ in words] == ["It", "was", "not", "good,", "but", "good", "很", "好"]
    assert base == 0.5
    shares = dict(words)
    # "not" and "good," share what they do together, and "good" alone counts 1.
    assert shares["not"] == pytest.approx(-1, abs=0.3)
    assert shares["It"] == shares["很"] == 0
    assert sum(shares.values()) + base == pytest.approx(0.5 + 2 - 2)
    assert text_shares(count_good, " \n") == ([], 0.5)
    calls: list[int] = []

    def count_long(texts: list[str]) -> np.ndarray:
        calls.append(len(texts))
        return count_good(texts)

    phrases, base = text_shares(count_long, "good " * 5000)
    assert len(phrases) == 48
    assert sum(share for _, share in phrases) + base == pytest.approx(5000.5)
    assert sum(calls) <= 1000
