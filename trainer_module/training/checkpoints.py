"""Checkpoints in a folder, and notes within them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from typing import Any

import tensorflow as tf

from trainer_module.scratch import ScratchFolder

CHECKPOINTS_FOLDER = "checkpoints"
"""In the run of a model: the checkpoints that were kept."""
STATE_FILE = "checkpoint"
"""In their folder: which is the latest, as `tf.train.latest_checkpoint` reads it."""


class CheckpointNotes(tf.train.experimental.PythonState):
    """A JSON object that is saved and restored as part of a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.value: dict[str, Any] = {}

    @classmethod
    def of(cls, path: str) -> CheckpointNotes:
        """Those of a checkpoint, of which nothing else is restored."""
        notes = cls()
        tf.train.Checkpoint(notes=notes).restore(path).expect_partial()
        return notes

    def serialize(self) -> str:
        """For the checkpoint."""
        return json.dumps(self.value)

    def deserialize(self, string_value: bytes) -> None:
        """From the checkpoint."""
        self.value = json.loads(string_value)


class Checkpoints:
    """Numbered checkpoints in a folder, which several processes may read, but one writes.

    Saving replicated variables takes all workers, so the others write to a folder of no interest.
    """

    def __init__(self, directory: str, writes: bool, **content: Any) -> None:
        """Tracks `content`; nothing is written or read yet."""
        self._checkpoint = tf.train.Checkpoint(**content)
        self._reading = tf.train.CheckpointManager(self._checkpoint, directory, max_to_keep=None)
        self._writing = self._reading
        if not writes:
            self._scratch = ScratchFolder()
            self._writing = tf.train.CheckpointManager(
                self._checkpoint, self._scratch.name, max_to_keep=1
            )

    @property
    def latest(self) -> str | None:
        """The path of the latest whole checkpoint; None without one."""
        return self._reading.latest_checkpoint

    def save(self, number: int, keep: Collection[int] = ()) -> None:
        """Saves under a number, and deletes all others but those to keep."""
        self._writing.save(checkpoint_number=number)
        if self._writing is self._reading:
            kept = {self.path(number), *map(self.path, keep)}
            for path in tf.io.gfile.glob(f"{self.path('*')}.*"):
                if path.rpartition(".")[0] not in kept:
                    tf.io.gfile.remove(path)

    def clear(self) -> None:
        """Deletes all checkpoints, and what says which is the latest, if this process writes."""
        if self._writing is self._reading:
            state = os.path.join(self._reading.directory, STATE_FILE)
            for path in [state, *tf.io.gfile.glob(f"{self.path('*')}.*")]:
                tf.io.gfile.remove(path)

    def path(self, number: int | str) -> str:
        """What the checkpoint of a number is called."""
        return os.path.join(self._reading.directory, f"ckpt-{number}")

    def restore(self, path: str) -> None:
        """Restores a checkpoint by its path."""
        self._checkpoint.restore(path).expect_partial()
