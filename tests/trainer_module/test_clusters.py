"""Training in real clusters of processes, as the executor launches them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.trainer_data import Transformed, read_record
from tests.support.trainings import train_in_cluster
from tests.support.warm_data import dense, layer, load
from trainer_module.settings import Loop

pytestmark = pytest.mark.slow


def test_workers_in_step_have_the_losses_of_one_process(
    later_orders: Transformed, later_orders_model: str, orders_model: str, tmp_path: Path
) -> None:
    """As one process with TensorFlow's default strategy and `fit`, from a base model."""
    expected = read_record(later_orders_model)
    options = {"strategy": "multi_worker_mirrored", "batch_size": 16, "loop": Loop.CUSTOM}
    record = train_in_cluster(later_orders, tmp_path, orders_model, train=options)
    assert (record["workers"], record["replicas"], record["global_batch_size"]) == (2, 2, 32)
    assert record["examples_per_worker"] == [3 * 10 * 16] * 2
    assert record["warm_start"] == orders_model
    notes = [note for note in record["notes"] if note.startswith("warm start: ")]
    assert notes == expected["notes"]
    for name, values in expected["history"].items():
        assert record["history"][name] == pytest.approx(values, rel=1e-5), name
    assert list((tmp_path / "model_run" / "train").glob("events*")), "the chief's TensorBoard logs"
    assert list((tmp_path / "model_run" / "worker-1" / "train").glob("events*"))


def test_parameter_servers_begin_with_a_base_model(
    later_orders: Transformed, orders_model: str, tmp_path: Path
) -> None:
    """A learning rate of nearly nothing shows what training began with."""
    options = {
        "strategy": {"kind": "parameter_server", "partitioner": "fixed_shards"},
        "optimizer": {"kind": "adamw", "clip_norm": 1.0},
        "loss": "focal",
        "class_weights": "balanced",
        "cluster": {"workers": 1, "parameter_servers": 2},
        "epochs": 2,
        "learning_rate": 1e-12,
    }
    record = train_in_cluster(later_orders, tmp_path, orders_model, train=options)
    assert (record["workers"], record["replicas"], record["steps"]) == (1, 1, 2 * 10)
    (count,) = record["examples_per_worker"]
    assert record["steps"] * 32 <= count <= (record["steps"] + 2 + 16) * 32, (
        "a few batches are prepared in vain"
    )
    assert record["warm_start"] == orders_model
    assert "embedding of `company`: 3 of 4 values keep their vectors" in " ".join(record["notes"])
    old, new = load(orders_model), load(str(tmp_path / "Format-Serving"))
    was, rows = (layer(model, "company_embedding")[0] for model in (old, new))
    np.testing.assert_allclose(rows[[3, 2, 0]], was[:3], atol=1e-6)
    np.testing.assert_allclose(dense(new)[1][0], dense(old)[1][0], atol=1e-6)
