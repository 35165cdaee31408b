"""A short seed of `make chaos`: what it checks holds, and it finds what does not."""

from __future__ import annotations

import shutil

import pytest

from tests.support import warm
from tools.chaos.checks import find_faults, find_half_artifacts
from tools.chaos.days import DayData, draw
from tools.chaos.play import Outcome, Player
from tools.chaos.troubles import Receiver, Trouble
from tools.replay import NAME

pytestmark = pytest.mark.slow

SEED, NIGHTS = 27, 3


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Player:
    nights = draw(SEED, NIGHTS)
    return Player(tmp_path_factory.mktemp("chaos"), nights, Receiver(), SEED, warm.Popen)


@pytest.fixture(scope="module")
def outcomes(player: Player) -> list[Outcome]:
    return [player.play(night) for night in draw(SEED, NIGHTS)]


def test_nothing_is_lost(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        assert not outcome.faults, outcome.line()
    # Something bad was among it.
    assert {outcome.night.data for outcome in outcomes} - {DayData.GOOD}
    assert {outcome.night.trouble for outcome in outcomes} - {Trouble.NONE}


def test_faults_are_found(outcomes: list[Outcome], player: Player) -> None:
    days = player.days
    serving = days.output / NAME / "serving" / NAME
    (serving / "1234.tmp").mkdir()
    weights = serving / days.versions[-1] / "variables"
    kept = shutil.copytree(weights, serving.parent / "kept")
    shutil.rmtree(weights)
    made = days.output / NAME / "pipeline_root" / "Trainer" / "model" / "987654"
    made.mkdir()
    (examples,) = sorted(made.parents[2].glob("ExampleGen/examples/*"))[-1:]
    examples.rename(serving.parent / "examples")
    try:
        found = [*find_faults(days), *find_half_artifacts(days)]
    finally:
        made.rmdir()
        (serving.parent / "examples").rename(examples)
        (serving / "1234.tmp").rmdir()
        shutil.move(kept, weights)
    assert len(found) == 4, found
    assert not [*find_faults(days), *find_half_artifacts(days)]


def test_a_seed_says_what_happens() -> None:
    assert draw(5, 12) == draw(5, 12)
    assert draw(5, 12) != draw(6, 12)
    month = draw(1, 30)
    assert {night.data for night in month} == set(DayData)
    assert {night.trouble for night in month} == set(Trouble)
