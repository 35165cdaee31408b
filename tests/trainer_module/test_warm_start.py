"""Weights that go on from an exported model: they follow values, classes and columns."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.trainer_data import Transformed, read_record
from tests.support.trainings import begin, train_whole
from tests.support.warm_data import (
    ODD,
    dense,
    export,
    given,
    layer,
    load,
    prepare,
    using,
)
from trainer_module.base_model import (
    DESCRIPTION_FILE,
    Description,
    Feature,
)
from trainer_module.training.warm_start import _changes, _CopyCounts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixture", "model", "strategy"),
    [("shades", "shades_model", "mirrored"), ("houses", "houses_model", "central_storage")],
)
def test_training_on_the_same_data_continues_from_its_weights(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str, model: str, strategy: str
) -> None:
    """The models are a cnn and a wide_deep."""
    data, base = request.getfixturevalue(fixture), request.getfixturevalue(model)
    replicas = 1 if strategy == "default" else 2
    batch_size = data.settings.train.batch_size // replicas
    train = {"strategy": strategy, "epochs": 1, "batch_size": batch_size}
    inputs = given(data, tmp_path, base, **train)
    job = begin(inputs)
    assert job.notes == [f"warm start: from {base}, all weights"]
    for new, old in zip(job.model.get_weights(), load(base).get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
    # The base began cold, with the same seed and global batch.
    cold = read_record(base)["history"]["loss"][0]
    job = train_whole(inputs)
    assert job.history["loss"][0] < cold / 2
    copies = [inputs.strategy.experimental_local_results(w) for w in job.model.trainable_weights]
    assert {len(values) for values in copies} == {2 if strategy == "mirrored" else 1}
    for values in copies:
        np.testing.assert_array_equal(values[0], values[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "wide_deep"])
def test_weights_follow_their_values_classes_and_columns(
    orders: Transformed, later_orders: Transformed, orders_model: str, tmp_path: Path, kind: str
) -> None:
    orders, later_orders = using(orders, kind), using(later_orders, kind)
    base = orders_model if kind == "mlp" else export(orders, tmp_path / "base", epochs=1)
    fresh = prepare(later_orders, tmp_path / "fresh", None).model
    job = prepare(later_orders, tmp_path / "warm", base)
    old, new = load(base), job.model

    before = [*orders.tft_output.vocabulary_by_name("company"), "out of vocabulary"]
    now = [*later_orders.tft_output.vocabulary_by_name("company"), "out of vocabulary"]
    assert before == [b"Ace", ODD, b"Best", "out of vocabulary"]
    assert now == [b"Best", b"New", ODD, b"Ace", "out of vocabulary"]
    (was,), (start,), (rows,) = (layer(m, "company_embedding") for m in (old, fresh, new))
    for index, value in enumerate(now):
        expected = was[before.index(value)] if value in before else start[index]
        np.testing.assert_array_equal(rows[index], expected, str(value))

    # amount, bonus, company (8 numbers), zip; it was amount, company, old, zip.
    (was, _), (start, _), (rows, bias) = (dense(m)[0] for m in (old, fresh, new))
    np.testing.assert_array_equal(rows[[0, *range(2, 11)]], was[[*range(9), 10]])
    np.testing.assert_array_equal(rows[1], start[1])
    np.testing.assert_array_equal(bias, dense(old)[0][1])
    np.testing.assert_array_equal(dense(new)[1][0], dense(old)[1][0])

    assert (orders.problem.classes, later_orders.problem.classes) == (
        ("ham", "news", "urgent"),
        ("ham", "news", "spam", "urgent"),
    )
    output = "output" if kind == "mlp" else "deep"
    for was, start, rows in zip(*(layer(m, output) for m in (old, fresh, new)), strict=True):
        np.testing.assert_array_equal(rows[..., [0, 1, 3]], was)
        np.testing.assert_array_equal(rows[..., 2], start[..., 2])
    if kind == "wide_deep":
        (was,), (rows,) = (layer(m, "company_wide") for m in (old, new))
        np.testing.assert_array_equal(rows[np.ix_([3, 2, 0], [0, 1, 3])], was[:3])
        assert not rows[1].any()
        assert not rows[:, 2].any()
        (was, _), (rows, _) = (layer(m, "wide") for m in (old, new))
        np.testing.assert_array_equal(rows[np.ix_([0, 2], [0, 1, 3])], was[[0, 2]])

    headline, *notes = job.notes
    assert headline.startswith(f"warm start: from {base}, ")
    assert headline.endswith("% of the weights")
    changed = ("`spam` is new", "`bonus` is new", "`company`: 3 of 4", "`old` has been removed")
    assert all(part in note for part, note in zip(changed, notes, strict=True))


@pytest.mark.slow
def test_a_layer_of_another_size_starts_fresh(
    orders: Transformed, orders_model: str, tmp_path: Path
) -> None:
    changed = using(orders, "mlp", hidden_units=[16, 12])
    job = prepare(changed, tmp_path, orders_model)
    old = load(orders_model)
    np.testing.assert_array_equal(dense(job.model)[0][0], dense(old)[0][0])
    assert not dense(job.model)[1][1].any(), "a fresh bias"
    _, second = (x.name for x in job.model.layers if x.name.startswith("dense"))
    assert [note for note in job.notes if "8 -> 12" in note] == job.notes[1:]
    assert second in job.notes[1]


@pytest.mark.slow
def test_other_classes_of_a_binary_label(
    trips: Transformed, trips_model: str, tmp_path: Path
) -> None:
    base = shutil.copytree(trips_model, tmp_path / "base")
    path = base / DESCRIPTION_FILE
    described = json.loads(path.read_text())
    assert described["classes"] == ["0", "1"]
    assert described["outputs"] == ['["0", "1"]']
    other = {"classes": ["1", "2"], "outputs": ['["1", "2"]']}
    path.write_text(json.dumps(described | other))
    job = prepare(trips, tmp_path / "warm", str(base))
    assert not layer(job.model, "output")[1].any(), "a fresh bias"
    np.testing.assert_array_equal(dense(job.model)[0][0], dense(load(str(base)))[0][0])
    assert "`1` and `2`" in job.notes[1]


@pytest.mark.slow
def test_output_has_the_scale_of_the_new_label(
    houses: Transformed, houses_model: str, tmp_path: Path
) -> None:
    """The same weights give, for a label ten times as large, predictions ten times as large."""
    inputs = given(houses, tmp_path / "warm", houses_model)
    loaded = inputs.data
    problem = replace(
        loaded.problem,
        label_mean=10 * loaded.problem.label_mean,
        label_deviation=10 * loaded.problem.label_deviation,
    )
    job = begin(replace(inputs, data=replace(loaded, problem=problem)))
    transformed = houses.transform(houses.evaluation)
    transformed.pop("price")
    found = job.model.predict(transformed, verbose=0)
    np.testing.assert_allclose(
        found, 10 * load(houses_model).predict(transformed, verbose=0), rtol=1e-4
    )


def test_embedding_of_more_words_keeps_the_known_ones() -> None:
    def describe(length: int, *words: str) -> Description:
        text = Feature("review", "text", (length,), len(words) + 1, words)
        return Description("text_cnn", "binary", ("no", "yes"), ("yes",), (text,), {})

    taken = _CopyCounts(has_unique_names=True, vocabularies={"review"})
    (note,) = _changes(describe(9, "good", "film", "new"), describe(8, "good", "film"), taken)
    assert "`review`: 2 of 3" in note
    (note,) = _changes(describe(9, "good"), describe(8, "good"), _CopyCounts(has_unique_names=True))
    assert "`review` has another" in note
