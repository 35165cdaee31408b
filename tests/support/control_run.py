"""Trains a policy in a process that may be killed: `python control_run.py FOLDER ARGUMENTS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainer_module.control_trainer import run_fn
from trainer_module.runtime import WorkerContext


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
