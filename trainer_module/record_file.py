"""The file that says how a training went, whichever family it is of."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

RECORD_FILE = "training.json"
"""In the model run."""


def write_record(model_run_dir: str, record: Mapping[str, Any]) -> None:
    """Writes the record into the folder of a model run, which exists."""
    with tf.io.gfile.GFile(os.path.join(model_run_dir, RECORD_FILE), "w") as file:
        json.dump(record, file, indent=2)
