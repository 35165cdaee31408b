"""Where training goes on from after it was interrupted."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from tfx import types
from tfx.dsl.io import fileio


def backup_directory(
    input_dict: Mapping[str, Sequence[types.Artifact]],
    exec_properties: Mapping[str, Any],
    model_run_uri: str,
    scope: str = "",
) -> str:
    """A folder that is the same for every execution with the same inputs and settings.

    It lies beside those of the executions: TFX deletes what a failed execution has written.

    Args:
      input_dict: the Trainer's input artifacts by key.
      exec_properties: the Trainer's; without paths or time-outs, as they are its cache key.
      model_run_uri: `<Trainer's folder>/model_run/<execution>`.
      scope: those with another have folders of their own.
    """
    inputs = {key: sorted(item.uri for item in artifacts) for key, artifacts in input_dict.items()}
    told = json.dumps([inputs, dict(exec_properties)], sort_keys=True, default=str) + scope
    key = hashlib.sha256(told.encode()).hexdigest()[:16]
    trainer = posixpath.dirname(posixpath.dirname(model_run_uri.rstrip("/")))
    return posixpath.join(trainer, "backups", key)


def remove_backup(directory: str) -> None:
    """Removes a backup that is not needed any more, if there is one."""
    if fileio.exists(directory):
        fileio.rmtree(directory)
