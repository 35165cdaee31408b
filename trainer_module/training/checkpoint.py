"""The state of training under way, kept for an interruption, and the best weights so far."""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import StepCallback, begin_fit_at, forget_start
from trainer_module.scratch import ScratchFolder
from trainer_module.settings import CheckpointSettings
from trainer_module.strategies.coordinator import agree

logger = logging.getLogger(__name__)

CHECKPOINTS_FOLDER = "checkpoints"
"""In the run of a model: the checkpoints that were kept."""
STATE_FILE = "checkpoint"
"""In their folder: which is the latest, as `tf.train.latest_checkpoint` reads it."""
CHECKPOINT, WEIGHTS = "ckpt", "weights"
"""What the names begin with, while training goes on, of whole states and of weights alone."""
NOTES_ENDING = ".json"
"""Of the file beside a checkpoint that says how far training had come."""

_OURS = "trainer_module."

Logs = dict[str, Any] | None


def read_notes(path: str) -> dict[str, Any]:
    """What a checkpoint says of the training that has left it: `epoch`, `step`, `history` and more.

    Args:
      path: of the checkpoint, without the ending of a file.

    Returns:
      Nothing of a checkpoint that no training here has left.
    """
    if not tf.io.gfile.exists(notes := f"{path}{NOTES_ENDING}"):
        return {}
    with tf.io.gfile.GFile(notes) as file:
        return dict(json.loads(file.read()))


def read_checkpoint(path: str, model: tf_keras.Model, **others: tf_keras.Model) -> Any:
    """Restores a model from a checkpoint, and the state of its optimizer, if it is compiled.

    Args:
      path: of the checkpoint, without the ending of a file.
      model: whose weights are restored.
      others: what is restored besides.

    Returns:
      TensorFlow's status, of which one can ask whether all was found.
    """
    return tf.train.Checkpoint(root=model, **others).read(path)


@contextmanager
def without_optimizer(model: tf_keras.Model) -> Iterator[None]:
    """Takes a model's optimizer away for a while: what is saved and restored is the weights."""
    optimizer = model.optimizer
    if optimizer is None:
        yield
        return
    # Keras goes on saving what an attribute had, unless something else that can be saved is there.
    model.optimizer = tf.train.Checkpoint()
    try:
        yield
    finally:
        model.optimizer = optimizer


class Checkpoints:
    """Numbered checkpoints in a folder, which several processes may read, but one writes.

    They are as Keras's `save_weights` writes them, with notes in a file beside each, so that its
    `load_weights` reads them. Saving replicated variables takes all workers, so the others write to
    a folder of no interest.
    """

    def __init__(
        self,
        directory: str,
        writes: bool,
        model: tf_keras.Model,
        others: Mapping[str, tf_keras.Model],
    ) -> None:
        """Takes what is saved; nothing is written or read yet.

        Args:
          directory: of the checkpoints.
          writes: whether this process writes there.
          model: is saved with its optimizer.
          others: what is saved besides.
        """
        self._directory, self._writes = directory, writes
        self._model, self._others = model, others
        self._content = tf.train.Checkpoint(root=model, **others)
        self._scratch = None if writes else ScratchFolder()

    def save(self, number: int, notes: Mapping[str, Any], keep: Collection[int] = ()) -> None:
        """Saves under a number, and deletes all others but those to keep.

        Args:
          number: of steps that are done.
          notes: what is read with the checkpoint.
          keep: numbers of others.
        """
        path = self._write(self._content, self.path(number), notes)
        if self._writes:
            write_state(self._directory, os.path.basename(path))
            self._delete_all_but(CHECKPOINT, {number, *keep})

    def save_weights(self, number: int, notes: Mapping[str, Any], keep: Collection[int]) -> None:
        """Saves the weights alone, if their number is one to keep, and deletes all but those.

        Args:
          number: of steps that are done.
          notes: what is read with the weights.
          keep: numbers of those to keep.
        """
        if number in keep:
            with without_optimizer(self._model):
                weights = tf.train.Checkpoint(root=self._model)
                self._write(weights, self.path(number, WEIGHTS), notes)
        if self._writes:
            self._delete_all_but(WEIGHTS, keep)

    def _write(self, content: tf.train.Checkpoint, path: str, notes: Mapping[str, Any]) -> str:
        """Writes the notes first: a checkpoint is there once all of it is."""
        if self._scratch is not None:
            content.write(os.path.join(self._scratch.name, CHECKPOINT))
            return path
        tf.io.gfile.makedirs(self._directory)
        with tf.io.gfile.GFile(f"{path}{NOTES_ENDING}", "w") as file:
            file.write(json.dumps(notes))
        return str(content.write(path))

    def _delete_all_but(self, kind: str, keep: Collection[int]) -> None:
        kept = {self.path(number, kind) for number in keep}
        for path in tf.io.gfile.glob(f"{self.path('*', kind)}.*"):
            if path.rpartition(".")[0] not in kept:
                tf.io.gfile.remove(path)

    def path(self, number: int | str, kind: str = CHECKPOINT) -> str:
        """What the checkpoint, or the weights, of a number are called."""
        return os.path.join(self._directory, f"{kind}-{number}")

    def restore(self, path: str) -> None:
        """Restores a checkpoint by its path."""
        read_checkpoint(path, self._model, **self._others).expect_partial()


