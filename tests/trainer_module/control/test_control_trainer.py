"""Policies that learn by acting and from logged transitions, through a kill as well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support import SUPPORT, warm
from tests.support.control_run import CARTPOLE, arguments, control_config
from trainer_module.control_trainer import COLLECTED_FILE, run_fn
from trainer_module.errors import ConfigError, DataError, TrainingError
from trainer_module.families.control.measuring import (
    exported_policy,
    golden_rows,
    measure,
    task_of,
)
from trainer_module.families.control.training import AT_ONCE, CHECKPOINT_FILE, RoundPlan
from trainer_module.runtime import RECORD_FILE
from trainer_module.settings import TrainerSettings


def train(folder: Path, custom_config: dict[str, Any], backup_steps: int | None = None) -> Any:
    """Trains; the record."""
    given = arguments(folder, custom_config, backup_steps)
    run_fn(given)
    return json.loads((folder / RECORD_FILE).read_text())


def values_of(folder: Path) -> np.ndarray:
    """What the exported policy answers to some observations."""
    answer = tf.saved_model.load(str(folder / "model")).signatures["serving_default"]
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    found = answer(observation=tf.constant(observations))
    np.testing.assert_array_equal(found["action"], np.argmax(found["q_values"], axis=1))
    return found["q_values"].numpy()


def start_and_kill(folder: Path, custom_config: dict[str, Any]) -> None:
    """Trains in a process that is killed in the middle, after its fifteenth backup or later."""
    content = json.dumps({"custom_config": custom_config, "backup_steps": 32})
    script = SUPPORT / "control_run.py"
    process = warm.Popen(
        [sys.executable, str(script), str(folder), content],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
    )
    backup, seen = folder / "checkpoints" / CHECKPOINT_FILE, set[int]()
    until = time.monotonic() + 120
    while len(seen) < 15 and time.monotonic() < until and process.poll() is None:
        if backup.exists():
            seen.add(backup.stat().st_mtime_ns)
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors


@pytest.mark.slow
def test_killed_training_resumes_to_the_same_policy(tmp_path: Path) -> None:
    custom_config = control_config({"prioritised": True}, steps=640, early_stopping=False)
    whole = train(tmp_path / "whole", custom_config)
    start_and_kill(tmp_path / "killed", custom_config)
    resumed = train(tmp_path / "killed", custom_config, backup_steps=32)
    assert 0 < resumed["resumed_at_step"] < resumed["steps"] == whole["steps"]
    assert resumed["history"] == whole["history"]
    assert resumed["best_epoch"] == whole["best_epoch"]
    np.testing.assert_array_equal(values_of(tmp_path / "killed"), values_of(tmp_path / "whole"))


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has learnt from episodes that were collected at random, and these."""
    folder = tmp_path_factory.mktemp("collected") / "run"
    source = {"episodes": 30, "policy": None}
    train(folder, control_config(source=source, steps=160, early_stopping=False))
    return folder


@pytest.mark.slow
def test_policy_learns_the_same_from_files_of_transitions(collected: Path, tmp_path: Path) -> None:
    files = [str(collected / COLLECTED_FILE)]
    task, length = {"environment": CARTPOLE}, {"steps": 160, "early_stopping": False}
    record = train(tmp_path / "again", control_config(files=files, task=task, **length))
    np.testing.assert_array_equal(values_of(tmp_path / "again"), values_of(collected))
    assert record["steps"] == 160
    assert "from " in record["notes"][0]
    assert set(record["history"]) == {"loss", "val_return"}
    # A pushed policy collects as well.
    source = {"episodes": 2, "policy": str(collected / "model")}
    train(tmp_path / "of_policy", control_config(source=source, steps=32))


@pytest.mark.slow
def test_policy_is_measured_by_episodes_with_own_seeds(collected: Path) -> None:
    custom_config = control_config()
    found = measure(collected / "model", custom_config)
    estimate = found.metrics["return"]
    low, high = estimate.interval(0.95)
    assert low < estimate.value < high
    worst = [one["return"] for one in found.details["worst_episodes"]]
    assert len(worst) == 10
    assert worst == sorted(worst)
    # The same policy by the same seeds: nothing is left of the difference but 0.
    again = measure(collected / "model", custom_config).metrics["return"]
    assert estimate.difference(again, 0.95) == (0, 0)
    rows = golden_rows(collected / "model", custom_config)
    act = exported_policy(collected / "model")
    assert len(rows) >= 8
    assert set(act(np.array([values["observation"] for _, values in rows]))) <= {0, 1}
    assert rows[0][0].startswith("step 1 of the episode with seed ")


@pytest.mark.slow
def test_unusable_strategies_files_and_models_are_refused(tmp_path: Path, collected: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.strategy is parameter_server"):
        train(tmp_path / "one", control_config(strategy="parameter_server"))
    files = [str(collected / COLLECTED_FILE)]
    task = {"environment": "gymnasium:Acrobot-v1"}
    with pytest.raises(DataError, match=r"row 1: column 'observation' has 4 .* 6"):
        train(tmp_path / "two", control_config(files=files, task=task))
    large = {"replay": {"size": 10**12}}
    with pytest.raises(TrainingError, match=r"replay\.size"):
        train(tmp_path / "three", control_config(task=large))
    other = tf.Module()
    other.answer = tf.function(lambda x: {"y": x}, [tf.TensorSpec([None], tf.float32, "x")])
    tf.saved_model.save(other, str(tmp_path / "other"), other.answer)
    with pytest.raises(TrainingError, match="does not contain a policy"):
        exported_policy(tmp_path / "other")


@pytest.mark.parametrize(("ratio", "environments"), [(4.0, 8), (0.25, 4), (2.0, 100)])
def test_optimizer_steps_follow_the_replay_ratio(ratio: float, environments: int) -> None:
    task = {"environments": environments, "replay": {"ratio": ratio}}
    settings = TrainerSettings.from_custom_config(control_config(task=task))
    plan = RoundPlan.of(settings, task_of(settings), online=True, replicas=1)
    assert AT_ONCE * plan.learns / (plan.acted * environments) == pytest.approx(ratio, rel=0.05)


def test_training_takes_hardly_more_steps_than_configured() -> None:
    for given in (640, 656, 1000, 60_000):
        settings = TrainerSettings.from_custom_config(control_config(steps=given))
        plan = RoundPlan.of(settings, task_of(settings), online=False, replicas=1)
        taken = AT_ONCE * plan.epochs * plan.rounds
        assert given <= taken < given + AT_ONCE * (plan.rounds + 1)
    settings = TrainerSettings.from_custom_config(
        control_config(steps=2_000, task={"replay": {"ratio": 1e-9}})
    )
    assert RoundPlan.of(settings, task_of(settings), online=True, replicas=1).acted == 2_000 // 4
