"""The state of training under way, kept for an interruption, and the best weights so far."""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import StepCallback, begin_fit_at, forget_start
from trainer_module.scratch import ScratchFolder
from trainer_module.strategies.coordinator import agree

logger = logging.getLogger(__name__)

CHECKPOINTS_FOLDER = "checkpoints"
"""In the run of a model: the checkpoints that were kept."""
STATE_FILE = "checkpoint"
"""In their folder: which is the latest, as `tf.train.latest_checkpoint` reads it."""

_OURS = "trainer_module."

Logs = dict[str, Any] | None


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


class Stateful(Protocol):
    """A callback that has to remember something when training goes on."""

    def get_state(self) -> dict[str, Any]:
        """What it knows, as JSON."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what it knew."""


@dataclass(frozen=True)
class Position:
    """How far training has come."""

    epoch: int = 0
    """Epochs that have ended."""
    step: int = 0
    """Steps of the epoch under way that are done."""
    ended: bool = False
    """Whether a callback, as that for early stopping, has ended training there."""


BEGINNING = Position()


class BestEpoch(tf_keras.callbacks.Callback):
    """Knows the epoch with the lowest value of what is monitored, whose weights are kept.

    `epoch` counts from 1; 0 until an epoch has ended that may be the best.
    """

    def __init__(self, monitor: str, first: int = 0, chooses: bool = True) -> None:
        """Takes how the epoch is found.

        Args:
          monitor: the name of the value in an epoch's logs, such as `val_loss`.
          first: the first epoch that may be the best, counted from 0.
          chooses: whether the value decides; otherwise it is the last epoch.
        """
        super().__init__()
        self.monitor = monitor
        self._first = first
        self._chooses = chooses
        self.epoch = 0
        self.loss = math.inf

    def get_state(self) -> dict[str, Any]:
        """The best epoch and its loss."""
        return {"epoch": self.epoch, "loss": self.loss}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what was best before an interruption."""
        self.epoch, self.loss = state["epoch"], state["loss"]

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Compares."""
        loss = float((logs or {})[self.monitor])
        if not self._chooses or (epoch >= self._first and loss < self.loss):
            self.epoch, self.loss = epoch + 1, loss


