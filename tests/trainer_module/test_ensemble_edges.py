"""Ensembles of unusual tables: empty parts, names of columns, classes without weight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from test_ensemble import FOLDS, fit, make_examples, predict
from test_trees import ROWS, make_problem, make_tensors

from tests.support.trainer_data import Transformed, read_record
from tests.support.warm_data import export, given, using
from trainer_module import ensemble_trainer
from trainer_module.data.dealing import Folds, Parts, renumber
from trainer_module.ensemble_trainer import MemberTrainings
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.ensemble import linear, member
from trainer_module.families.supervised.ensemble.boosted import grow_boosted
from trainer_module.families.supervised.ensemble.linear import fit_linear
from trainer_module.families.supervised.ensemble.model import build_ensemble
from trainer_module.families.supervised.ensemble.weights import Labels
from trainer_module.families.supervised.trees.forest import columns_of, split_columns
from trainer_module.families.supervised.trees.growing import TreeExamples, tree_examples
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task, TrainerSettings
from trainer_module.settings.model import DEFAULT_MEMBERS


@pytest.mark.parametrize("kind", ["boosted", "extra", "linear"])
def test_empty_part_is_never_held_out(kind: str) -> None:
    """Examples of a class that only one part has are always learnt from; the part may be empty."""
    part_of = np.arange(ROWS) % 5
    part_of[part_of == 3] = 5
    found = fit(kind, Task.BINARY, Folds(Parts(part_of), 5))
    np.testing.assert_array_equal(np.isnan(found.unseen[:, 0]), part_of == 5)


@pytest.mark.parametrize(
    ("part_of", "expected", "count"),
    [
        ([0, 0, 0, 0, 1, 1, 2, 3], [3, 3, 3, 3, 0, 0, 1, 2], 4),  # a large group
        ([0, 0, 2, 4, 4, 5, 5, 5], [0, 0, 2, 1, 1, 5, 5, 5], 3),  # empty parts, exempt examples
        ([5, 5], [5, 5], 0),
        ([0, 0, 0, 0, 0, 1, 1, 2], [2, 2, 2, 2, 2, 0, 0, 1], 2),  # most examples are not held out
    ],
)
def test_network_holds_out_a_part_of_the_usual_size(
    part_of: list[int], expected: list[int], count: int
) -> None:
    found = renumber(np.array(part_of), 5, len(part_of) / 5)
    np.testing.assert_array_equal(found[0], expected)
    assert found[1] == count


def test_held_out_examples_of_weight_0_count_equally() -> None:
    """All held-out examples may be of a class of weight 0."""
    problem = make_problem(Task.BINARY)
    zeros = np.zeros(2, np.float32)
    found = Labels(problem, np.array([1, 1]), zeros).loss(np.array([[0.5], [0.5]]))
    assert found == pytest.approx(np.log(2))
    examples = make_examples(Task.BINARY)
    weight = np.asarray(examples.label, np.float32)
    part_of = np.where(examples.label == 0, np.arange(ROWS) % 2, 1 + np.arange(ROWS) % 2)
    unweighted = TreeExamples(examples.columns, examples.values, examples.label, weight)
    folds = Folds(Parts(part_of), 3)
    fitted = fit_linear(unweighted, problem, folds, 3)
    assert np.isfinite(predict(problem, fitted, make_tensors(1))).all()
    settings = TrainerSettings(
        label="y", task=Task.BINARY, model=ModelSettings(kind="ensemble", trees=5)
    )
    grown = grow_boosted(unweighted, problem, settings, folds)
    assert np.isfinite(predict(problem, grown, make_tensors(1))).all()


def test_boosted_trees_grow_from_very_few_rows() -> None:
    """A sample of few rows may be empty, at which YDF ends the process."""
    problem, tensors = make_problem(Task.REGRESSION), make_tensors(1, 3)
    columns = columns_of(problem)
    label = np.array([4000, 5000, 6000], np.float32)
    examples = TreeExamples(columns, split_columns(tensors, columns), label, None)
    settings = TrainerSettings(
        label="y", task=Task.REGRESSION, model=ModelSettings(kind="ensemble", trees=200)
    )
    for part_of in ([0, 1, 2], [0, 0, 1], [-1, -1, -1]):
        folds = Folds(Parts(np.array(part_of)), max(part_of) + 1 or 1)
        grown = grow_boosted(examples, problem, settings, folds)
        assert np.isfinite(predict(problem, grown, tensors)).all()


def test_trees_refuse_a_class_without_examples() -> None:
    """YDF would grow trees of two classes, which are not those of the task."""
    examples, problem = make_examples(Task.MULTICLASS), make_problem(Task.MULTICLASS)
    label = np.minimum(examples.label, 1)
    two = TreeExamples(examples.columns, examples.values, label, examples.weight)
    settings = TrainerSettings(
        label="y", task=Task.MULTICLASS, model=ModelSettings(kind="ensemble", trees=5)
    )
    with pytest.raises(TrainingError, match="all classes"):
        grow_boosted(two, problem, settings, FOLDS)


@pytest.mark.slow
def test_warm_started_network_has_no_unseen_loss(trips: Transformed, tmp_path: Path) -> None:
    base = export(using(trips, "tabular"), tmp_path / "base", epochs=1)
    data = using(trips, "ensemble", members=["tabular", "extra"])
    record = read_record(export(data, tmp_path / "warm", base, epochs=1))
    assert record["members"]["tabular"] == {
        "weight": 0.5,
        "unseen_loss": None,
        "seconds": record["members"]["tabular"]["seconds"],
    }
    assert any("its base model may have learnt from them" in note for note in record["notes"])


@pytest.mark.slow
def test_a_member_with_infinite_predictions_is_left_out(
    trips: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = ensemble_trainer.fit_linear

    def break_down(*args: Any) -> member.Member:
        found = make(*args)
        found.unseen[3] = np.inf
        return found

    monkeypatch.setattr(ensemble_trainer, "fit_linear", break_down)
    record = read_record(export(using(trips, "ensemble", members=["linear", "extra"]), tmp_path))
    assert list(record["members"]) == ["extra"]


@pytest.mark.parametrize(
    ("has_columns", "has_bags", "named", "expected"),
    [
        (True, True, None, list(DEFAULT_MEMBERS)),
        (False, True, None, ["tabular", "linear"]),
        (False, True, ["boosted", "linear"], ["linear"]),
        (False, True, ["boosted"], None),
    ],
)
def test_members_follow_the_columns_that_they_can_read(
    has_columns: bool, has_bags: bool, named: list[str] | None, expected: list[str] | None
) -> None:
    """Also columns of a `preprocessing_fn` beside texts, and each member alone in a search."""
    model = {"kind": "ensemble", **({"members": named} if named else {})}
    text = {"review": {"type": "text"}}
    settings = TrainerSettings(label="y", task=Task.BINARY, model=model, features=text)
    examples = make_examples(Task.BINARY)
    bags = {"review": np.zeros((ROWS, 4, 2), np.float32)} if has_bags else {}
    columns = examples.columns if has_columns else ()
    examples = replace(examples, columns=columns, bags=bags)
    data = SimpleNamespace(problem=make_problem(Task.BINARY))
    inputs: Any = SimpleNamespace(settings=settings, prefix="", data=data)
    reason = ensemble_trainer._lacks(examples, inputs)
    if expected:
        assert (MemberTrainings(inputs, examples).names, reason) == (expected, "")
    else:
        assert reason == "there are no columns of numbers or categories"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "column"), [("boosted", "numbers"), ("linear", "area")])
def test_a_model_of_one_member_and_one_column_can_be_loaded(
    column: str, kind: str, tmp_path: Path
) -> None:
    """Keras loads a list of one tensor as the tensor."""
    is_number = column == "numbers"
    feature = TransformedFeature(
        column, "numeric" if is_number else "categorical", (3,), 0 if is_number else 5
    )
    problem = Problem(Task.BINARY, "y", ("no", "yes"), (feature,))
    random = np.random.default_rng(1)
    found = random.normal(size=(60, 3)).astype(np.float32) if is_number else None
    values = random.integers(0, 5, (60, 3)) if found is None else found
    tensors, columns = {column: tf.constant(values)}, columns_of(problem)
    label = np.arange(60) % 2
    examples = TreeExamples(columns, split_columns(tensors, columns), label, None)
    folds = Folds(Parts(np.arange(60) // 2 % 5), 5)
    settings = TrainerSettings(
        label="y", task=Task.BINARY, model=ModelSettings(kind="ensemble", trees=5)
    )
    if kind == "boosted":
        trained = grow_boosted(examples, problem, settings, folds)
    else:
        trained = fit_linear(examples, problem, folds, 3)
    model = build_ensemble(problem, {kind: trained.build}, {kind: 1.0}, 1.0)
    model.save(tmp_path / "model")
    loaded = tf_keras.models.load_model(tmp_path / "model", compile=False)
    np.testing.assert_allclose(loaded(tensors).numpy(), model(tensors).numpy(), atol=1e-6)


def test_terms_of_many_classes_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "free_memory", lambda: 5000)
    with pytest.raises(TrainingError, match="memory"):
        fit("linear", Task.MULTICLASS, FOLDS)
    fit("linear", Task.REGRESSION, FOLDS)


@pytest.mark.slow
def test_bags_are_not_copied(reviews: Transformed, tmp_path: Path) -> None:
    split = given(reviews, tmp_path, None).data.train
    first, second = tree_examples(split), tree_examples(split)
    assert first
    assert second
    assert first.bags
    assert all(np.shares_memory(first.bags[name], second.bags[name]) for name in first.bags)
