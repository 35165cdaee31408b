"""Starts a conversion in a process of its own, which may leak, crash or be killed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.disk import show_size
from components.processes.failures import Failure, TaskFailedError
from components.processes.launcher import ClusterTask, TaskSpec
from components.processes.local.fork_server import current_server
from components.processes.local.launcher import LocalLauncher
from components.processes.local.task import LocalTask
from components.stopping import deferred
from trainer_module.errors import TrainingError
from trainer_module.export.variants.manifest import Variant, read_variant
from trainer_module.export.variants.measuring import save_sample
from trainer_module.scratch import ScratchFolder
from trainer_module.settings.durations import show_seconds

MODULE = "components.optimizer.converting.child"
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ConversionLimits:
    """What a conversion may take."""

    seconds: float = 3600.0
    memory: int | None = None
    """Bytes of address space; None: what the machine has."""


def convert_in_child(
    name: str,
    saved_model: Path,
    sample: Mapping[str, np.ndarray],
    folder: Path,
    limits: ConversionLimits = ConversionLimits(),
) -> Variant:
    """Makes a variant; the folder is there with all that belongs in it, or not at all.

    Args:
      name: as in the config.
      saved_model: an exported model.
      sample: transformed examples of the train split, [rows, ...] by feature.
      folder: that will hold it; what lies there is replaced.
      limits: of the process.

    Raises:
      TrainingError: it cannot be made, with the reason: what the converter said, or how its
          process ended.
    """
    scratch = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with ScratchFolder() as room:
            stored = Path(room, "sample.npz")
            save_sample(sample, stored)
            payload = {
                "name": name,
                "saved_model": str(saved_model),
                "sample": str(stored),
                "folder": str(scratch),
                "memory": limits.memory,
            }
            _run(TaskSpec(_task(name), MODULE, payload, _ENVIRONMENT), limits)
        variant = read_variant(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return variant


_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""Converters compute on the CPU, and must not take a GPU's memory."""


def _task(name: str) -> ClusterTask:
    return ClusterTask("worker", 0, label=f"the conversion to {name}")


def _run(spec: TaskSpec, limits: ConversionLimits) -> None:
    launcher = LocalLauncher(current_server())
    try:
        task = launcher.start(spec)
        failure = _watch(task, spec.task.name, limits)
        if failure is None:
            return
        error = failure.to_exception(task.log_tail())
    finally:
        with deferred():
            launcher.stop_all()
    if isinstance(error, TaskFailedError):
        raise TrainingError(f"{error}; its output is in the log of the run.") from error
    raise error


def _watch(task: LocalTask, name: str, limits: ConversionLimits) -> Failure | None:
    """Until the process has ended: how it failed, or None."""
    deadline = time.monotonic() + limits.seconds
    while True:
        status = task.poll()
        for event in task.events():
            if event.kind == "done":
                return None
            if event.kind == "error":
                return Failure.of_error(name, event.values)
        if status is not None:
            limit = (
                limits.memory and f"it may take no more than {show_size(limits.memory)} of memory"
            )
            return Failure.of_exit(name, status, limit or task.remark())
        if time.monotonic() > deadline:
            limit = show_seconds(limits.seconds)
            return Failure(name, time.time(), f"took longer than {limit}")
        time.sleep(_POLL_SECONDS)
