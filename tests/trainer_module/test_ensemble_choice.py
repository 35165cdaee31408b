"""The settings of members that a search chooses: better ones, and the config's where none are."""

from __future__ import annotations

import numpy as np
import pytest
from test_trees import make_problem

from trainer_module.families.supervised.ensemble.choice import (
    Candidates,
    Judge,
    choose_candidates,
)
from trainer_module.families.supervised.ensemble.weights import Labels, greedy, mean
from trainer_module.settings import Task

UNTUNED = {"boosted": 0, "extra": 0, "tabular": 0}
SEEN, NEW = slice(0, 400), slice(400, 4400)


def make_candidates(seed: int, better: float) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
    """Returns labels, and ten candidates of each member: of `extra` one has a part of the error."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=NEW.stop)
    label = truth + random.normal(size=NEW.stop)
    candidates = {}
    for name in UNTUNED:
        error = random.normal(size=NEW.stop)
        found = [truth + error + random.normal(0, 0.3, NEW.stop) for _ in range(10)]
        if name == "extra":
            found[4] = truth + error * (1 - better)
        candidates[name] = [values[:, None] for values in found]
    return label, candidates


def choose(
    label: np.ndarray,
    candidates: Candidates,
    units: np.ndarray = np.arange(400),  # noqa: B008 - is not changed
    is_ordered: bool = False,
) -> dict[str, int]:
    seen = {name: [one[SEEN] for one in found] for name, found in candidates.items()}
    # The network has predicted fewer examples.
    predicted = np.arange(400)[:, None] < 100
    seen["tabular"] = [np.where(predicted, one, np.nan) for one in seen["tabular"]]
    labels = Labels(make_problem(Task.REGRESSION), label[SEEN])
    return choose_candidates(seen, Judge(labels, units, is_ordered), "tabular")


def test_better_settings_of_a_member_are_chosen() -> None:
    label, candidates = make_candidates(1, better=0.7)
    assert choose(label, candidates)["extra"] == 4
    label, candidates = make_candidates(1, better=0)
    candidates["tabular"][7] = candidates["tabular"][7] * 0.2 + label[:, None] * 0.8
    assert choose(label, candidates)["tabular"] == 7, "the network's are compared by themselves"


def test_settings_that_are_better_by_chance_are_seldom_chosen() -> None:
    changes = []
    for seed in range(6):
        label, candidates = make_candidates(seed, better=0)
        del candidates["tabular"]
        problem, losses = make_problem(Task.REGRESSION), []
        for choice in (choose(label, {**candidates, "tabular": [candidates["extra"][0]]}), UNTUNED):
            members = {name: candidates[name][choice[name]] for name in candidates}
            weights = greedy({k: v[SEEN] for k, v in members.items()}, Labels(problem, label[SEEN]))
            new = {name: values[NEW] for name, values in members.items()}
            losses.append(Labels(problem, label[NEW]).loss(mean(new, weights)))
        changes.append(losses[0] / losses[1] - 1)
    assert np.count_nonzero(changes) <= 3
    assert np.mean(changes) < 0.003
    assert max(changes) < 0.03


@pytest.mark.parametrize("is_ordered", [False, True])
def test_settings_that_help_in_one_group_or_time_alone_are_not_chosen(is_ordered: bool) -> None:
    label, candidates = make_candidates(2, better=0)
    for name, found in candidates.items():
        first = np.arange(NEW.stop)[:, None] < 40
        candidates[name] = [found[0], np.where(first, label[:, None], found[0] + 0.1)]
    assert choose(label, candidates)["extra"] == 1, "independent examples"
    for groups in (10, 2):
        units = np.arange(400) // (400 // groups)
        assert choose(label, candidates, units, is_ordered) == UNTUNED