def clear(directory: str) -> None:
    """Deletes all checkpoints of a folder, and what says which is the latest."""
    state = os.path.join(directory, STATE_FILE)
    if tf.io.gfile.exists(state):
        tf.io.gfile.remove(state)
    for kind in (CHECKPOINT, WEIGHTS):
        for path in tf.io.gfile.glob(os.path.join(directory, f"{kind}-*.*")):
            tf.io.gfile.remove(path)


def write_state(directory: str, name: str) -> None:
    """Has `tf.train.latest_checkpoint` find a checkpoint, also where its folder is moved.

    Args:
      directory: of the checkpoints.
      name: of the latest one.
    """
    path = os.path.join(directory, STATE_FILE)
    with tf.io.gfile.GFile(f"{path}.new", "w") as file:
        file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


def find_latest(directory: str) -> str:
    """Returns the name of the latest checkpoint in a folder; empty if there is none."""
    return os.path.basename(tf.train.latest_checkpoint(directory) or "")


def name_kept(directory: str, settings: CheckpointSettings, best_epoch: int) -> int:
    """Leaves the checkpoints to keep of a training that is done, under the names that they have.

    Args:
      directory: of the training's checkpoints.
      settings: which are kept, and what they are called.
      best_epoch: counted from 1.

    Returns:
      The epoch of the latest one.
    """
    kind = WEIGHTS if settings.weights_only else CHECKPOINT
    found = kept_by_epoch(directory, f"{kind}-")
    kept = sorted(settings.epochs(max(found), best_epoch) & {*found})
    for name in {*_names(directory)} - {found[epoch] for epoch in kept}:
        for path in _files(directory, name):
            tf.io.gfile.remove(path)
    new = ""
    for epoch in kept:  # Names with smaller numbers are free by then.
        default = f"{CHECKPOINT}-{found[epoch].rpartition('-')[2]}"
        new = settings.name.format(epoch=epoch) if settings.name else default
        _rename(directory, found[epoch], new)
    write_state(directory, new)
    return kept[-1]


def name_as_in_training(directory: str, latest: str) -> None:
    """Gives checkpoints that were kept the names by which a training finds them.

    Args:
      directory: of copies of them; killed before the end, there is no latest one.
      latest: the name of the latest one.
    """
    for _, name in sorted(kept_by_epoch(directory).items(), reverse=True):
        notes = read_notes(os.path.join(directory, name))
        new = f"{CHECKPOINT}-{notes['epoch'] * notes['steps']}"
        _rename(directory, name, new)
        latest = new if name == latest else latest
    write_state(directory, latest)


def kept_by_epoch(directory: str, beginning: str = "") -> dict[int, str]:
    """Returns the names of the checkpoints in a folder by the epoch, from 1, that they are the end
    of.

    Args:
      directory: of the checkpoints.
      beginning: that a name has.
    """
    found = {}
    for name in _names(directory):
        if not name.startswith(beginning):
            continue
        notes = read_notes(os.path.join(directory, name))
        if notes and not notes["step"]:
            found[notes["epoch"]] = name
    return found


def _names(directory: str) -> list[str]:
    """Returns the names of all checkpoints in a folder, sorted."""
    ending = ".index"
    paths = tf.io.gfile.glob(os.path.join(directory, f"*{ending}"))
    return sorted(os.path.basename(path).removesuffix(ending) for path in paths)


def _files(directory: str, name: str) -> list[str]:
    """Returns the files of the checkpoint of a name."""
    return list(tf.io.gfile.glob(os.path.join(directory, f"{name}.*")))


