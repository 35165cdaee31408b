"""The whole state of a training in one file, which is there whole or not at all."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from typing import Any
from zipfile import BadZipFile

import numpy as np
import tensorflow as tf

from trainer_module.errors import TrainingError

BACKUP_FILE = "control.npz"
"""In the folder for backups."""
_NOTES = "notes"


def save_backup(
    directory: str, notes: Mapping[str, Any], arrays: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Replaces the backup of a training; a kill in the middle leaves the one before.

    Args:
      directory: of the backup; a path or URI.
      notes: plain values, as JSON.
      arrays: by name, of each part of the training.
    """
    named: dict[str, Any] = {
        f"{part}/{name}": one for part, of in arrays.items() for name, one in of.items()
    }
    tf.io.gfile.makedirs(directory)
    path = os.path.join(directory, BACKUP_FILE)
    with tf.io.gfile.GFile(f"{path}.new", "wb") as file:
        # Straight to the file: memory need not hold the replay once more.
        np.savez(_OnlyWritten(file), **{_NOTES: np.array(json.dumps(notes)), **named})
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


class _OnlyWritten(io.RawIOBase):
    """A file that is written from its beginning to its end, as TensorFlow's may not go back."""

    def __init__(self, file: tf.io.gfile.GFile) -> None:
        super().__init__()
        self._file = file

    def write(self, data: Any) -> int:
        """Writes all of it."""
        self._file.write(bytes(data))
        return len(data)

    def tell(self) -> int:
        """Says that there is no going back."""
        raise io.UnsupportedOperation


def load_backup(directory: str) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]] | None:
    """The notes and arrays of the backup in a folder; None where there is none.

    Raises:
      TrainingError: it cannot be read.
    """
    path = os.path.join(directory, BACKUP_FILE)
    if not tf.io.gfile.exists(path):
        return None
    arrays: dict[str, dict[str, np.ndarray]] = {}
    try:
        with (
            tf.io.gfile.GFile(path, "rb") as file,
            np.load(file, allow_pickle=False) as found,
        ):
            notes = json.loads(str(found[_NOTES]))
            for key in found.files:
                part, _, name = key.partition("/")
                if name:
                    arrays.setdefault(part, {})[name] = found[key]
    except (ValueError, KeyError, EOFError, BadZipFile, tf.errors.OpError) as error:
        raise TrainingError(
            f"the backup {path} is damaged ({type(error).__name__}): delete it, and training begins"
            " anew."
        ) from error
    return notes, arrays
