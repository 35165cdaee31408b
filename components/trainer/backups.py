"""The backups that training resumes from: after an interruption, or for additional epochs."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from tfx import types
from tfx.dsl.io import fileio
from tfx.types.standard_component_specs import CUSTOM_CONFIG_KEY

from components.copying import write_text
from trainer_module.runtime import RECORD_FILE
from trainer_module.settings import (
    SETTINGS_KEY,
    CheckpointSettings,
    CosineSchedule,
    LinearSchedule,
    TrainerSettings,
)
from trainer_module.settings.train import needs_held_out
from trainer_module.training.checkpoint import (
    CHECKPOINTS_FOLDER,
    STATE_FILE,
    clear,
    find_latest,
    finish_checkpoints,
    reopen_checkpoints,
)
from trainer_module.training.folds import FOLDS_FOLDER

_CHECKPOINT_FILE = "scopeline.json"
"""The file, beside kept checkpoints, with the key of their steps and the number of epochs. Weights
alone have none, as no training resumes from them."""
_DURATION_KEYS = ("epochs", "early_stopping", "checkpoints", "tensorboard")
"""The keys of `train` that change no step: for the duration, checkpoints and displays."""

Inputs = Mapping[str, Sequence[types.Artifact]]


def backup_directory(
    input_dict: Inputs,
    exec_properties: Mapping[str, Any],
    model_run_uri: str,
    scope: str = "",
) -> str:
    """Returns a folder that is the same for every execution with the same inputs and settings.

    It lies beside those of the executions, as TFX deletes the output of a failed execution.

    Args:
      input_dict: the Trainer's input artifacts by key.
      exec_properties: the Trainer's execution properties, without paths or timeouts, as they are
        its cache key.
      model_run_uri: `<Trainer's folder>/model_run/<execution>`.
      scope: a text that separates the folders of trainings that may run at the same time.
    """
    trainer = posixpath.dirname(_executions(model_run_uri))
    return posixpath.join(trainer, "backups", _hash(input_dict, exec_properties, scope))


def find_interrupted(backup: str) -> list[str]:
    """Returns the backups of other, incomplete trainings of the same Trainer.

    Args:
      backup: the backup of this training.

    Returns:
      The folders, sorted; empty if this training has a backup itself, from which it resumes.
    """
    if fileio.exists(backup):
        return []
    return sorted(fileio.glob(posixpath.join(posixpath.dirname(backup), "*")))


def steps_key(input_dict: Inputs, exec_properties: Mapping[str, Any]) -> str:
    """Returns a key that trainings with identical steps share, however many steps they have."""
    custom_config = json.loads(exec_properties[CUSTOM_CONFIG_KEY])
    settings = TrainerSettings.from_custom_config(custom_config)
    for key in _DURATION_KEYS:
        custom_config[SETTINGS_KEY]["train"].pop(key, None)
    # Folds are separate trainings.
    custom_config[SETTINGS_KEY].pop("evaluate", None)
    # If the best epoch is chosen, rows are held out of training.
    custom_config["chooses"] = needs_held_out(settings.train, steps_per_epoch=1)
    if _depends_on_epochs(settings):
        custom_config["epochs"] = settings.train.epochs
    return _hash(input_dict, {**exec_properties, CUSTOM_CONFIG_KEY: custom_config})


def _depends_on_epochs(settings: TrainerSettings) -> bool:
    """Returns whether a step depends on the number of steps that follow."""
    is_planned = isinstance(settings.train.learning_rate, CosineSchedule | LinearSchedule)
    # Models and callbacks of the user receive the settings, and may depend on the epochs.
    is_own = settings.model.is_custom or bool(settings.train.callbacks)
    return is_planned or settings.optimize.prune is not None or is_own


def restore_checkpoints(backup: str, model_run_uri: str, key: str, epochs: int) -> int:
    """Creates a backup from the checkpoints of an earlier, shorter training.

    Args:
      backup: the backup's folder; an existing backup is not changed.
      model_run_uri: the folder of this execution, which lies beside those of earlier ones.
      key: the required `steps_key`.
      epochs: the epochs to train; 0 if that is not known yet, and training starts from scratch.

    Returns:
      The epochs of the longest such training; 0 if there is none.
    """
    pattern = posixpath.join(_executions(model_run_uri), "*", CHECKPOINTS_FOLDER, _CHECKPOINT_FILE)
    kept = {posixpath.dirname(path): _read(path) for path in fileio.glob(pattern)}
    done = {
        folder: told["epochs"]
        for folder, told in kept.items()
        if told["steps"] == key and told["epochs"] < epochs
    }
    if not done:
        return 0
    longest = max(done, key=lambda folder: done[folder])
    if not fileio.exists(posixpath.join(backup, STATE_FILE)):
        fileio.makedirs(backup)
        clear(backup)  # Left by a killed attempt.
        for name in fileio.listdir(longest):
            if name not in (STATE_FILE, _CHECKPOINT_FILE):
                copy = posixpath.join(backup, name)
                fileio.copy(posixpath.join(longest, name), copy, overwrite=True)
        # The state file comes last: without it there is no backup yet.
        reopen_checkpoints(backup, find_latest(longest))
    return done[longest]


def has_record(model_run_uri: str) -> bool:
    """Returns whether a training has left a record of its epochs; a user's own loop need not."""
    return bool(fileio.exists(posixpath.join(model_run_uri, RECORD_FILE)))


def keep_backup(backup: str, model_run_uri: str, key: str, settings: CheckpointSettings) -> None:
    """Moves the backup of a completed training to the folder of its run.

    Args:
      backup: the backup's folder.
      model_run_uri: the folder of this execution, with the record of its training.
      key: its `steps_key`.
      settings: which checkpoints are kept, and their names.
    """
    remove_backup(posixpath.join(backup, FOLDS_FOLDER))
    record = _read(posixpath.join(model_run_uri, RECORD_FILE))
    kept = posixpath.join(model_run_uri, CHECKPOINTS_FOLDER)
    # A new store counts executions from 1 again, and an older one may have left this folder.
    remove_backup(kept)
    fileio.rename(backup, kept)
    epochs = finish_checkpoints(kept, settings, record["best_epoch"])
    if not settings.weights_only:
        # A truncated file, after a kill, would break every later training.
        part = posixpath.join(kept, f"{_CHECKPOINT_FILE}.new")
        write_text(json.dumps({"steps": key, "epochs": epochs}), part)
        fileio.rename(part, posixpath.join(kept, _CHECKPOINT_FILE))


def remove_backup(directory: str) -> None:
    """Removes a backup, if there is one."""
    if fileio.exists(directory):
        fileio.rmtree(directory)


def _executions(model_run_uri: str) -> str:
    """Returns the folder that contains the folders of all executions' model runs."""
    return posixpath.dirname(model_run_uri.rstrip("/"))


def _hash(input_dict: Inputs, properties: Mapping[str, Any], scope: str = "") -> str:
    inputs = {key: sorted(map(_identity, artifacts)) for key, artifacts in input_dict.items()}
    told = json.dumps([inputs, dict(properties)], sort_keys=True, default=str) + scope
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _identity(artifact: types.Artifact) -> tuple[str, int, int]:
    """Returns a unique identity of an artifact, even if a new store reuses its uri and id."""
    return artifact.uri, artifact.id, artifact.mlmd_artifact.create_time_since_epoch


def _read(path: str) -> dict[str, Any]:
    with fileio.open(path, "r") as file:
        return dict(json.loads(file.read()))
