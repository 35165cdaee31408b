"""The model that a training goes on from: how it is told, read, and survives in every process."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from test_loops import Interrupt
from trainer_data import Transformed
from warm_data import (
    dense,
    export,
    layer,
    load,
    make_orders_before,
    make_orders_later,
    prepare,
)

from components.trainer.cluster.local.launcher import LocalLauncher
from components.trainer.cluster.supervisor import ClusterJob as Processes
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.tasks import Training, make_tasks, restart_policy
from trainer_module.errors import TrainingError
from trainer_module.loops import LOOPS
from trainer_module.record import RECORD_FILE
from trainer_module.runtime import Runtime
from trainer_module.settings import Loop, Strategy, Task, TrainerSettings
from trainer_module.trainer import run_fn
from trainer_module.warm_start.axes import Axis
from trainer_module.warm_start.description import (
    DESCRIPTION_FILE,
    DescribedWeight,
    Description,
    Feature,
    read_description,
    write_description,
)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    return make_orders_before(tmp_path_factory.mktemp("orders"))


@pytest.fixture(scope="module")
def later_orders(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    return make_orders_later(tmp_path_factory.mktemp("later_orders"))


@pytest.fixture(scope="module")
def orders_model(orders: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    return export(orders, tmp_path_factory.mktemp("orders_model"))


def test_it_is_told_in_the_record(
    orders_model: str, later_orders: Transformed, tmp_path: Path
) -> None:
    fn_args = later_orders.fn_args(tmp_path, train={"epochs": 1})
    fn_args.base_model = orders_model
    run_fn(fn_args)
    record = json.loads((tmp_path / "model_run" / RECORD_FILE).read_text())
    assert record["warm_start"] == orders_model
    assert record["notes"][0].startswith(f"warm start: from {orders_model}, ")


def test_a_model_that_does_not_describe_itself(
    orders: Transformed, orders_model: str, tmp_path: Path
) -> None:
    """Such as an older one: equal shapes are taken over, but not rows of who knows what."""
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    (base / DESCRIPTION_FILE).unlink()
    job = prepare(orders, tmp_path / "warm", str(base))
    for new, old in zip(dense(job.model), dense(load(str(base))), strict=True):
        np.testing.assert_array_equal(new[0], old[0])
    assert job.notes[1:] == [
        "warm start: the old model does not say what its weights stand for, as models do that "
        "Scopeline exports today: only those of equal shape are taken over, none of single values",
        "warm start: layer company_embedding has rows of which the old model does not say what "
        "they stand for, starts fresh",
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
    message = rf"model at {base} cannot be read: .*{reason}.*; put it back, or .*warm_start: false"
    with pytest.raises(TrainingError, match=message):
        prepare(orders, tmp_path / "warm", str(base))


@pytest.mark.parametrize("text", ["{", "[]", '{"model": "mlp"}'])
def test_a_broken_description(
    orders: Transformed, orders_model: str, tmp_path: Path, text: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(orders_model, base)
    (base / DESCRIPTION_FILE).write_text(text)
    with pytest.raises(TrainingError, match=r"scopeline.json is no description of a model"):
        prepare(orders, tmp_path / "warm", str(base))


def test_descriptions_survive_odd_values(tmp_path: Path) -> None:
    values = tuple(v.decode("utf-8", "surrogateescape") for v in (b"\xff\x00", "é\udcff".encode(
        "utf-8", "surrogateescape"), b"\xed\xb3\xbf", b'"\\', "☃".encode()))  # fmt: skip
    axes = (Axis("vocabulary", "a"), Axis("columns", parts=(("a", 2), ("b#0", 3))), Axis())
    description = Description(
        "mlp",
        Task.MULTICLASS,
        ("x", "y"),
        (Feature("a", "categorical", (1,), 7, values), Feature("n", "numeric", (2,))),
        {"dense_3/kernel": DescribedWeight("dense#0/kernel", axes)},
    )
    write_description(description, str(tmp_path))
    assert read_description(str(tmp_path)) == description
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("strategy", ["default", "mirrored"])
def test_an_interrupted_training_goes_on_from_its_own_backup(
    orders: Transformed, orders_model: str, tmp_path: Path, strategy: str
) -> None:
    job = prepare(orders, tmp_path, orders_model, strategy=strategy, learning_rate=0.5)
    interrupt = Interrupt(2 * job.train.steps - 1, job.train.steps)
    with pytest.raises(KeyboardInterrupt):
        LOOPS[Loop.FIT](replace(job, callbacks=[*job.callbacks, interrupt]))
    kept = tf.train.load_checkpoint(
        tf.train.latest_checkpoint(str(tmp_path / "model_run" / "checkpoints"))
    )
    job = prepare(orders, tmp_path, orders_model, strategy=strategy)
    assert job.start.epoch == 1
    saved = kept.get_tensor("model/layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE")
    np.testing.assert_array_equal(layer(job.model, "company_embedding")[0], saved)
    assert not np.array_equal(saved, layer(load(orders_model), "company_embedding")[0])


def test_nothing_in_common(shades: Transformed, orders_model: str, tmp_path: Path) -> None:
    headline, *notes = prepare(shades, tmp_path, orders_model).notes
    assert headline == (
        f"warm start: nothing of {orders_model}, a model of kind mlp, fits: all weights start fresh"
    )
    assert "warm start: column `company` is gone" in notes


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "parameter_server", "partitioner": "fixed_shards"},
        {"kind": "multi_worker_mirrored"},
    ],
    ids=lambda strategy: strategy["kind"],
)
def test_in_a_cluster_of_processes(
    orders_model: str, later_orders: Transformed, tmp_path: Path, strategy: dict[str, str]
) -> None:
    """A learning rate of nearly nothing shows what training began with."""
    train = {
        "strategy": strategy,
        "cluster": {"workers": 2, "parameter_servers": 2},
        "epochs": 1,
        "learning_rate": 1e-12,
    }
    fn_args = later_orders.fn_args(tmp_path, train=train)
    settings = TrainerSettings.from_custom_config(fn_args.custom_config)
    names = ("train_files", "eval_files", "transform_graph_path", "custom_config", "model_run_dir")
    arguments = {name: getattr(fn_args, name) for name in names} | {
        "serving_model_dir": fn_args.serving_model_dir,
        "eval_model_dir": str(tmp_path / "eval"),
        "base_model": orders_model,
    }
    runtime = Runtime(backup_directory=str(tmp_path / "backup"))
    run = f"{run_fn.__module__}.{run_fn.__name__}"
    training = Training(run, arguments, settings, runtime, str(tmp_path / "scratch"))
    kind = Strategy(settings.train.strategy.kind)
    Supervisor(
        LocalLauncher(), Processes(make_tasks(training, kind, None), restart_policy(kind), 100)
    ).run()
    record = json.loads((tmp_path / "model_run" / RECORD_FILE).read_text())
    assert record["warm_start"] == orders_model
    assert "embedding of `company`: 3 of 4 values kept" in " ".join(record["notes"])
    old, new = load(orders_model), load(fn_args.serving_model_dir)
    was, rows = (layer(model, "company_embedding")[0] for model in (old, new))
    np.testing.assert_allclose(rows[[3, 2, 0]], was[:3], atol=1e-6)
    np.testing.assert_allclose(dense(new)[1][0], dense(old)[1][0], atol=1e-6)
