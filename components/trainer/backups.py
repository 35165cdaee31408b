"""The backups from which training resumes, after an interruption or for additional epochs."""

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
from trainer_module.runtime import MEMBERS_FOLDER, RECORD_FILE
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
"""The file next to kept checkpoints with their `steps_key` and their number of epochs. It does not
exist if only weights are kept, because training cannot resume from weights."""
_DURATION_KEYS = ("epochs", "early_stopping", "checkpoints", "tensorboard")
"""The keys of `train` that do not affect the training steps: duration, checkpoints, displays."""

Inputs = Mapping[str, Sequence[types.Artifact]]


def backup_directory(
    input_dict: Inputs,
    exec_properties: Mapping[str, Any],
    model_run_uri: str,
    scope: str = "",
) -> str:
    """Returns a folder that is the same for every execution with the same inputs and settings.

    The folder is not in the folder of an execution, because TFX deletes the output of a failed
    execution.

    Args:
      exec_properties: the Trainer's execution properties; they contain no paths or timeouts, as
        they are part of TFX's cache key.
      model_run_uri: the folder `<Trainer's folder>/model_run/<execution>`.
      scope: a string that separates the folders of simultaneous training runs.
    """
    trainer = posixpath.dirname(_executions(model_run_uri))
    return posixpath.join(trainer, "backups", _hash(input_dict, exec_properties, scope))


def find_interrupted(backup: str) -> list[str]:
    """Returns the backups of other, interrupted training runs of the same Trainer.

    Returns:
      The sorted folders. The list is empty if this training has a backup, from which it resumes.
    """
    if fileio.exists(backup):
        return []
    return sorted(fileio.glob(posixpath.join(posixpath.dirname(backup), "*")))


def steps_key(input_dict: Inputs, exec_properties: Mapping[str, Any]) -> str:
    """Returns a hash of everything that determines the training steps, except for their number."""
    custom_config = json.loads(exec_properties[CUSTOM_CONFIG_KEY])
    settings = TrainerSettings.from_custom_config(custom_config)
    for key in _DURATION_KEYS:
        custom_config[SETTINGS_KEY]["train"].pop(key, None)
    # Folds are trained separately, and do not affect the training steps.
    custom_config[SETTINGS_KEY].pop("evaluate", None)
    # The training rows depend on this value: if the best epoch is chosen, rows are held out.
    custom_config["chooses"] = needs_held_out(settings.train, steps_per_epoch=1)
    if _depends_on_epochs(settings):
        custom_config["epochs"] = settings.train.epochs
    return _hash(input_dict, {**exec_properties, CUSTOM_CONFIG_KEY: custom_config})


def _depends_on_epochs(settings: TrainerSettings) -> bool:
    """Returns whether a training step depends on the total number of epochs."""
    has_schedule = isinstance(settings.train.learning_rate, CosineSchedule | LinearSchedule)
    # Models and callbacks of the user receive the settings, which contain the epochs.
    has_user_code = settings.model.is_custom or bool(settings.train.callbacks)
    return has_schedule or settings.optimize.prune is not None or has_user_code


def restore_checkpoints(backup: str, model_run_uri: str, key: str, epochs: int) -> int:
    """Creates a backup from the checkpoints of an earlier, shorter training run.

    Args:
      backup: the folder of the backup; an existing backup is not changed.
      model_run_uri: the folder of this execution; its parent has the folders of all executions.
      key: the `steps_key` that the checkpoints must have.
      epochs: the number of epochs to train, or 0 if it is not known yet: then training starts from
        scratch.

    Returns:
      The number of epochs of the longest earlier training run, or 0 if there are no checkpoints.
    """
    pattern = posixpath.join(_executions(model_run_uri), "*", CHECKPOINTS_FOLDER, _CHECKPOINT_FILE)
    checkpoints = {posixpath.dirname(path): _read(path) for path in fileio.glob(pattern)}
    epochs_by_folder = {
        folder: content["epochs"]
        for folder, content in checkpoints.items()
        if content["steps"] == key and content["epochs"] < epochs
    }
    if not epochs_by_folder:
        return 0
    longest = max(epochs_by_folder, key=lambda folder: epochs_by_folder[folder])
    if not fileio.exists(posixpath.join(backup, STATE_FILE)):
        fileio.makedirs(backup)
        clear(backup)  # Deletes the files of a killed attempt.
        for name in fileio.listdir(longest):
            if name not in (STATE_FILE, _CHECKPOINT_FILE):
                copy = posixpath.join(backup, name)
                fileio.copy(posixpath.join(longest, name), copy, overwrite=True)
        # The state file is written last: a folder without state file is not a backup.
        reopen_checkpoints(backup, find_latest(longest))
    return epochs_by_folder[longest]


def has_record(model_run_uri: str) -> bool:
    """Returns whether the training has written a record of its epochs.

    A user's own `run_fn` may write no record.
    """
    return bool(fileio.exists(posixpath.join(model_run_uri, RECORD_FILE)))


def keep_backup(backup: str, model_run_uri: str, key: str, settings: CheckpointSettings) -> None:
    """Moves the backup of a completed training to its model run.

    Args:
      model_run_uri: the folder of this execution, with the record of the training.
      key: the `steps_key` of the training.
      settings: the settings for the checkpoints to keep, and their names.
    """
    for folder in (FOLDS_FOLDER, MEMBERS_FOLDER):
        remove_backup(posixpath.join(backup, folder))
    record = _read(posixpath.join(model_run_uri, RECORD_FILE))
    checkpoints_folder = posixpath.join(model_run_uri, CHECKPOINTS_FOLDER)
    # With a new metadata store, execution ids repeat: the folder may already exist.
    remove_backup(checkpoints_folder)
    fileio.rename(backup, checkpoints_folder)
    epochs = finish_checkpoints(checkpoints_folder, settings, record["best_epoch"])
    if not settings.weights_only:
        # The file is renamed: a truncated file of a killed run would break every later training.
        temporary_file = posixpath.join(checkpoints_folder, f"{_CHECKPOINT_FILE}.new")
        write_text(json.dumps({"steps": key, "epochs": epochs}), temporary_file)
        fileio.rename(temporary_file, posixpath.join(checkpoints_folder, _CHECKPOINT_FILE))


def remove_backup(directory: str) -> None:
    """Removes a backup if it exists."""
    if fileio.exists(directory):
        fileio.rmtree(directory)


def _executions(model_run_uri: str) -> str:
    """Returns the folder that contains the model runs of all executions."""
    return posixpath.dirname(model_run_uri.rstrip("/"))


def _hash(input_dict: Inputs, properties: Mapping[str, Any], scope: str = "") -> str:
    inputs = {key: sorted(map(_identity, artifacts)) for key, artifacts in input_dict.items()}
    content = json.dumps([inputs, dict(properties)], sort_keys=True, default=str) + scope
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _identity(artifact: types.Artifact) -> tuple[str, int, int]:
    """Returns the identity of an artifact, which differs even if a new store reuses uri and id."""
    return artifact.uri, artifact.id, artifact.mlmd_artifact.create_time_since_epoch


def _read(path: str) -> dict[str, Any]:
    with fileio.open(path, "r") as file:
        return dict(json.loads(file.read()))