class CheckpointCallback(StepCallback):
    """Saves the state of training each epoch, or every so many steps, and goes on from it.

    The checkpoint of the best epoch is kept as well, and training ends with it.

    Unlike Keras's BackupAndRestore it takes every strategy, keeps what the callbacks and the
    metrics know, and, as step `s` has the same examples in every run, goes on in mid-epoch.
    It has to be the last callback.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        directory: str,
        steps_per_epoch: int,
        every: int | None = None,
        keep: int = 1,
        *,
        writes: bool = True,
    ) -> None:
        """Finds where training begins or goes on: `start`, and the `history` until then.

        Args:
          strategy: that the model is trained under; all of its workers do this together.
          directory: for the checkpoints; those of an interrupted training may be there.
          steps_per_epoch: of the training.
          every: steps between backups; None is one at the end of each epoch.
          keep: how many of the epochs that ended last have their checkpoint kept.
          writes: whether no other process does so for this one, in the same directory.
        """
        # Keras need not wait for a step's results where steps are listened to.
        super().__init__(hears_steps=every is not None, takes_tensors=every is not None)
        self._strategy = strategy
        self._directory = directory
        self._steps = steps_per_epoch
        self._every = every
        self._keep = keep
        self._writes = writes
        self._notes = CheckpointNotes()
        self._is_under_way = False
        self._epoch = 0
        self.start = BEGINNING
        """Where training begins or goes on."""
        self.history: dict[str, list[float]] = {}
        """A value per epoch for each metric, from the first epoch on."""
        self.metrics: Callable[[], list[tf_keras.metrics.Metric]] = lambda: self.model.metrics
        """The metrics of an epoch under way."""
        self.is_followed = False
        """Whether another training goes on from the state that this one will end in."""
        self._latest = self._find()
        self._saved_at = self.start.epoch * self._steps + self.start.step

    def watch(self, callbacks: Sequence[tf_keras.callbacks.Callback]) -> None:
        """Takes the callbacks before this one: a `BestEpoch`; what is `Stateful` is remembered."""
        self._best = next(c for c in callbacks if isinstance(c, BestEpoch))
        self._stateful = _by_name([c for c in callbacks if hasattr(c, "get_state")])

    def restore(self, model: tf_keras.Model, **others: tf_keras.Model) -> Position:
        """Where training goes on; brings the model to it, if it is not there by itself.

        Args:
          model: whose weights are saved, and the state of its optimizer, if it is compiled. After
              epochs of this process it goes on, with an optimizer that may be a new one.
          others: what is saved besides, such as a model that has some of the weights, and an
              optimizer of its own.
        """
        self._checkpoints = self._open(model=model, **others)
        if self._is_under_way:
            self.start = Position(self._epoch + 1)
        elif self._latest is not None:
            self._checkpoints.restore(self._latest)
            logger.info("going on from %s: %s", self._latest, self.start)
        return self.start

    def _open(self, **content: Any) -> Checkpoints:
        return Checkpoints(self._directory, self._writes, notes=self._notes, **content)

    def _find(self) -> str | None:
        """The latest checkpoint that this training can go on from; None if it begins anew."""
        found = self._open()
        latest = found.latest
        if not agree(self._strategy, _number(latest)):
            logger.warning("The workers have not got the same backup: training begins anew.")
            return None
        if latest is None:
            return None
        notes = CheckpointNotes.of(latest).value
        if not self._fits(latest, notes):
            agree(self._strategy, 0)  # When all have come here, nobody reads it any more.
            found.clear()
            return None
        # Older notes do not say whether training had ended.
        self.start = Position(notes["epoch"], notes["step"], notes.get("ended", False))
        self.history = notes["history"]
        return latest

    def _fits(self, latest: str, notes: Mapping[str, Any]) -> bool:
        """Whether the epochs of a checkpoint had as many steps as those of this training.

        They depend on the number of replicas, which another machine may have more or fewer of.
        Checkpoints are found by their steps: the best epoch's would not be.
        """
        # The number alone says nothing in the first epoch; older notes have no steps.
        steps = notes.get("steps", self._steps)
        if steps == self._steps and _number(latest) == notes["epoch"] * steps + notes["step"]:
            return True
        logger.warning(
            "Training begins anew: an epoch now has %d steps, and another number in %s; so it is "
            "when the number of replicas has changed.",
            self._steps,
            latest,
        )
        return False

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: str
    ) -> tuple[int, int]:
        """The epoch and step that Keras's `fit` begins with, which asks through `begin_fit_at`."""
        del steps_per_epoch, initial_epoch, mode
        return self.start.epoch, self.start.step

    def on_train_begin(self, logs: Logs = None) -> None:
        """The callbacks before this one have reset themselves; they get their state back."""
        begin_fit_at(self.model, self)
        saved = {
            _shortened(name): state
            for name, state in self._notes.value.get("callbacks", {}).items()
        }
        # Patience may come or go where a training goes on that was done.
        for name in saved.keys() & self._stateful.keys():
            self._stateful[name].set_state(saved[name])

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """In mid-epoch the metrics go on from the values that they had."""
        self._epoch, self._is_under_way = epoch, True
        if epoch == self.start.epoch and self.start.step:
            saved = self._notes.value["metrics"]
            for metric in self.metrics():
                if metric.name in saved:
                    metric.set_weights([np.array(weight) for weight in saved[metric.name]])

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves if so many steps have passed; the end of the epoch saves by itself."""
        done = self._epoch * self._steps + batch + 1
        if self._every and done - self._saved_at >= self._every and batch + 1 < self._steps:
            metrics = {m.name: [w.tolist() for w in m.get_weights()] for m in self.metrics()}
            self._save(Position(self._epoch, batch + 1), metrics)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves."""
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        self._save(Position(epoch + 1, ended=bool(self.model.stop_training)), {})

    def on_train_end(self, logs: Logs = None) -> None:
        """Goes back to the best epoch."""
        forget_start(self.model)
        if self._best.epoch and (self.model.stop_training or not self.is_followed):
            agree(self._strategy, self._best.epoch)  # When all have come here, it is written.
            self._checkpoints.restore(self._checkpoints.path(self._best.epoch * self._steps))
            best = self._best
            logger.info("restored epoch %d, %s %g", best.epoch, best.monitor, best.loss)

    def _save(self, position: Position, metrics: dict[str, Any]) -> None:
        self._notes.value = {
            "epoch": position.epoch,
            "step": position.step,
            "ended": position.ended,
            "steps": self._steps,
            "history": self.history,
            "metrics": metrics,
            "callbacks": {name: callback.get_state() for name, callback in self._stateful.items()},
        }
        self._saved_at = position.epoch * self._steps + position.step
        last = range(max(1, position.epoch - self._keep + 1), position.epoch + 1)
        kept = [epoch * self._steps for epoch in (self._best.epoch, *last)]
        self._checkpoints.save(self._saved_at, kept)


def _by_name(callbacks: Sequence[Stateful]) -> dict[str, Stateful]:
    """By class; the second and further ones of a class have a number as well."""
    named: dict[str, Stateful] = {}
    seen: Counter[str] = Counter()
    for callback in callbacks:
        kind = _shortened(f"{type(callback).__module__}.{type(callback).__qualname__}")
        seen[kind] += 1
        named[kind if seen[kind] == 1 else f"{kind} {seen[kind]}"] = callback
    return named


def _shortened(name: str) -> str:
    """Without the module where that is one of ours, which may move from version to version."""
    return name.rpartition(".")[2] if name.startswith(_OURS) else name


def _number(path: str | None) -> int:
    return int(path.rpartition("-")[2]) if path else 0
