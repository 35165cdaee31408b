"""The base model of a warm start: its description, its weights, and damaged ones."""

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
    read_description,
    write_description,
)
from trainer_module.errors import TrainingError


@pytest.mark.slow
def test_record_names_the_base_model(orders_model: str, later_orders_model: str) -> None:
    record = read_record(later_orders_model)
    assert record["warm_start"] == orders_model
    assert record["notes"][0].startswith(f"warm start: from {orders_model}, ")


@pytest.mark.slow
def test_base_without_description_starts_anew(
    orders: Transformed, orders_model: str, tmp_path: Path
) -> None:
    """Such as one that somebody else exported."""
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    (base / DESCRIPTION_FILE).unlink()
    job = prepare(orders, tmp_path / "warm", str(base))
    (note,) = job.notes
    assert note.startswith(f"warm start: {base} has no description")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remove", "reason"),
    [("variables/variables.data-00000-of-00001", "variables.data-00000-of-00001")],
)
def test_base_without_its_variables_is_refused(
    orders: Transformed, orders_model: str, tmp_path: Path, remove: str, reason: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    removed = base / remove
    shutil.rmtree(removed) if removed.is_dir() else removed.unlink()
    with pytest.raises(TrainingError, match=rf"{base} .*{reason}.*warm_start: false"):
        prepare(orders, tmp_path / "warm", str(base))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", '{"model": "mlp"}'])
def test_broken_description_is_refused(
    orders: Transformed, orders_model: str, tmp_path: Path, text: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    (base / DESCRIPTION_FILE).write_text(text)
    with pytest.raises(TrainingError, match=r"scopeline\.json"):
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
    written = json.loads((tmp_path / DESCRIPTION_FILE).read_text())
    del written["outputs"]
    (tmp_path / DESCRIPTION_FILE).write_text(json.dumps(written))
    assert read_description(str(tmp_path)) == description
    assert len(set(values)) == len(values)


def test_hash_buckets_are_kept_only_for_the_same_hash() -> None:
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


class Begun(tf_keras.callbacks.Callback):
    """Takes down the weights that training goes on with, by layer."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.weights = {layer.name: layer.get_weights() for layer in self.model.layers}


@pytest.mark.slow
def test_interrupted_training_resumes_from_its_own_backup(
    orders: Transformed, orders_model: str, tmp_path: Path
) -> None:
    strategy = "mirrored"
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


@pytest.mark.slow
def test_base_without_common_weights_starts_anew(
    shades: Transformed, orders_model: str, tmp_path: Path
) -> None:
    headline, *notes = prepare(shades, tmp_path, orders_model).notes
    assert headline.startswith(f"warm start: no weight of {orders_model}")
    assert "warm start: column `company` has been removed" in notes
