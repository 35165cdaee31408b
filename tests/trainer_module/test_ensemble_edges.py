"""Ensembles of unusual tables: empty parts, names of columns, classes without weight."""

from __future__ import annotations

import tracemalloc
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

from tests.support.trainer_data import Transformed, read_record, to_example
from tests.support.warm_data import export, given, using
from trainer_module import ensemble_trainer
from trainer_module.data.dealing import Folds, Parts, renumber
from trainer_module.ensemble_trainer import MemberTrainings
from trainer_module.errors import TrainingError
from trainer_module.export.reference import KerasReference
from trainer_module.families.supervised.ensemble import linear, member
from trainer_module.families.supervised.ensemble.boosted import grow_boosted
from trainer_module.families.supervised.ensemble.linear import fit_linear
from trainer_module.families.supervised.ensemble.member import forest_member
from trainer_module.families.supervised.ensemble.model import build_ensemble
from trainer_module.families.supervised.ensemble.weights import Labels
from trainer_module.families.supervised.trees import averaging, estimators
from trainer_module.families.supervised.trees.averaging import grow_averaged
from trainer_module.families.supervised.trees.forest import columns_of, split_columns
from trainer_module.families.supervised.trees.growing import TreeExamples, tree_examples
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task, TrainerSettings
from trainer_module.settings.model import DEFAULT_MEMBERS


