"""Trains a policy in a process that may be killed: `python control_run.py FOLDER ARGUMENTS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainer_module.control_trainer import run_fn
from trainer_module.runtime import WorkerContext
from trainer_module.settings import TrainerSettings

CARTPOLE = "gymnasium:CartPole-v1"
TASK = {
    "kind": "control",
    "episodes": 12,
    "environments": 4,
    "replay": {"begins": 64, "ratio": 1.0},
}


def control_config(
    model: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    files: list[str] | None = None,
    source: dict[str, Any] | None = None,
    **train: Any,
) -> dict[str, Any]:
    """The `custom_config` of a small training; without files it acts in CartPole."""
    settings = TrainerSettings.model_validate(
        {
            "label": "",
            "task": TASK | (task or {}),
            "model": {"kind": "dqn", "hidden_units": [16]} | (model or {}),
            "train": {"steps": 960, "batch_size": 16} | train,
        }
    )
    data: dict[str, Any] = {"files": files or []}
    if files is None:
        data["source"] = {"path": CARTPOLE, "episodes": None, "policy": None, **(source or {})}
    return {**settings.to_custom_config(), "data": data}


def arguments(folder: Path, custom_config: dict[str, Any], backup_steps: int | None) -> Any:
    """What `run_fn` takes."""
    folder.mkdir(exist_ok=True)
    return SimpleNamespace(
        custom_config=custom_config,
        model_run_dir=str(folder),
        serving_model_dir=str(folder / "model"),
        runtime=WorkerContext(backup_steps=backup_steps),
    )


if __name__ == "__main__":
    run_fn(arguments(Path(sys.argv[1]), **json.loads(sys.argv[2])))
