"""The model that a training goes on from: how it is told, read, and survives in every process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from test_loops import Interrupt

from tests.support.trainer_data import Transformed, read_record
from tests.support.trainings import train_whole
from tests.support.warm_data import (
    given,
    layer,
    load,
    prepare,
)
from trainer_module.base_model import (
    DESCRIPTION_FILE,
    Axis,
    DescribedWeight,
    Description,
    Feature,
    find_axes,
    read_description,
    write_description,
)
from trainer_module.errors import TrainingError
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem

pytestmark = pytest.mark.slow


def test_it_is_told_in_the_record(orders_model: str, later_orders_model: str) -> None:
    record = read_record(later_orders_model)
    assert record["warm_start"] == orders_model
    assert record["notes"][0].startswith(f"warm start: from {orders_model}, ")


def test_a_model_that_does_not_describe_itself(
    orders: Transformed, orders_model: str, tmp_path: Path
) -> None:
    """Such as one that somebody else exported."""
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    (base / DESCRIPTION_FILE).unlink()
    job = prepare(orders, tmp_path / "warm", str(base))
    assert job.notes == [
        f"warm start: {base} has no description of its weights, so Scopeline did not "
        "export the model; all weights are initialised anew"
    ]


@pytest.mark.parametrize(
    ("remove", "reason"),
    [
        ("variables/variables.data-00000-of-00001", "variables.data-00000-of-00001"),
        ("variables/variables.index", "variables"),
        ("variables", "variables"),
    ],
)
def test_a_model_that_is_half_deleted(
    orders: Transformed, orders_model: str, tmp_path: Path, remove: str, reason: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    removed = base / remove
    shutil.rmtree(removed) if removed.is_dir() else removed.unlink()
    message = (
        rf"model at {base} cannot be read: .*{reason}.*; restore the model, or .*warm_start: false"
    )
    with pytest.raises(TrainingError, match=message):
        prepare(orders, tmp_path / "warm", str(base))


@pytest.mark.parametrize("text", ["{", "[]", '{"model": "mlp"}'])
def test_a_broken_description(
    orders: Transformed, orders_model: str, tmp_path: Path, text: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    (base / DESCRIPTION_FILE).write_text(text)
    with pytest.raises(TrainingError, match=r"scopeline.json is not the description of a model"):
        prepare(orders, tmp_path / "warm", str(base))


def test_descriptions_survive_odd_values(tmp_path: Path) -> None:
    values = tuple(v.decode("utf-8", "surrogateescape") for v in (b"\xff\x00", "é\udcff".encode(
        "utf-8", "surrogateescape"), b"\xed\xb3\xbf", b'"\\', "☃".encode()))  # fmt: skip
    axes = (Axis("vocabulary", "a"), Axis("columns", parts=(("a", 2), ("b#0", 3))), Axis())
    description = Description(
        "mlp",
        "multiclass",
        ("x", "y"),
        ("x", "y"),
        (Feature("a", "categorical", (1,), 7, values), Feature("n", "numeric", (2,))),
        {"dense_3/kernel": DescribedWeight("dense#0/kernel", axes)},
    )
    write_description(description, str(tmp_path))
    assert read_description(str(tmp_path)) == description
    # As versions wrote it that knew no options of tasks.
    told = json.loads((tmp_path / DESCRIPTION_FILE).read_text())
    del told["outputs"]
    (tmp_path / DESCRIPTION_FILE).write_text(json.dumps(told))
    assert read_description(str(tmp_path)) == description
    assert len(set(values)) == len(values)


def test_buckets_of_one_number_mean_the_same() -> None:
    """As long as they are of the same hash; where nobody knows what indices are, none do."""
    keys = {
        (name, indices): Description(
            "mlp", "binary", (), (), (Feature("a", "categorical", (1,), indices, None, name),), {}
        ).keys(Axis("vocabulary", "a"), indices)
        for name, indices in [("hash", 3), ("hash", 4), ("hash of b, c", 3), ("", 3)]
    }
    assert len(set(keys["hash", 3])) == 3
    assert set(keys["hash", 3]).isdisjoint(keys["hash", 4])
    assert set(keys["hash", 3]).isdisjoint(keys["hash of b, c", 3])
    assert keys["", 3] is None


def test_numbers_side_by_side_follow_their_names() -> None:
    def axis_of(*places: str) -> Axis:
        features = (TransformedFeature("all_numbers", "numeric", (len(places),), places=places),)
        problem = Problem("binary", "y", ("no", "yes"), features)
        inputs = problem.make_inputs()
        output = tf_keras.layers.Dense(1, name="output")(inputs["all_numbers"])
        model = tf_keras.Model(inputs, output)
        return find_axes(model, problem)["output/kernel"][0]

    assert axis_of("age", "fare").parts == (("age", 1), ("fare", 1))


class Begun(tf_keras.callbacks.Callback):
    """Takes down the weights that training goes on with, by layer."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.weights = {layer.name: layer.get_weights() for layer in self.model.layers}


# Backups of replicas are in test_loops.py, base models of replicas in test_warm_start.py.
@pytest.mark.parametrize("strategy", ["default", pytest.param("mirrored")])
def test_an_interrupted_training_goes_on_from_its_own_backup(
    orders: Transformed, orders_model: str, tmp_path: Path, strategy: str
) -> None:
    inputs = given(orders, tmp_path, orders_model, strategy=strategy, learning_rate=0.5)
    steps = inputs.data.train.steps
    with pytest.raises(KeyboardInterrupt):
        train_whole(inputs, [Interrupt(2 * steps - 1, steps)])
    kept = tf.train.load_checkpoint(
        tf.train.latest_checkpoint(str(tmp_path / "model_run" / "checkpoints"))
    )
    saved = kept.get_tensor("layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE")
    begun = Begun()
    trained = train_whole(given(orders, tmp_path, orders_model, strategy=strategy), [begun])
    assert trained.start.epoch == 1
    np.testing.assert_array_equal(begun.weights["company_embedding"][0], saved)
    assert not np.array_equal(saved, layer(load(orders_model), "company_embedding")[0])


def test_nothing_in_common(shades: Transformed, orders_model: str, tmp_path: Path) -> None:
    headline, *notes = prepare(shades, tmp_path, orders_model).notes
    assert headline == (
        f"warm start: no weight of {orders_model}, a model of kind mlp, fits the new model; "
        "all weights are initialised anew"
    )
    assert "warm start: column `company` has been removed" in notes