@pytest.mark.parametrize(("given", "depths"), [({}, {3, 6}), ({"max_depth": 4}, {4})])
def test_depth_is_tried_with_the_settings_that_a_training_reads(
    given: dict[str, int], depths: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training reads settings that have a value for every key."""
    from trainer_module.families.supervised.ensemble import boosted

    tried, grow = set(), boosted.grow

    def spy(examples: Any, problem: Any, settings: TrainerSettings, *rest: Any) -> Any:
        tried.add(settings.model.max_depth)
        return grow(examples, problem, settings, *rest)

    monkeypatch.setattr(boosted, "grow", spy)
    model = ModelSettings(kind="ensemble", trees=5, **given)
    settings = TrainerSettings(label="y", task=Task.BINARY, model=model)
    read = TrainerSettings.from_custom_config(settings.to_custom_config())
    grow_boosted(make_examples(Task.BINARY), make_problem(Task.BINARY), read, FOLDS)
    assert tried == depths


@pytest.mark.parametrize("kind", ["boosted", "extra", "linear"])
def test_a_part_without_examples_is_no_failure(kind: str) -> None:
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
def test_the_network_holds_out_a_part_of_the_usual_size(
    part_of: list[int], expected: list[int], count: int
) -> None:
    found = renumber(np.array(part_of), 5, len(part_of) / 5)
    np.testing.assert_array_equal(found[0], expected)
    assert found[1] == count


def test_columns_may_have_the_names_of_members() -> None:
    names = ("mean", "linear", "random", "boosted", "calibration")
    features = tuple(TransformedFeature(name, "numeric", (1,)) for name in names)
    problem = Problem(Task.BINARY, "y", ("no", "yes"), features)
    random = np.random.default_rng(1)
    tensors = {n: tf.constant(random.normal(size=(60, 1)), tf.float32) for n in names}
    columns = columns_of(problem)
    label = np.asarray(tensors["mean"].numpy()[:, 0] > 0, np.int64)
    examples = TreeExamples(columns, split_columns(tensors, columns), label, None)
    folds = Folds(Parts(np.arange(60) % 5), 5)
    model_settings = ModelSettings(kind="ensemble", trees=5)
    settings = TrainerSettings(label="y", task=Task.BINARY, model=model_settings)
    members = {
        "boosted": grow_boosted(examples, problem, settings, folds),
        "random": forest_member(
            problem, grow_averaged("random", examples, problem, folds, 10, 3), "random"
        ),
        "linear": fit_linear(examples, problem, folds, 3),
    }
    model = build_ensemble(
        problem, {n: one.build for n, one in members.items()}, dict.fromkeys(members, 1 / 3), 2.0
    )
    assert model(tensors).shape == (60, 1)


def test_held_out_examples_without_weight_count_alike() -> None:
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


def test_the_size_of_leaves_follows_the_rows_that_are_learnt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    make = averaging._learner

    def spy(kind: str, problem: Problem, examples: int, *rest: Any) -> Any:
        sizes.append(examples)
        return make(kind, problem, examples, *rest)

    monkeypatch.setattr(averaging, "_learner", spy)
    monkeypatch.setattr(averaging, "MAX_EXAMPLES", 100)
    monkeypatch.setattr(estimators, "MAX_EXAMPLES", 100)
    examples = make_examples(Task.REGRESSION)
    grow_averaged("extra", examples, make_problem(Task.REGRESSION), Folds(FOLDS.parts, 1), 5, 3)
    assert sizes == [100]


def test_without_the_network_the_columns_have_to_suit_a_member(
    trips: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that the config leaves out is not trained instead."""
    monkeypatch.setattr(ensemble_trainer, "tree_examples", lambda _: None)
    data = using(trips, "ensemble", members=["linear"])
    with pytest.raises(TrainingError, match="does not fit into memory; add tabular to model"):
        export(data, tmp_path, epochs=1)


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


def test_forests_of_many_classes_are_small() -> None:
    classes, rows = 1000, 2000
    problem = replace(make_problem(Task.MULTICLASS), classes=tuple(map(str, range(classes))))
    tensors = make_tensors(1, rows)
    columns = columns_of(problem)
    label = np.arange(rows) % classes
    examples = TreeExamples(columns, split_columns(tensors, columns), label, None)
    grown = grow_averaged("random", examples, problem, Folds(Parts(label % 5), 1), 300, 3)
    assert sum(leaves.size for leaves in grown.forest.leaves) < 2 * averaging.MAX_VALUES
    settings = TrainerSettings(label="y", task=Task.MULTICLASS)
    with pytest.raises(TrainingError, match=r"boosted trees of 1,000 classes, .* for 2,000 rows"):
        grow_boosted(examples, problem, settings, FOLDS)


def test_predictions_of_very_many_classes_do_not_fit_into_memory() -> None:
    problem = replace(make_problem(Task.MULTICLASS), classes=("",) * 1_000_000)
    inputs: Any = SimpleNamespace(data=SimpleNamespace(problem=problem))
    reason = ensemble_trainer._lacks(make_examples(Task.MULTICLASS), inputs)
    assert reason == "the predictions of 1,000,000 classes for 400 rows take too much memory"


def test_a_class_without_examples_is_no_member_of_trees() -> None:
    """YDF would grow trees of two classes, which are not those of the task."""
    examples, problem = make_examples(Task.MULTICLASS), make_problem(Task.MULTICLASS)
    label = np.minimum(examples.label, 1)
    two = TreeExamples(examples.columns, examples.values, label, examples.weight)
    settings = TrainerSettings(
        label="y", task=Task.MULTICLASS, model=ModelSettings(kind="ensemble", trees=5)
    )
    with pytest.raises(TrainingError, match="trees need examples of all classes"):
        grow_boosted(two, problem, settings, FOLDS)


def test_a_base_model_may_have_seen_the_held_out_rows(trips: Transformed, tmp_path: Path) -> None:
    base = export(using(trips, "tabular"), tmp_path / "base", epochs=1)
    data = using(trips, "ensemble", members=["tabular", "extra"])
    record = read_record(export(data, tmp_path / "warm", base, epochs=1))
    assert record["members"]["tabular"] == {
        "weight": 0.5,
        "unseen_loss": None,
        "seconds": record["members"]["tabular"]["seconds"],
    }
    assert any("its base model may have learnt from them" in note for note in record["notes"])


def test_forests_do_not_depend_on_the_weights_of_classes(
    trips: Transformed, tmp_path: Path
) -> None:
    """Leaves of one example keep their class, so that a shift of the logits would be wrong."""
    data = using(trips, "ensemble", members=["extra"])
    losses = [
        read_record(export(data, tmp_path / str(weights), epochs=1, class_weights=weights))[
            "members"
        ]["extra"]["unseen_loss"]
        for weights in (None, "balanced")
    ]
    assert losses[0] == losses[1]


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


def test_a_network_without_memory_or_numbers_leaves_the_other_members() -> None:
    settings = TrainerSettings(label="y", task=Task.BINARY, model=ModelSettings(kind="ensemble"))
    inputs: Any = SimpleNamespace(settings=settings, prefix="")
    trainings = MemberTrainings(inputs, make_examples(Task.BINARY))
    column = tf_keras.Input((1,), name="x")
    model = tf_keras.Model(column, column * np.nan)
    tensors = {"x": tf.ones((3, 1))}
    split: Any = SimpleNamespace(content=SimpleNamespace(tensors=tensors), batch_size=2, examples=3)

    def predict_nan() -> Any:
        return ensemble_trainer._predict(model, split, inputs)

    def exhaust() -> Any:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    for fit_member, message in ((predict_nan, "are not numbers"), (exhaust, "OOM when")):
        trainings.try_member("tabular", fit_member)
        assert message in str(trainings.failures["tabular"])


@pytest.mark.parametrize(
    ("has_columns", "has_bags", "named", "expected"),
    [
        (True, True, None, list(DEFAULT_MEMBERS)),
        (True, False, ["boosted"], ["boosted"]),
        (False, True, None, ["tabular", "linear"]),
        (False, True, ["tabular"], ["tabular"]),
        (False, True, ["boosted", "linear"], ["linear"]),
        (False, True, ["boosted"], None),
        (False, False, None, None),
    ],
)
def test_members_are_those_that_can_read_the_columns_that_are_there(
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


@pytest.mark.parametrize("kind", ["boosted", "random", "linear"])
@pytest.mark.parametrize("column", ["numbers", "area"])
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
    elif kind == "linear":
        trained = fit_linear(examples, problem, folds, 3)
    else:
        grown = grow_averaged(kind, examples, problem, folds, 10, 3)
        trained = forest_member(problem, grown, kind)
    model = build_ensemble(problem, {kind: trained.build}, {kind: 1.0}, 1.0)
    model.save(tmp_path / "model")
    loaded = tf_keras.models.load_model(tmp_path / "model", compile=False)
    np.testing.assert_allclose(loaded(tensors).numpy(), model(tensors).numpy(), atol=1e-6)


def test_numbers_are_transformed_in_float32_in_any_precision(
    trips: Transformed, tmp_path: Path
) -> None:
    data = using(trips, "ensemble", members=["tabular", "linear"])
    try:
        exported = export(data, tmp_path, epochs=1, precision="mixed_bfloat16")
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    serve = tf.saved_model.load(exported).signatures["serving_default"]
    scores = serve(tf.constant([to_example(row) for row in trips.evaluation]))["scores"].numpy()
    reference = KerasReference(exported, str(trips.root / "graph"), data.settings)
    again = reference.answer([to_example(row) for row in trips.evaluation])["scores"]
    np.testing.assert_allclose(again, scores, atol=1e-5)


def test_terms_of_many_texts_take_no_more_memory_than_those_of_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bag = np.stack(np.broadcast_arrays(np.arange(1, 101), np.float32(0.1)), 1)
    bags = np.broadcast_to(bag.astype(np.float32), (20_000, 100, 2)).copy()
    text = TransformedFeature("text", "text", (100, 2), vocabulary_size=101)
    problem = Problem(Task.BINARY, "y", ("no", "yes"), (text,))
    examples = TreeExamples((), [], np.arange(20_000) % 2, None, {"text": bags})
    monkeypatch.setattr(estimators, "MAX_EXAMPLES", 1000)
    tracemalloc.start()
    try:
        fit_linear(examples, problem, Folds(Parts(np.arange(20_000) // 2 % 10), 1), 3)
        assert tracemalloc.get_traced_memory()[1] < bags.nbytes
    finally:
        tracemalloc.stop()


def test_terms_of_many_classes_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "free_memory", lambda: 5000)
    with pytest.raises(TrainingError, match="so many terms and classes takes too much memory"):
        fit("linear", Task.MULTICLASS, FOLDS)
    fit("linear", Task.REGRESSION, FOLDS)


def test_bags_are_not_copied(reviews: Transformed, tmp_path: Path) -> None:
    split = given(reviews, tmp_path, None).data.train
    first, second = tree_examples(split), tree_examples(split)
    assert first
    assert second
    assert first.bags
    assert all(np.shares_memory(first.bags[name], second.bags[name]) for name in first.bags)
