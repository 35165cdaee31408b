"""Trees: grown by YDF, walked by TensorFlow, and the record of their training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import ydf

from tests.support.trainer_data import Transformed, read_record, to_example
from tests.support.warm_data import export, using
from trainer_module.data.dealing import Folds, Parts
from trainer_module.export.reference import KerasReference
from trainer_module.families.supervised.trees import growing
from trainer_module.families.supervised.trees.forest import columns_of, split_columns
from trainer_module.families.supervised.trees.growing import GrownForest, TreeExamples, grow
from trainer_module.families.supervised.trees.model import build_model
from trainer_module.families.supervised.trees.rounding import merge_rounded
from trainer_module.families.supervised.trees.thresholds import move_thresholds
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task, TrainerSettings

FEATURES = (
    TransformedFeature("amount", "numeric", (1,)),
    TransformedFeature("area", "categorical", (1,), vocabulary_size=70),
    TransformedFeature("spot", "numeric", (2,)),
    TransformedFeature("tags", "categorical", (2,), vocabulary_size=5),
)
CLASSES = {Task.BINARY: ("no", "yes"), Task.MULTICLASS: ("a", "b", "c"), Task.REGRESSION: ()}
ROWS = 400


def make_tensors(seed: int, rows: int = ROWS) -> dict[str, tf.Tensor]:
    """Some numbers are missing; of `area` the last third is never seen with seed 1."""
    random = np.random.default_rng(seed)
    spot = random.normal(size=(rows, 2)).astype(np.float32)
    spot[random.random((rows, 2)) < 0.1] = np.nan
    return {
        "amount": tf.constant(random.normal(size=(rows, 1)).astype(np.float32)),
        "area": tf.constant(random.integers(0, 45 if seed == 1 else 70, (rows, 1))),
        "spot": tf.constant(spot),
        "tags": tf.constant(random.integers(-1, 5, (rows, 2))),
    }


def make_label(task: Task, tensors: dict[str, tf.Tensor]) -> np.ndarray:
    raw = {name: values.numpy() for name, values in tensors.items()}
    score = raw["amount"][:, 0] + (raw["area"][:, 0] % 3 == 0)
    score = score + np.nan_to_num(raw["spot"][:, 1]) * (raw["tags"][:, 0] == 2)
    match task:
        case Task.REGRESSION:
            return np.asarray(5000 + 300 * score, np.float32)
        case Task.BINARY:
            return np.asarray(score > -0.5, np.int64)
    return np.digitize(score, [-1, 0])


def make_problem(task: Task) -> Problem:
    return Problem(task, "y", CLASSES[task], FEATURES, label_mean=5000.0, label_deviation=300.0)


def grow_some(
    task: Task, monkeypatch: pytest.MonkeyPatch, members: int = 3, **model: Any
) -> tuple[GrownForest, list[Any]]:
    """The forest, and the models of YDF that it is the mean of."""
    problem, tensors = make_problem(task), make_tensors(1)
    columns = columns_of(problem)
    weight = np.linspace(0, 2, ROWS, dtype=np.float32)
    label = make_label(task, tensors)
    examples = TreeExamples(columns, split_columns(tensors, columns), label, weight)
    settings = TrainerSettings(label="y", task=task, model=ModelSettings(kind="trees", **model))
    models, train = [], ydf.GradientBoostedTreesLearner.train

    def spy(*args: Any, **options: Any) -> Any:
        models.append(train(*args, **options))
        return models[-1]

    monkeypatch.setattr(ydf.GradientBoostedTreesLearner, "train", spy)
    parts = Parts(np.arange(ROWS) % 10)
    return grow(examples, problem, settings, Folds(parts, members), lambda *_: None), models


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "has_bins"),
    [(Task.BINARY, True), (Task.MULTICLASS, False), (Task.REGRESSION, False)],
)
def test_tensorflow_predicts_what_ydf_does(
    task: Task, has_bins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_bins:
        monkeypatch.setattr(growing, "MAX_EXACT_EXAMPLES", ROWS - 1)
    problem = make_problem(task)
    grown, models = grow_some(task, monkeypatch, trees=20)
    forest_model = build_model(problem, grown.forest)
    unseen = make_tensors(2, 1000)
    columns = {
        # A code that no tree knows would be read past the end of YDF's bitmaps.
        str(place): np.where(values >= known, 0, values).astype(np.int32) if known else values
        for place, (values, known) in enumerate(
            zip(split_columns(unseen, columns_of(problem)), grown.forest.known_codes, strict=True)
        )
    }
    logits = [model.predict(columns) for model in models]
    if task is not Task.REGRESSION:
        logits = [np.log(p) - np.log1p(-p) if p.ndim == 1 else np.log(p) for p in logits]
    mean = np.mean(logits, axis=0).reshape(1000, -1)
    expected = {
        Task.REGRESSION: lambda: mean * 300 + 5000,
        Task.BINARY: lambda: 1 / (1 + np.exp(-mean)),
        Task.MULTICLASS: lambda: tf.nn.softmax(mean).numpy(),
    }[task]()
    seen = make_tensors(1)
    if task is not Task.REGRESSION:
        found = forest_model(seen).numpy()
        found = found.argmax(1) if task is Task.MULTICLASS else found[:, 0] > 0.5
        assert np.mean(found == make_label(task, seen)) > 0.9
    assert grown.forest.words, "it splits on categories as well"
    assert any(map(len, grown.forest.boundaries)) == has_bins
    np.testing.assert_allclose(forest_model(unseen).numpy(), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("trainer_module.families.supervised.trees.model.MAX_PARALLEL_TREES", 7)
    in_slices = tf.function(build_model(problem, grown.forest))
    np.testing.assert_allclose(in_slices(unseen), expected, rtol=1e-5, atol=1e-5)
    empty = {name: values[:0] for name, values in unseen.items()}
    assert forest_model(empty).shape == (0, problem.output_units)
    one = {name: values[7:8] for name, values in reversed(unseen.items())}
    np.testing.assert_allclose(forest_model(one).numpy(), expected[7:8], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_trees_stop_when_more_are_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    grown, (model,) = grow_some(Task.BINARY, monkeypatch, members=1)
    assert grown.stopped_early
    assert grown.largest_member == model.num_trees() < 500
    losses = grown.history["val_loss"]
    assert losses[grown.largest_member - 1] == pytest.approx(min(losses))


def test_forest_does_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "MAX_SINGLE_THREAD_EXAMPLES", ROWS - 1)
    forests = []
    for cores in (1, 3):
        monkeypatch.setattr(growing, "count_cores", lambda cores=cores: cores)
        forests.append(grow_some(Task.BINARY, monkeypatch, members=1, trees=10)[0].forest)
    assert forests[0].value == forests[1].value
    np.testing.assert_array_equal(forests[0].threshold, forests[1].threshold)


@pytest.mark.slow
def test_importances_ignore_gains_by_noise() -> None:
    problem = Problem(
        Task.BINARY,
        "y",
        ("no", "yes"),
        (
            TransformedFeature("price", "numeric", (1,)),
            TransformedFeature("price_missing", "numeric", (1,)),
            TransformedFeature("tags", "categorical", (2,), vocabulary_size=4),
            TransformedFeature("user", "categorical", (1,), vocabulary_size=100),
        ),
    )
    random, rows = np.random.default_rng(3), 2000
    raw = {
        "price": random.normal(size=(rows, 1)).astype(np.float32),
        "price_missing": (random.random((rows, 1)) < 0.3).astype(np.float32),
        "tags": random.integers(0, 4, (rows, 2)),
        "user": random.integers(0, 100, (rows, 1)),
    }
    score = 0.7 * raw["price"] + raw["price_missing"] + 0.5 * (raw["tags"][:, 1:] == 2)
    label = (score + random.normal(size=(rows, 1)) > 0.5).astype(np.int64)[:, 0]
    columns = columns_of(problem)
    tensors = {name: tf.constant(values) for name, values in raw.items()}
    examples = TreeExamples(columns, split_columns(tensors, columns), label, None)
    settings = TrainerSettings(
        label="y", task=Task.BINARY, model=ModelSettings(kind="trees", trees=30)
    )
    folds = Folds(Parts(np.arange(rows) % 4), 1)
    grown = grow(examples, problem, settings, folds, lambda *_: None)
    gained, user = grown.forest.gains, len(columns) - 1
    assert gained[user] > 0.25 * gained.total(), "the trees split by noise"
    assert list(grown.importances)[:2] == ["price", "tags"]
    assert grown.importances["price"] > 0.7
    assert grown.importances.get("user", 0) < 0.03


@pytest.mark.slow
def test_exported_trees_and_their_record(trips: Transformed, tmp_path: Path) -> None:
    grown = using(trips, "trees", trees=40)
    model = export(grown, tmp_path)
    record = read_record(model)
    assert record["model"] == "trees"
    assert record["history"].keys() == {"loss", "val_loss"}
    assert record["best_epoch"] <= record["epochs"] <= 40
    assert record["trees"] <= 5 * 40
    assert set(record["importances"]) <= {feature.name for feature in trips.problem.features}
    assert set(list(record["importances"])[:2]) == {"fare", "company"}
    assert sum(record["importances"].values()) == pytest.approx(1)
    serve = tf.saved_model.load(model).signatures["serving_default"]
    rows = [row for row in trips.evaluation if row["tipped"] is not None]
    serialised = [to_example(row) for row in rows]
    scores = serve(tf.constant(serialised))["scores"].numpy()
    reference = KerasReference(model, str(trips.root / "graph"), grown.settings)
    np.testing.assert_allclose(reference.answer(serialised)["scores"], scores, atol=1e-6)
    label = np.array([row["tipped"] for row in rows])
    assert np.mean((scores[:, 1] > 0.5) == label) > 0.93


def test_values_that_differ_by_rounding_are_one_value() -> None:
    hours = np.sin(np.arange(24) / 24 * 2 * np.pi).astype(np.float32)
    noisy = np.nextafter(hours, np.float32(2))
    values = np.concatenate([hours, noisy, np.float32([np.nan, np.inf, -np.inf, 6e-8, -6e-8])])
    merged = merge_rounded(values)
    np.testing.assert_array_equal(merged[:24], merged[24:48])
    np.testing.assert_allclose(merged, values, atol=1e-6)
    assert len(set(merged[:24].tolist())) == len({round(v, 4) for v in hours.tolist()})
    assert merged[-2] == merged[-1] == merged[0]


def test_values_that_differ_by_more_than_rounding_are_kept() -> None:
    outlier = np.float32([*range(18, 90), 999_999_999])
    for values in (
        np.linspace(0, 1, 300_000, dtype=np.float32),
        np.float32([np.nan, 3, np.nan]),
        np.float32([]),
        np.zeros(3, np.float32),
        outlier,
        (outlier - np.float32(1e6)) / np.float32(3e7),
    ):
        np.testing.assert_array_equal(merge_rounded(values), values)


@pytest.mark.slow
def test_thresholds_lie_between_the_values_of_a_grid() -> None:
    """The middle of two prices is often a price, which a rounding error puts on either side."""
    problem = make_problem(Task.REGRESSION)
    prices = np.float32(np.random.default_rng(2).integers(0, 60, ROWS) / 4)
    tensors = make_tensors(1) | {"amount": tf.constant(prices[:, np.newaxis])}
    columns = columns_of(problem)
    label = np.float32(5000 + 300 * (prices % 7))
    examples = TreeExamples(columns, split_columns(tensors, columns), label, None)
    settings = TrainerSettings(label="y", task="regression", model=ModelSettings(kind="trees"))
    grown = grow(examples, problem, settings, Folds(Parts(np.arange(ROWS) % 5), 1), lambda *_: None)
    before = np.float32(grown.forest.threshold)
    expected = build_model(problem, grown.forest).predict(tensors, verbose=0)
    move_thresholds(grown.forest, examples.values)
    found = build_model(problem, grown.forest).predict(tensors, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    amount = np.asarray(grown.forest.column) == 0
    assert np.isin(before[amount] * 4, np.arange(61)).any(), "YDF's thresholds are some prices"
    moved = np.float32(grown.forest.threshold)[amount] * 4
    distance = np.abs(moved - np.round(moved))
    assert distance[~np.isnan(distance)].min() > 1e-3
