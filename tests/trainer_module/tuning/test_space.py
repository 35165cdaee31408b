"""Candidates: given settings, with the values of a trial in their place."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import MEMBERS
from trainer_module.settings.tune import Range, TuneSettings
from trainer_module.tuning.plan import SPACES, SearchPlan, automatic_space, kinds_for
from trainer_module.tuning.space import as_sections, candidate, dimensions_of, reads, with_values

GIVEN: dict[str, Any] = {
    "label": "y",
    "task": "binary",
    "features": {"x": {"type": "numeric"}},
    "model": {"kind": "tabular", "members": 4, "dropout": 0.2},
    "train": {"batch_size": 32, "optimizer": "sgd", "seed": 3},
}


def test_values_are_set_at_their_paths() -> None:
    before = repr(GIVEN)
    changed = with_values(GIVEN, {"train.optimizer.momentum": 0.9, "evaluate.folds": 3})
    assert changed["train"] == {
        "batch_size": 32,
        "optimizer": {"kind": "sgd", "momentum": 0.9},
        "seed": 3,
    }
    assert changed["evaluate"] == {"folds": 3}
    assert repr(GIVEN) == before
    assert as_sections({"model.kind": "mlp", "model.dropout": 0.1}) == {
        "model": {"kind": "mlp", "dropout": 0.1}
    }


def test_another_kind_has_its_own_defaults() -> None:
    settings = TrainerSettings.model_validate(candidate(GIVEN, {"model.kind": "mlp"}))
    assert settings.model.members == 8, "a key of tabular alone is not given to mlp"
    assert (settings.model.dropout, settings.train.batch_size) == (0.2, 32)
    assert settings.model.hidden_units == [64]
    grown = candidate(GIVEN, {"model.kind": "trees", "model.max_depth": 4})
    assert grown["train"] == {"seed": 3}
    assert grown["model"] == {"kind": "trees", "max_depth": 4}


def test_kinds_come_before_their_keys() -> None:
    space = dict.fromkeys(
        ["model.members", "train.optimizer.kind", "model.kind"], Range(choice=[1, 2])
    )
    assert [d.path for d in dimensions_of(space)] == [
        "model.kind",
        "train.optimizer.kind",
        "model.members",
    ]


@pytest.mark.parametrize("kind", SPACES)
def test_values_of_a_space_are_valid_for_its_kind(kind: str) -> None:
    features = dict.fromkeys(["bert", "bag", "text_cnn"], "text")
    features |= dict.fromkeys(["cnn", "convnet"], "image")
    column = {"type": features.get(kind, "numeric")}
    if column["type"] == "image":
        column |= {"height": 8, "width": 8, "channels": 1}
    given = {**GIVEN, "features": {"x": column}, "model": {"kind": kind}, "train": {}}
    plan = SearchPlan(given=given, tune=TuneSettings(auto=True))
    for end in (0, -1):
        values: dict[str, Any] = {"model.kind": kind} if kind in kinds_for(plan.untuned) else {}
        for dimension in plan.dimensions:
            if dimension.kinds == (kind,):
                assert reads(kind, dimension.path)
                values[dimension.path] = dimension.range.extremes[end]
        assert len(values) > 2
        settings = plan.settings(values)
        for path, value in values.items():
            found: Any = settings
            for name in path.split("."):
                found = getattr(found, name)
            assert found == value, path


def test_members_of_an_ensemble_have_spaces_and_turns_of_their_own() -> None:
    given = {**GIVEN, "model": {"kind": "ensemble", "members": ["linear", "extra", "boosted"]}}
    plan = SearchPlan(given=given, tune=TuneSettings(auto=True))
    assert plan.searches_members
    found: dict[str, Any] = {"model.members": ["extra"]}
    for dimension in plan.dimensions:
        assert dimension.kinds in (("boosted",), ("extra",)), "linear has no space of its own"
        for value in dimension.range.probes:
            plan.settings({**found, dimension.path: value})
    assert plan.settings({**found, "model.extra.min_examples": 5}).model.extra.min_examples == 5
    weights, trials = {"boosted": 0.2, "extra": 0.8, "linear": 0.5}, dict.fromkeys(MEMBERS, 0)
    for _ in range(14):
        trials[plan.next_member(trials, weights)] += 1
    assert (trials["extra"], trials["boosted"], trials["linear"]) == (10, 4, 0)
    other = SearchPlan(given=given, tune={"space": {"model.trees": {"int": [9, 90]}}})
    assert (other.searches_members, other.parallel) == (False, 1)
    assert SearchPlan(given=given, tune={"auto": True, "parallel": 3}).parallel == 3


@pytest.mark.slow
def test_kinds_that_do_not_fit_the_features_or_the_task_are_not_tried() -> None:
    def tried(**changes: Any) -> set[str]:
        settings = TrainerSettings.model_validate({**GIVEN, **changes})
        return {kind for dimension in automatic_space(settings) for kind in dimension.kinds}

    assert tried() == {"tabular", "mlp", "trees"}
    text = {"x": {"type": "text"}, "n": {"type": "numeric"}}
    assert tried(features=text) == {"tabular", "mlp"}
    assert tried(task="count", model={}, train={}) == {"tabular", "mlp"}
    image = {"x": {"type": "image", "height": 8, "width": 8, "channels": 1}}
    assert tried(features=image, model={}, train={}) == {"convnet"}
    assert tried(model={"kind": "wide_deep"}) == {"wide_deep"}
    assert tried(optimize={"prune": {}}) == {"tabular", "mlp"}
    assert tried(optimize={"quantize": "qat"}, model={"kind": "mlp"}) == {"mlp"}
