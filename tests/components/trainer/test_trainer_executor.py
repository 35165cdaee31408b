"""The executor with TFX's own artifacts: real processes, and what is left when they have ended."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import own_run_fns
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
from trainer_module.errors import ConfigError, TrainingError
from trainer_module.runtime import StrategyChoice
from trainer_module.settings import CheckpointSettings, Strategy, TrainerSettings
from trainer_module.strategies import strategy_class
from trainer_module.strategies.synchronous import CentralStorageStrategy
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

    def told(self) -> dict[str, Any]:
        return json.loads((self.model / "Format-Serving" / "told.json").read_text())


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


def test_run_fn_is_given_what_tfx_gives_it(execution: Execution, tmp_path: Path) -> None:
    best = tmp_path / "best"
    best.mkdir()
    (best / "best_hyperparameters.txt").write_text('{"units": 3}')
    for inputs in ({}, {"hyperparameters": artifact(standard_artifacts.HyperParameters, best)}):
        told = (execution.inputs | inputs, execution.outputs, execution.properties("export"))
        expected = vars(GenericExecutor()._GetFnArgs(*told))
        found = vars(ClusterTrainerExecutor().make_arguments(*told))
        for name in _ARGUMENTS:
            assert found[name] == expected[name], name
    assert found["hyperparameters"] == {"units": 3}


def test_a_loop_that_leaves_no_record_keeps_its_model(
    execution: Execution, caplog: pytest.LogCaptureFixture
) -> None:
    execution.run("train", checkpoints={"keep": 2})
    assert execution.told()
    assert "own_run_fns.train has written no training record" in caplog.text


def test_training_in_one_process(execution: Execution) -> None:
    execution.run("train", strategy="mirrored")
    told = execution.told()
    assert told["arguments"]["train_files"] == [
        f"{execution.inputs['examples'][0].uri}/Split-train/*"
    ]
    assert told["arguments"]["transform_graph_path"] == execution.inputs["transform_graph"][0].uri
    assert told["arguments"]["model_run_dir"] == str(execution.model_run)
    runtime = told["arguments"]["runtime"]
    assert runtime["choice"]["strategy"]["kind"] == "mirrored"
    assert runtime["restarts"] == []
    assert (told["tf_config"], told["legacy_keras"], told["heavy"]) == (None, "1", [])


def test_strategy_that_was_chosen_before_is_not_chosen_again(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = StrategyChoice(
        strategy=CentralStorageStrategy(kind=Strategy.CENTRAL_STORAGE), reason="why"
    )
    prepare(monkeypatch, TrainerOptions(choice=chosen))
    execution.run("train", strategy="auto")
    choice = execution.told()["arguments"]["runtime"]["choice"]
    assert StrategyChoice.model_validate(choice) == chosen


def test_strategy_is_chosen_where_nobody_has(execution: Execution) -> None:
    execution.run("train", strategy="auto", cluster={"workers": 2})
    choice = execution.told()["arguments"]["runtime"]["choice"]
    assert choice["strategy"]["kind"] == "multi_worker_mirrored"
    assert choice["reason"] == "train.cluster has 2 workers"


@pytest.mark.parametrize(
    ("kind", "strategy", "trainer"),
    [
        ("ensemble", Strategy.MIRRORED, "ensemble_trainer"),
        ("ensemble", Strategy.MULTI_WORKER_MIRRORED, "trainer"),
        ("ensemble", Strategy.PARAMETER_SERVER, "trainer"),
        ("ensemble", Strategy.TPU, "trainer"),
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
    assert is_reduced == (f"train.strategy is {strategy}, under which no trees" in caplog.text)


def test_killed_process_goes_on_from_its_backup(
    execution: Execution, caplog: pytest.LogCaptureFixture
) -> None:
    other = execution.backup(execution.properties("train"))
    other.mkdir(parents=True)
    execution.run("die_once")
    runtime = execution.told()["arguments"]["runtime"]
    assert runtime["restarts"] == ["the trainer was killed by SIGKILL"]
    backup = Path(runtime["backup_directory"])
    assert backup == execution.backup(execution.properties("die_once"))
    assert backup.parent.parent == execution.model_run.parent.parent
    assert not backup.exists()
    (notice,) = (
        r.getMessage()
        for r in caplog.records
        if f"interrupted training run in {other} " in r.getMessage()
    )
    assert "is not resumed" in notice
    assert other.exists()


def test_workers_but_the_first_leave_only_their_own_records(execution: Execution) -> None:
    execution.run("train", strategy="multi_worker_mirrored", cluster={"workers": 2})
    told = execution.told()
    assert told["tf_config"]["task"] == {"type": "worker", "index": 0}
    other = json.loads((execution.model_run / "worker-1" / "told.json").read_text())
    assert not other["arguments"]["runtime"]["writes_backup"]
    assert not Path(other["arguments"]["serving_model_dir"]).exists()


def test_training_without_a_model_fails(execution: Execution) -> None:
    with pytest.raises(TrainingError, match=r"own_run_fns\.export_nothing exported no model; "):
        execution.run("export_nothing")


def test_error_of_the_users_code_names_its_file(execution: Execution) -> None:
    with pytest.raises(WorkerFailedError) as caught:
        execution.run("divide_by_zero")
    assert str(caught.value) == "the trainer: ZeroDivisionError: float division by zero"
    assert caught.value.frames[-1][0] == own_run_fns.__file__


def test_address_of_this_task_is_taken(execution: Execution, peers: list[str]) -> None:
    with (
        socket.create_server(("localhost", int(peers[0].partition(":")[2]))),
        pytest.raises(ConfigError) as caught,
    ):
        execution.run("train", strategy="multi_worker_mirrored")
    assert str(caught.value) == (
        f"another process uses {peers[0]}, the address of this task in TF_CONFIG; stop that "
        "process, or give this task another port in the TF_CONFIG of every task."
    )


def test_missing_peer_is_named(
    execution: Execution, peers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StartTimeoutError) as caught:
        execution.run("wait_for_peers", strategy="multi_worker_mirrored")
    assert str(caught.value) == (
        f"no answer from worker 1 at {peers[1]} within 3 s; start this task, or correct TF_CONFIG."
    )
    notices = [record for record in caplog.records if getattr(record, "notice", False)]
    assert [r.getMessage() for r in notices] == [f"waits for worker 1 at {peers[1]}, at most 3 s"]


def test_peer_that_answers_is_not_blamed(execution: Execution, peers: list[str]) -> None:
    with (
        socket.create_server(("localhost", int(peers[1].partition(":")[2]))),
        pytest.raises(StartTimeoutError, match=r"not ready within 3 s: worker 0 \(running, "),
    ):
        execution.run("wait_for_peers", strategy="multi_worker_mirrored")


def test_cluster_does_not_matter_to_a_strategy_of_one_machine(
    execution: Execution, peers: list[str]
) -> None:
    execution.run("train", strategy="mirrored")
    assert execution.told()["tf_config"] is None


def test_backup_is_found_again_as_long_as_nothing_changes(execution: Execution) -> None:
    properties = execution.properties("train")
    first = execution.backup(properties)
    assert execution.backup(dict(reversed(properties.items()))) == first
    execution.model_run = execution.model_run.with_name("8")
    assert execution.backup(properties) == first
    assert execution.backup(execution.properties("train", epochs=3)) != first
    execution.inputs["examples"][0].uri += "4"
    assert execution.backup(properties) != first


def test_the_same_uris_in_a_new_metadata_store_are_other_data(execution: Execution) -> None:
    properties = execution.properties("train")
    examples = execution.inputs["examples"][0]
    examples.id, examples.mlmd_artifact.create_time_since_epoch = 3, 1000
    backup, steps = execution.backup(properties), steps_key(execution.inputs, properties)
    examples.mlmd_artifact.create_time_since_epoch = 2000
    assert execution.backup(properties) != backup
    assert steps_key(execution.inputs, properties) != steps
    examples.mlmd_artifact.create_time_since_epoch = 1000
    assert execution.backup(properties) == backup


def test_checkpoints_replace_those_of_a_run_of_this_number(execution: Execution) -> None:
    """Runs count from 1 again after a new metadata store."""
    for state in ("old", "new"):
        backup = leave_backup(execution, 3)
        (backup / state).touch()
        (backup / "folds" / "1").mkdir(parents=True)
        keep_backup(str(backup), str(execution.model_run), "steps", CheckpointSettings())
    kept = execution.model_run / "checkpoints"
    assert (kept / "new").exists()
    assert not (kept / "old").exists()
    assert not (kept / "folds").exists(), "nothing goes on from them"


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
        ({"every": 3}, {2: "ckpt-4", 3: "ckpt-6", 5: "ckpt-10"}, "ckpt 5"),
        ({"every": "best", "name": "cp-{epoch:04d}.ckpt"}, {2: "cp-0002.ckpt"}, "ckpt 2"),
        (
            {"every": 4, "weights_only": True, "name": "ckpt-{epoch}"},
            {2: "ckpt-2", 4: "ckpt-4", 5: "ckpt-5"},
            "weights 5",
        ),
    ],
    ids=["last", "every", "best", "weights"],
)
def test_checkpoints_are_kept_and_called_as_the_config_says(
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


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_beginning_that_was_killed_begins_again(
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
    said = {path.name: path.read_text() for path in new.glob("*.index")}
    assert said == {f"ckpt-{2 * epoch}.index": f"ckpt {epoch}" for epoch in (2, 3, 4, 5)}
    assert tf.train.latest_checkpoint(str(new)) == str(new / "ckpt-10")


def test_nothing_goes_on_from_weights_that_went_on_from_a_whole_state(execution: Execution) -> None:
    backup, first = leave_backup(execution, 3), execution.model_run
    keep_backup(str(backup), str(first), "same", CheckpointSettings())
    execution.model_run = first.with_name("8")
    assert restore_checkpoints(str(backup), str(execution.model_run), "same", 5) == 3
    shutil.rmtree(first)  # As retention does.
    shutil.move(backup, begun := execution.model / "begun")
    backup = leave_backup(execution, 5, ("ckpt", "weights"))
    shutil.copytree(begun, backup, dirs_exist_ok=True, ignore=shutil.ignore_patterns("check*"))
    keep_backup(
        str(backup), str(execution.model_run), "same", CheckpointSettings(weights_only=True)
    )
    new = str(execution.model / "new")
    assert restore_checkpoints(new, str(execution.model_run.with_name("9")), "same", 9) == 0


def test_training_that_was_kept_goes_on_for_more_epochs_of_the_same_steps(
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


@pytest.mark.parametrize(
    ("others", "train"),
    [
        ({}, {"learning_rate": {"schedule": "cosine", "initial": 0.1}}),
        ({}, {"learning_rate": {"schedule": "linear", "initial": 0.1}}),
        ({"optimize": {"prune": {"sparsity": 0.5}}}, {}),
        ({"model": {"kind": "my_module.build"}}, {}),
        ({}, {"callbacks": ["my_module.Decay"]}),
    ],
    ids=["cosine", "linear", "pruning", "own model", "own callbacks"],
)
def test_what_is_planned_over_all_epochs_begins_anew_with_more(
    execution: Execution, others: dict[str, Any], train: dict[str, Any]
) -> None:
    def key(epochs: int, **options: Any) -> str:
        constant = {"optimizer": "adam", "learning_rate": 0.001, "epochs": epochs}
        properties = execution.properties("train", others, **constant | train | options)
        return steps_key(execution.inputs, properties)

    assert key(3) == key(3, checkpoints={"keep": 2})
    assert key(3) != key(9)


@pytest.mark.parametrize(
    ("others", "train"),
    [
        ({"optimize": {"quantize": "qat"}}, {}),
        ({}, {"optimizer": {"kind": "adam", "ema": 0.9}}),
        ({}, {"learning_rate": {"schedule": "exponential", "initial": 0.1, "decay": 0.9}}),
        ({}, {"learning_rate": {"schedule": "steps", "boundaries": [2], "values": [0.1, 0.01]}}),
    ],
    ids=["qat", "ema", "exponential", "steps"],
)
def test_what_each_epoch_does_alike_goes_on_for_more(
    execution: Execution, others: dict[str, Any], train: dict[str, Any]
) -> None:
    def key(epochs: int) -> str:
        constant = {"optimizer": "adam", "learning_rate": 0.001, "epochs": epochs}
        return steps_key(
            execution.inputs, execution.properties("train", others, **constant | train)
        )

    assert key(3) == key(9)


def test_backup_may_be_remote(execution: Execution) -> None:
    found = backup_directory(execution.inputs, {}, "gs://bucket/Trainer/model_run/7/")
    assert found.startswith("gs://bucket/Trainer/backups/")
