"""Training in real clusters of processes, as the executor launches them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support import SUPPORT
from tests.support.trainer_data import Transformed, read_record, run_script, to_example
from tests.support.warm_data import dense, layer, load, using
from trainer_module.settings import Loop

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def train(
    data: Transformed,
    directory: Path,
    base: str | None = None,
    optimize: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Trains in the processes of the strategy; returns the chief's record."""
    fn_args = data.fn_args(directory, train=changes, optimize=optimize or {})
    names = ("train_files", "eval_files", "transform_graph_path", "custom_config")
    arguments = {name: getattr(fn_args, name) for name in names}
    arguments |= {
        "serving_model_dir": fn_args.serving_model_dir,
        "eval_model_dir": str(directory / "eval"),
        "model_run_dir": fn_args.model_run_dir,
        "base_model": base,
    }
    folders = {name: str(directory / name) for name in ("backup", "scratch")}
    order = directory / "order.json"
    order.write_text(json.dumps({"arguments": arguments, **folders}))
    run_script(SUPPORT / "cluster_run.py", str(order))
    return read_record(fn_args.serving_model_dir)


def test_workers_in_step_come_to_the_same_losses(
    later_orders: Transformed, later_orders_model: str, orders_model: str, tmp_path: Path
) -> None:
    """As one process with TensorFlow's default strategy and `fit`, from a base model."""
    expected = read_record(later_orders_model)
    options = {"strategy": "multi_worker_mirrored", "batch_size": 16, "loop": Loop.CUSTOM}
    record = train(later_orders, tmp_path, orders_model, **options)
    assert (record["workers"], record["replicas"], record["global_batch_size"]) == (2, 2, 32)
    assert record["examples_per_worker"] == [3 * 10 * 16] * 2
    assert record["warm_start"] == orders_model
    told = [note for note in record["notes"] if note.startswith("warm start: ")]
    assert told == expected["notes"]
    for name, values in expected["history"].items():
        assert record["history"][name] == pytest.approx(values, rel=1e-5), name
    assert list((tmp_path / "model_run" / "train").glob("events*")), "the chief's TensorBoard logs"
    assert list((tmp_path / "model_run" / "worker-1" / "train").glob("events*"))


@pytest.mark.slow
def test_workers_in_step_prune_and_quantise_alike(trips: Transformed, tmp_path: Path) -> None:
    optimize = {"prune": {"sparsity": 0.75}, "quantize": "qat"}
    record = train(
        trips, tmp_path, optimize=optimize, strategy="multi_worker_mirrored", batch_size=16
    )
    assert (record["workers"], record["replicas"]) == (2, 2)
    assert record["sparsity"]["overall"] == pytest.approx(0.75, abs=0.01)
    assert set(record["sparsity"]["layers"]) >= {"area_embedding", "output"}
    assert record["history"]["val_auc"][record["best_epoch"] - 1] > 0.8


def check_examples_of_workers(record: dict[str, Any], workers: int) -> None:
    counts = record["examples_per_worker"]
    drawn_at_most = record["steps"] * 32 + workers * 32 * (2 + 16)
    assert len(counts) == workers
    assert record["steps"] * 32 <= sum(counts) <= drawn_at_most, (
        "a few batches are prepared in vain"
    )


# In `make test`, test_every_strategy.py trains by this strategy and loop to a pushed model.
@pytest.mark.slow
def test_servers_train_a_model_that_can_be_served(trips: Transformed, tmp_path: Path) -> None:
    trips = using(trips, "tabular", members=3, hidden_units=[16], dropout=0.0)
    strategy = {"kind": "parameter_server", "partitioner": "none"}
    cluster = {"workers": 2, "parameter_servers": 1}
    record = train(trips, tmp_path, strategy=strategy, cluster=cluster, loop=Loop.CUSTOM, epochs=4)
    assert (record["model"], record["workers"], record["replicas"]) == ("tabular", 2, 1)
    assert record["steps"] == 4 * 15
    check_examples_of_workers(record, 2)
    assert max(record["history"]["val_auc"]) > 0.9
    served = tf.saved_model.load(str(tmp_path / "Format-Serving")).signatures["serving_default"]
    examples = tf.constant([to_example(row) for row in trips.evaluation])
    scores = served(examples=examples)["scores"][:, 1]
    tipped = np.array([row["tipped"] for row in trips.evaluation], bool)
    best = record["history"]["val_accuracy"][record["best_epoch"] - 1]
    assert np.mean((scores.numpy() > 0.5) == tipped) == pytest.approx(best, abs=1e-6)


def test_servers_begin_with_a_base_model(
    later_orders: Transformed, orders_model: str, tmp_path: Path
) -> None:
    """A learning rate of nearly nothing shows what training began with."""
    record = train(
        later_orders,
        tmp_path,
        orders_model,
        strategy={"kind": "parameter_server", "partitioner": "fixed_shards"},
        optimizer={"kind": "adamw", "clip_norm": 1.0},
        loss="focal",
        class_weights="balanced",
        cluster={"workers": 1, "parameter_servers": 2},
        loop=Loop.FIT,
        epochs=2,
        learning_rate=1e-12,
    )
    assert (record["workers"], record["replicas"], record["steps"]) == (1, 1, 2 * 10)
    check_examples_of_workers(record, 1)
    assert record["warm_start"] == orders_model
    assert "embedding of `company`: 3 of 4 values keep their vectors" in " ".join(record["notes"])
    old, new = load(orders_model), load(str(tmp_path / "Format-Serving"))
    was, rows = (layer(model, "company_embedding")[0] for model in (old, new))
    np.testing.assert_allclose(rows[[3, 2, 0]], was[:3], atol=1e-6)
    np.testing.assert_allclose(dense(new)[1][0], dense(old)[1][0], atol=1e-6)
