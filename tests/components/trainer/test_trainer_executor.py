"""The Trainer's executor: processes, backups and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx import types
from tfx.components.trainer.executor import GenericExecutor
from tfx.types import standard_artifacts

from components.processes.failures import StartTimeoutError, WorkerFailedError
from components.processes.ports import free_ports
from components.trainer.backups import (
    backup_directory,
    keep_backup,
    restore_checkpoints,
    steps_key,
)
from components.trainer.component import _ARGUMENTS, ClusterTrainerExecutor, choose_trainer
from components.trainer.options import OPTIONS_VARIABLE, TrainerOptions
from trainer_module.settings import CheckpointSettings, Strategy, TrainerSettings
from trainer_module.strategies import strategy_class
from trainer_module.training import checkpoint
from trainer_module.training.checkpoint import names_by_epoch, write_state

Artifacts = dict[str, list[types.Artifact]]


def artifact(kind: type[types.Artifact], path: Path) -> list[types.Artifact]:
    made = kind()
    made.uri = str(path)
    if kind is standard_artifacts.Examples:
        made.split_names = json.dumps(["train", "eval"])
    return [made]


class Execution:
    """What TFX hands to the executor."""

    def __init__(self, folder: Path) -> None:
        self.model = folder / "Trainer" / "model" / "7"
        self.model_run = folder / "Trainer" / "model_run" / "7"
        self.inputs: Artifacts = {
            "examples": artifact(standard_artifacts.Examples, folder / "Transform" / "3"),
            "transform_graph": artifact(standard_artifacts.TransformGraph, folder / "graph"),
        }
        self.outputs: Artifacts = {
            "model": artifact(standard_artifacts.Model, self.model),
            "model_run": artifact(standard_artifacts.ModelRun, self.model_run),
        }

    def properties(
        self, run_fn: str, others: dict[str, Any] | None = None, **train: Any
    ) -> dict[str, Any]:
        settings = TrainerSettings.model_validate(
            {"label": "y", "task": "binary", "train": train, **(others or {})}
        )
        return {
            "run_fn": f"own_run_fns.{run_fn}",
            "train_args": json.dumps({"splits": ["train"]}),
            "eval_args": json.dumps({"splits": ["eval"]}),
            "custom_config": json.dumps(settings.to_custom_config()),
        }

    def backup(self, properties: dict[str, Any]) -> Path:
        return Path(backup_directory(self.inputs, properties, str(self.model_run)))

    def run(self, run_fn: str, **train: Any) -> None:
        properties = self.properties(run_fn, **train)
        ClusterTrainerExecutor().Do(self.inputs, self.outputs, properties)

    def received(self) -> dict[str, Any]:
        return json.loads((self.model / "Format-Serving" / "received.json").read_text())


@pytest.fixture
def execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Execution:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    # A run that another test executed in this process has left its own.
    monkeypatch.delenv(OPTIONS_VARIABLE, raising=False)
    return Execution(tmp_path)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of a cluster of two workers; this run is the first of them."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    prepare(monkeypatch, TrainerOptions(start_timeout=3))
    return addresses


def prepare(monkeypatch: pytest.MonkeyPatch, options: TrainerOptions) -> None:
    for name, value in options.to_environment().items():
        monkeypatch.setenv(name, value)


def test_arguments_of_run_fn_are_those_of_tfx(execution: Execution, tmp_path: Path) -> None:
    best = tmp_path / "best"
    best.mkdir()
    (best / "best_hyperparameters.txt").write_text('{"units": 3}')
    for inputs in ({}, {"hyperparameters": artifact(standard_artifacts.HyperParameters, best)}):
        given = (execution.inputs | inputs, execution.outputs, execution.properties("export"))
        expected = vars(GenericExecutor()._GetFnArgs(*given))
        found = vars(ClusterTrainerExecutor().make_arguments(*given))
        for name in _ARGUMENTS:
            assert found[name] == expected[name], name
    assert found["hyperparameters"] == {"units": 3}


@pytest.mark.slow
def test_training_in_one_process(execution: Execution) -> None:
    execution.run("train", strategy="mirrored")
    received = execution.received()
    assert received["arguments"]["train_files"] == [
        f"{execution.inputs['examples'][0].uri}/Split-train/*"
    ]
    assert (
        received["arguments"]["transform_graph_path"] == execution.inputs["transform_graph"][0].uri
    )
    assert received["arguments"]["model_run_dir"] == str(execution.model_run)
    runtime = received["arguments"]["runtime"]
    assert runtime["choice"]["strategy"]["kind"] == "mirrored"
    assert runtime["restarts"] == []
    assert (received["tf_config"], received["legacy_keras"], received["heavy"]) == (None, "1", [])


@pytest.mark.slow
def test_strategy_auto_is_resolved(execution: Execution) -> None:
    execution.run("train", strategy="auto", cluster={"workers": 2})
    choice = execution.received()["arguments"]["runtime"]["choice"]
    assert choice["strategy"]["kind"] == "multi_worker_mirrored"
    assert choice["reason"] == "train.cluster has 2 workers"


@pytest.mark.parametrize(
    ("kind", "strategy", "trainer"),
    [
        ("ensemble", Strategy.MIRRORED, "ensemble_trainer"),
        ("ensemble", Strategy.MULTI_WORKER_MIRRORED, "trainer"),
        ("trees", Strategy.DEFAULT, "trees_trainer"),
        ("tabular", Strategy.DEFAULT, "trainer"),
    ],
)
def test_kind_and_strategy_choose_the_training(
    kind: str, strategy: Strategy, trainer: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        found = choose_trainer(kind, strategy_class(strategy)(kind=strategy))
    assert found == f"trainer_module.{trainer}"
    is_reduced = kind == "ensemble" and trainer == "trainer"
    assert is_reduced == (f"train.strategy is {strategy}" in caplog.text)


@pytest.mark.slow
def test_killed_training_resumes_from_its_backup(
    execution: Execution, caplog: pytest.LogCaptureFixture
) -> None:
    other = execution.backup(execution.properties("train"))
    other.mkdir(parents=True)
    execution.run("die_once")
    runtime = execution.received()["arguments"]["runtime"]
    assert runtime["restarts"] == ["the trainer was killed by SIGKILL"]
    backup = Path(runtime["backup_directory"])
    assert backup == execution.backup(execution.properties("die_once"))
    assert backup.parent.parent == execution.model_run.parent.parent
    assert not backup.exists()
    assert str(other) in caplog.text
    assert other.exists()


@pytest.mark.slow
def test_only_the_first_worker_exports(execution: Execution) -> None:
    execution.run("train", strategy="multi_worker_mirrored", cluster={"workers": 2})
    received = execution.received()
    assert received["tf_config"]["task"] == {"type": "worker", "index": 0}
    other = json.loads((execution.model_run / "worker-1" / "received.json").read_text())
    assert not other["arguments"]["runtime"]["writes_backup"]
    assert not Path(other["arguments"]["serving_model_dir"]).exists()


@pytest.mark.slow
def test_error_in_user_code_has_its_file(execution: Execution) -> None:
    with pytest.raises(WorkerFailedError) as caught:
        execution.run("divide_by_zero")
    assert "ZeroDivisionError" in str(caught.value)
    assert caught.value.frames[-1][0].endswith("own_run_fns.py")


@pytest.mark.slow
def test_missing_peer_is_named(execution: Execution, peers: list[str]) -> None:
    with pytest.raises(StartTimeoutError) as caught:
        execution.run("wait_for_peers", strategy="multi_worker_mirrored")
    assert f"worker 1 at {peers[1]}" in str(caught.value)


def test_backup_depends_on_inputs_and_settings(execution: Execution) -> None:
    properties = execution.properties("train")
    first = execution.backup(properties)
    assert execution.backup(dict(reversed(properties.items()))) == first
    execution.model_run = execution.model_run.with_name("8")
    assert execution.backup(properties) == first
    assert execution.backup(execution.properties("train", epochs=3)) != first
    execution.inputs["examples"][0].uri += "4"
    assert execution.backup(properties) != first


def leave_backup(execution: Execution, epochs: int, kinds: Sequence[str] = ("ckpt",)) -> Path:
    """The backup of a training that is done, of 2 steps an epoch, of which the second is best."""
    execution.model_run.mkdir(parents=True, exist_ok=True)
    record = {"epochs": epochs, "best_epoch": 2}
    (execution.model_run / "training.json").write_text(json.dumps(record))
    backup = execution.model / "backup"
    backup.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        for epoch in range(1, epochs + 1):
            for ending in ("index", "data-00000-of-00001"):
                (backup / f"{kind}-{2 * epoch}.{ending}").write_text(f"{kind} {epoch}")
            notes = {"epoch": epoch, "step": 0, "steps": 2}
            (backup / f"{kind}-{2 * epoch}.json").write_text(json.dumps(notes))
    write_state(str(backup), f"ckpt-{2 * epochs}")
    return backup


@pytest.mark.parametrize(
    ("checkpoints", "kept", "latest"),
    [
        ({"keep": 2}, {2: "ckpt-4", 4: "ckpt-8", 5: "ckpt-10"}, "ckpt 5"),
        ({"every": "best", "name": "cp-{epoch:04d}.ckpt"}, {2: "cp-0002.ckpt"}, "ckpt 2"),
        (
            {"every": 4, "weights_only": True, "name": "ckpt-{epoch}"},
            {2: "ckpt-2", 4: "ckpt-4", 5: "ckpt-5"},
            "weights 5",
        ),
    ],
    ids=["last", "best", "weights"],
)
def test_checkpoints_are_kept_and_named_by_the_config(
    execution: Execution, checkpoints: dict[str, Any], kept: dict[int, str], latest: str
) -> None:
    backup = leave_backup(execution, 5, ("ckpt", "weights"))
    settings = CheckpointSettings.model_validate(checkpoints)
    keep_backup(str(backup), str(execution.model_run), "same", settings)
    folder = execution.model_run / "checkpoints"
    assert names_by_epoch(str(folder)) == kept
    found = tf.train.latest_checkpoint(str(folder))
    assert Path(f"{found}.index").read_text() == latest
    new = execution.model / "new"
    gone_on = restore_checkpoints(str(new), str(execution.model_run.with_name("9")), "same", 9)
    assert gone_on == (0 if settings.weights_only else max(kept))
    if gone_on:
        names = {path.stem for path in new.glob("*.index")}
        assert names == {f"ckpt-{2 * epoch}" for epoch in kept}
        assert tf.train.latest_checkpoint(str(new)) == str(new / f"ckpt-{2 * gone_on}")


@pytest.mark.parametrize(
    "done",
    [
        1,
    ],
)
def test_killed_restoration_of_checkpoints_is_repeated(
    execution: Execution, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Whatever it has renamed."""
    backup, run = leave_backup(execution, 5), str(execution.model_run)
    keep_backup(str(backup), run, "same", CheckpointSettings(keep=4, name="ckpt-{epoch}"))
    new, rename, left = execution.model / "new", checkpoint._rename, iter(range(done))

    def killed(*names: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        rename(*names)

    monkeypatch.setattr(checkpoint, "_rename", killed)
    with pytest.raises(KeyboardInterrupt):
        restore_checkpoints(str(new), run, "same", 9)
    monkeypatch.undo()
    assert restore_checkpoints(str(new), run, "same", 9) == 5
    kept = {path.name: path.read_text() for path in new.glob("*.index")}
    assert kept == {f"ckpt-{2 * epoch}.index": f"ckpt {epoch}" for epoch in (2, 3, 4, 5)}
    assert tf.train.latest_checkpoint(str(new)) == str(new / "ckpt-10")


def test_kept_training_continues_for_more_epochs_with_the_same_settings(
    execution: Execution,
) -> None:
    def key(**train: Any) -> str:
        constant = {"optimizer": "adam", "learning_rate": 0.001}
        return steps_key(execution.inputs, execution.properties("train", **constant | train))

    assert key(epochs=3) == key(epochs=9, checkpoints={"keep": 2})
    patient = {"early_stopping": {"patience": 5}}
    assert key(epochs=3, early_stopping={"patience": 1}) == key(epochs=9, **patient)
    assert key(epochs=3) != key(epochs=9, **patient), "a part of the rows is held out"
    assert key(epochs=3) == key(epochs=9, early_stopping=False)
    cosine = {"schedule": "cosine", "initial": 0.1}
    assert key(learning_rate=cosine, epochs=3) != key(learning_rate=cosine, epochs=9)
    same, other = key(), key(batch_size=7)
    assert same != other
    for run, (epochs, steps) in enumerate([(3, same), (5, same), (8, other), (9, same)]):
        execution.model_run = execution.model_run.with_name(str(run))
        backup = leave_backup(execution, epochs)
        keep_backup(str(backup), str(execution.model_run), steps, CheckpointSettings())
    new, run = execution.model / "new", str(execution.model_run)
    assert restore_checkpoints(str(new), run, key(seed=3), 9) == 0
    assert not new.exists()
    assert restore_checkpoints(str(new), run, same, 9) == 5, "the longest of those that are shorter"
    assert (new / "ckpt-10.index").read_text() == "ckpt 5"
    (new / "checkpoint").write_text("epoch 6")
    assert restore_checkpoints(str(new), run, same, 9) == 5
    assert (new / "checkpoint").read_text() == "epoch 6", "an interrupted training goes on itself"


def test_backup_may_be_remote(execution: Execution) -> None:
    found = backup_directory(execution.inputs, {}, "gs://bucket/Trainer/model_run/7/")
    assert found.startswith("gs://bucket/Trainer/backups/")