def _rename(directory: str, name: str, new: str) -> None:
    """Renames the files of a checkpoint."""
    for path in _files(directory, name) if new != name else ():
        ending = os.path.basename(path).removeprefix(name)
        tf.io.gfile.rename(path, os.path.join(directory, f"{new}{ending}"), overwrite=True)


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
        """Returns the best epoch and its loss."""
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
        kept: CheckpointSettings | None = None,
        *,
        writes: bool = True,
    ) -> None:
        """Finds where training begins or goes on: `start`, and the `history` until then.

        Args:
          strategy: that the model is trained under; all of its workers do this together.
          directory: for the checkpoints; those of an interrupted training may be there.
          steps_per_epoch: of the training.
          every: steps between backups; None is one at the end of each epoch.
          kept: the epochs whose checkpoints are kept; None is the best and the last one.
          writes: whether no other process does so for this one, in the same directory.
        """
        # Keras need not wait for a step's results where steps are listened to.
        super().__init__(hears_steps=every is not None, takes_tensors=every is not None)
        self._strategy = strategy
        self._directory = directory
        self._steps = steps_per_epoch
        self._every = every
        self._kept = kept or CheckpointSettings(keep=1)
        self._writes = writes
        self._notes: dict[str, Any] = {}
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
        self._checkpoints = Checkpoints(self._directory, self._writes, model, others)
        if self._is_under_way:
            self.start = Position(self._epoch + 1)
        elif self._latest is not None:
            self._checkpoints.restore(self._latest)
            logger.info("going on from %s: %s", self._latest, self.start)
        return self.start

    def _find(self) -> str | None:
        """Returns the latest checkpoint that this training can go on from; None if it begins
        anew.
        """
        latest = tf.train.latest_checkpoint(self._directory)
        if not agree(self._strategy, _number(latest)):
            logger.warning("The workers have not got the same backup: training begins anew.")
            return None
        if latest is None:
            return None
        notes = read_notes(latest)
        if not self._fits(latest, notes):
            agree(self._strategy, 0)  # When all have come here, nobody reads it any more.
            if self._writes:
                clear(self._directory)
            return None
        self._notes = notes
        self.start = Position(notes["epoch"], notes["step"], notes["ended"])
        self.history = notes["history"]
        return str(latest)

    def _fits(self, latest: str, notes: Mapping[str, Any]) -> bool:
        """Returns whether the epochs of a checkpoint had as many steps as those of this training.

        They depend on the number of replicas, which another machine may have more or fewer of.
        Checkpoints are found by their steps: the best epoch's would not be.
        """
        # The number alone says nothing in the first epoch.
        steps = notes.get("steps")
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
        """Returns the epoch and step that Keras's `fit` begins with, which asks through
        `begin_fit_at`.
        """
        del steps_per_epoch, initial_epoch, mode
        return self.start.epoch, self.start.step

    def on_train_begin(self, logs: Logs = None) -> None:
        """The callbacks before this one have reset themselves; they get their state back."""
        begin_fit_at(self.model, self)
        saved = {
            _shortened(name): state for name, state in self._notes.get("callbacks", {}).items()
        }
        # Patience may come or go where a training goes on that was done.
        for name in saved.keys() & self._stateful.keys():
            self._stateful[name].set_state(saved[name])

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """In mid-epoch the metrics go on from the values that they had."""
        self._epoch, self._is_under_way = epoch, True
        if epoch == self.start.epoch and self.start.step:
            saved = self._notes["metrics"]
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
            number = self._best.epoch * self._steps
            path = self._checkpoints.path(number)
            self._checkpoints.restore(path)
            best = self._best
            logger.info("restored epoch %d, %s %g", best.epoch, best.monitor, best.loss)
            if self._kept.weights_only:  # An earlier run that has kept no weights may have had it.
                self._checkpoints.save_weights(number, read_notes(path), self._numbers_to_keep())

    def _save(self, position: Position, metrics: dict[str, Any]) -> None:
        self._notes = {
            "epoch": position.epoch,
            "step": position.step,
            "ended": position.ended,
            "steps": self._steps,
            "history": self.history,
            "metrics": metrics,
            "callbacks": {name: callback.get_state() for name, callback in self._stateful.items()},
        }
        self._saved_at = position.epoch * self._steps + position.step
        kept = self._numbers_to_keep()
        if self._kept.weights_only:
            if not position.step:
                self._checkpoints.save_weights(self._saved_at, self._notes, kept)
            kept = {self._best.epoch * self._steps}
        self._checkpoints.save(self._saved_at, self._notes, kept)

    def _numbers_to_keep(self) -> set[int]:
        """Those of the epochs that are kept, as far as training has come."""
        ended = self._notes["epoch"]
        # Where no epoch may be the best yet, the last one would become the model.
        epochs = self._kept.epochs(ended, self._best.epoch or ended)
        return {epoch * self._steps for epoch in epochs}


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
