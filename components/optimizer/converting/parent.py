"""Starts a conversion in a process of its own, which may leak, crash or be killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from components.processes.failures import WorkerFailedError
from components.processes.launcher import Limits, Place, WorkerSpec
from components.processes.local.launcher import run_one
from trainer_module.errors import TrainingError
from trainer_module.export.variants.manifest import Variant, read_variant
from trainer_module.export.variants.measuring import save_sample
from trainer_module.scratch import ScratchFolder

MODULE = "components.optimizer.converting.child"
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""Converters compute on the CPU, and must not take a GPU's memory."""


LIMITS = Limits(seconds=3600.0)
"""What a conversion may take."""


def convert_in_child(
    name: str,
    saved_model: Path,
    sample: Mapping[str, np.ndarray],
    folder: Path,
    limits: Limits = LIMITS,
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
            }
            place = Place("worker", 0, label=f"the conversion to {name}")
            run_one(WorkerSpec(place, MODULE, payload, _ENVIRONMENT, limits))
        variant = read_variant(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(scratch, folder)
    except WorkerFailedError as error:
        raise TrainingError(f"{error}; its output is in the log of the run.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return variant
