"""Training in real clusters of processes, as the executor launches them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from trainer_data import Transformed, to_example

from components.trainer.cluster.local.launcher import LocalLauncher
from components.trainer.cluster.supervisor import ClusterJob, Supervisor
from components.trainer.tasks import Training, make_tasks, restart_policy
from trainer_module.record import RECORD_FILE
from trainer_module.runtime import Runtime
from trainer_module.settings import Loop, Strategy, TrainerSettings
from trainer_module.trainer import run_fn

pytestmark = pytest.mark.timeout(180)


def train(data: Transformed, directory: Path, **changes: Any) -> dict[str, Any]:
    """Trains in the processes of the strategy; returns the chief's record."""
    fn_args = data.fn_args(directory, train=changes)
    settings = TrainerSettings.from_custom_config(fn_args.custom_config)
    runtime = Runtime(backup_directory=str(directory / "backup"))
    names = ("train_files", "eval_files", "transform_graph_path", "custom_config")
    arguments = {name: getattr(fn_args, name) for name in names}
    arguments |= {
        "serving_model_dir": fn_args.serving_model_dir,
        "eval_model_dir": str(directory / "eval"),
        "model_run_dir": fn_args.model_run_dir,
    }
    run = f"{run_fn.__module__}.{run_fn.__name__}"
    training = Training(run, arguments, settings, runtime, str(directory / "scratch"))
    strategy = Strategy(settings.train.strategy.kind)
    tasks = make_tasks(training, strategy, None)
    Supervisor(LocalLauncher(), ClusterJob(tasks, restart_policy(strategy), 100)).run()
    return dict(json.loads((directory / "model_run" / RECORD_FILE).read_text()))


@pytest.fixture(scope="module")
def expected(trips: Transformed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process with TensorFlow's default strategy comes to."""
    directory = tmp_path_factory.mktemp("expected")
    run_fn(trips.fn_args(directory))
    return dict(json.loads((directory / "model_run" / RECORD_FILE).read_text()))


@pytest.mark.parametrize("loop", Loop)
def test_workers_in_step_come_to_the_same_losses(
    trips: Transformed, expected: dict[str, Any], tmp_path: Path, loop: Loop
) -> None:
    record = train(trips, tmp_path, strategy="multi_worker_mirrored", batch_size=16, loop=loop)
    assert (record["workers"], record["replicas"], record["global_batch_size"]) == (2, 2, 32)
    assert record["examples_per_worker"] == [3 * 15 * 16] * 2
    for name, values in expected["history"].items():
        assert record["history"][name] == pytest.approx(values, rel=1e-5), name
    assert list((tmp_path / "model_run" / "train").glob("events*")), "the chief's TensorBoard logs"
    assert list((tmp_path / "model_run" / "worker-1" / "train").glob("events*"))


@pytest.mark.parametrize(
    ("loop", "partitioner"), [(Loop.FIT, "fixed_shards"), (Loop.CUSTOM, "none")]
)
def test_servers_train_a_model_that_can_be_served(
    trips: Transformed, tmp_path: Path, loop: Loop, partitioner: str
) -> None:
    record = train(
        trips,
        tmp_path,
        strategy={"kind": "parameter_server", "partitioner": partitioner},
        cluster={"workers": 2, "parameter_servers": 2},
        loop=loop,
        epochs=4,
    )
    assert (record["workers"], record["replicas"], record["steps"]) == (2, 1, 4 * 15)
    counts = record["examples_per_worker"]
    drawn_at_most = 4 * 15 * 32 + 2 * 32 * (2 + 16)
    assert len(counts) == 2
    assert 4 * 15 * 32 <= sum(counts) <= drawn_at_most, "a few batches are prepared in vain"
    assert max(record["history"]["val_auc"]) > 0.9
    served = tf.saved_model.load(str(tmp_path / "Format-Serving")).signatures["serving_default"]
    examples = tf.constant([to_example(row) for row in trips.evaluation])
    scores = served(examples=examples)["scores"][:, 1]
    tipped = np.array([row["tipped"] for row in trips.evaluation], bool)
    best = record["history"]["val_accuracy"][record["best_epoch"] - 1]
    assert np.mean((scores.numpy() > 0.5) == tipped) == pytest.approx(best, abs=1e-6)
