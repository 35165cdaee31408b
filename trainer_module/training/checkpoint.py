"""The checkpoints of training: the state from which training resumes, and the best weights."""

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
from trainer_module.strategies.coordinator import all_workers_equal

logger = logging.getLogger(__name__)

CHECKPOINTS_FOLDER = "checkpoints"
"""The folder in the model run with the checkpoints that are kept."""
STATE_FILE = "checkpoint"
"""The file that names the latest checkpoint, in the format of `tf.train.latest_checkpoint`."""
CHECKPOINT, WEIGHTS = "ckpt", "weights"
"""During training, the prefixes of the names of complete checkpoints, and of weights alone."""
NOTES_ENDING = ".json"
"""The extension of a checkpoint's JSON file, which contains the progress of training."""

_OWN_MODULES = "trainer_module."

Logs = dict[str, Any] | None


def read_notes(path: str) -> dict[str, Any]:
    """Returns the notes of a checkpoint on its training, such as `epoch`, `step` and `history`.

    Args:
      path: the path of the checkpoint, without a file extension.

    Returns:
      The notes, or an empty dictionary for a checkpoint that Scopeline did not write.
    """
    if not tf.io.gfile.exists(notes := f"{path}{NOTES_ENDING}"):
        return {}
    with tf.io.gfile.GFile(notes) as file:
        return dict(json.loads(file.read()))


def read_checkpoint(path: str, model: tf_keras.Model, **others: tf_keras.Model) -> Any:
    """Restores a model from a checkpoint, with the state of its optimizer if it is compiled.

    Args:
      path: the path of the checkpoint, without a file extension.
      model: the model whose weights are restored.
      others: additional models to restore, by name.

    Returns:
      TensorFlow's load status, whose methods check whether all values were found.
    """
    return tf.train.Checkpoint(root=model, **others).read(path)


@contextmanager
def without_optimizer(model: tf_keras.Model) -> Iterator[None]:
    """Removes a model's optimizer within a `with` block, in which only weights are saved."""
    optimizer = model.optimizer
    if optimizer is None:
        yield
        return
    # Keras continues to save the old value of an attribute unless the new value is trackable.
    model.optimizer = tf.train.Checkpoint()
    try:
        yield
    finally:
        model.optimizer = optimizer


class Checkpoints:
    """Numbered checkpoints in a folder that one process writes and several processes may read.

    The files have the format of Keras's `save_weights`, so Keras's `load_weights` reads them. Each
    checkpoint has an additional file with notes. Saving replicated variables needs all workers, so
    the processes that do not write to the folder write to a scratch folder.
    """

    def __init__(
        self,
        directory: str,
        writes: bool,
        model: tf_keras.Model,
        others: Mapping[str, tf_keras.Model],
    ) -> None:
        """Stores the objects to save, without writing or reading anything.

        Args:
          directory: the folder of the checkpoints.
          writes: whether this process writes to the folder.
          model: the model, which is saved with its optimizer.
          others: additional models to save, by name.
        """
        self._directory, self._writes = directory, writes
        self._model, self._others = model, others
        self._content = tf.train.Checkpoint(root=model, **others)
        self._scratch = None if writes else ScratchFolder()

    def save(self, number: int, notes: Mapping[str, Any], keep: Collection[int] = ()) -> None:
        """Saves a checkpoint under a number, and deletes the other checkpoints except `keep`.

        Args:
          number: the number of completed steps.
          notes: the notes of the checkpoint.
          keep: the numbers of other checkpoints to keep.
        """
        path = self._write(self._content, self.path(number), notes)
        if self._writes:
            write_state(self._directory, os.path.basename(path))
            self._delete_all_but(CHECKPOINT, {number, *keep})

    def save_weights(self, number: int, notes: Mapping[str, Any], keep: Collection[int]) -> None:
        """Saves the weights alone if `keep` contains `number`, and deletes weights not in `keep`.

        Args:
          number: the number of completed steps.
          notes: the notes of the weights.
          keep: the numbers of the weights to keep.
        """
        if number in keep:
            with without_optimizer(self._model):
                weights = tf.train.Checkpoint(root=self._model)
                self._write(weights, self.path(number, WEIGHTS), notes)
        if self._writes:
            self._delete_all_but(WEIGHTS, keep)

    def _write(self, content: tf.train.Checkpoint, path: str, notes: Mapping[str, Any]) -> str:
        """Writes the notes, then the checkpoint, so that every visible checkpoint has its notes."""
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
        """Returns the path of the checkpoint, or of the weights, with a number."""
        return os.path.join(self._directory, f"{kind}-{number}")

    def restore(self, path: str) -> None:
        """Restores the checkpoint at a path."""
        read_checkpoint(path, self._model, **self._others).expect_partial()


def clear(directory: str) -> None:
    """Deletes all checkpoints of a folder and the file that names the latest checkpoint."""
    state = os.path.join(directory, STATE_FILE)
    if tf.io.gfile.exists(state):
        tf.io.gfile.remove(state)
    for kind in (CHECKPOINT, WEIGHTS):
        for path in tf.io.gfile.glob(os.path.join(directory, f"{kind}-*.*")):
            tf.io.gfile.remove(path)


def write_state(directory: str, name: str) -> None:
    """Writes the file from which `tf.train.latest_checkpoint` reads the latest checkpoint.

    The file contains a relative path, so the folder can be moved.

    Args:
      directory: the folder of the checkpoints.
      name: the name of the latest checkpoint.
    """
    path = os.path.join(directory, STATE_FILE)
    with tf.io.gfile.GFile(f"{path}.new", "w") as file:
        file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


def find_latest(directory: str) -> str:
    """Returns the name of the latest checkpoint in a folder, or an empty string if there
    is none.
    """
    return os.path.basename(tf.train.latest_checkpoint(directory) or "")


def finish_checkpoints(directory: str, settings: CheckpointSettings, best_epoch: int) -> int:
    """Deletes the checkpoints that a finished training does not keep, and renames the kept ones.

    Args:
      directory: the folder of the checkpoints.
      settings: the epochs to keep, and the pattern of the names.
      best_epoch: the best epoch, counted from 1.

    Returns:
      The epoch of the latest checkpoint.
    """
    kind = WEIGHTS if settings.weights_only else CHECKPOINT
    found = names_by_epoch(directory, f"{kind}-")
    kept = sorted(settings.epochs(max(found), best_epoch) & {*found})
    for name in {*_names(directory)} - {found[epoch] for epoch in kept}:
        for path in _files(directory, name):
            tf.io.gfile.remove(path)
    new = ""
    for epoch in kept:  # Checkpoints of earlier epochs have been renamed already.
        default = f"{CHECKPOINT}-{found[epoch].rpartition('-')[2]}"
        new = settings.name.format(epoch=epoch) if settings.name else default
        _rename(directory, found[epoch], new)
    write_state(directory, new)
    return kept[-1]


def reopen_checkpoints(directory: str, latest: str) -> None:
    """Renames kept checkpoints to the names that training uses.

    Args:
      directory: the folder with copies of the checkpoints. It has no latest checkpoint until all
        files are renamed.
      latest: the name of the latest checkpoint.
    """
    for _, name in sorted(names_by_epoch(directory).items(), reverse=True):
        notes = read_notes(os.path.join(directory, name))
        new = f"{CHECKPOINT}-{notes['epoch'] * notes['steps']}"
        _rename(directory, name, new)
        latest = new if name == latest else latest
    write_state(directory, latest)


def names_by_epoch(directory: str, prefix: str = "") -> dict[int, str]:
    """Returns the names of the checkpoints at the ends of epochs, by the epoch, counted from 1.

    Args:
      directory: the folder of the checkpoints.
      prefix: the required prefix of a name.
    """
    found = {}
    for name in _names(directory):
        if not name.startswith(prefix):
            continue
        notes = read_notes(os.path.join(directory, name))
        if notes and not notes["step"]:
            found[notes["epoch"]] = name
    return found


def _names(directory: str) -> list[str]:
    """Returns the sorted names of all checkpoints in a folder."""
    ending = ".index"
    paths = tf.io.gfile.glob(os.path.join(directory, f"*{ending}"))
    return sorted(os.path.basename(path).removesuffix(ending) for path in paths)


def _files(directory: str, name: str) -> list[str]:
    """Returns the paths of a checkpoint's files."""
    return list(tf.io.gfile.glob(os.path.join(directory, f"{name}.*")))


def _rename(directory: str, name: str, new: str) -> None:
    """Renames the files of a checkpoint."""
    for path in _files(directory, name) if new != name else ():
        ending = os.path.basename(path).removeprefix(name)
        tf.io.gfile.rename(path, os.path.join(directory, f"{new}{ending}"), overwrite=True)


class Stateful(Protocol):
    """A callback with a state that is restored when training resumes."""

    def get_state(self) -> dict[str, Any]:
        """Returns the state of the callback as JSON."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores the state of the callback."""


@dataclass(frozen=True)
class Position:
    """A position in training."""

    epoch: int = 0
    """The number of epochs that have ended."""
    step: int = 0
    """The number of completed steps in the current epoch."""
    ended: bool = False
    """Whether a callback, such as early stopping, has ended training at this position."""


BEGINNING = Position()


class BestEpoch(tf_keras.callbacks.Callback):
    """Finds the epoch with the lowest monitored value; the weights of this epoch are kept.

    `epoch` is the best epoch, counted from 1, or 0 before the end of the first eligible epoch.
    """

    def __init__(self, monitor: str, first: int = 0, chooses_epoch: bool = True) -> None:
        """Stores the rule by which the best epoch is found.

        Args:
          monitor: the name of the value in an epoch's logs, such as `val_loss`.
          first: the first eligible epoch, counted from 0.
          chooses_epoch: whether the monitored value decides; if not, the last epoch is the best.
        """
        super().__init__()
        self.monitor = monitor
        self._first = first
        self._chooses_epoch = chooses_epoch
        self.epoch = 0
        self.loss = math.inf

    def get_state(self) -> dict[str, Any]:
        """Returns the best epoch and its loss."""
        return {"epoch": self.epoch, "loss": self.loss}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores the best epoch and its loss."""
        self.epoch, self.loss = state["epoch"], state["loss"]

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Compares the epoch with the best epoch."""
        loss = float((logs or {})[self.monitor])
        if not self._chooses_epoch or (epoch >= self._first and loss < self.loss):
            self.epoch, self.loss = epoch + 1, loss


class CheckpointCallback(StepCallback):
    """Saves the state of training after each epoch and every `every` steps, and restores the state.

    The callback also keeps the checkpoint of the best epoch and restores it at the end of training.
    It must be the last callback.

    Unlike Keras's BackupAndRestore, the callback supports every strategy, saves the state of
    callbacks and metrics, and resumes within an epoch. Step `s` has the same examples in every run.
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
        """Finds `start`, the position where training begins or resumes, and the `history` up to
        this position.

        Args:
          strategy: the strategy of the training. All workers must construct the callback.
          directory: the folder of the checkpoints, perhaps with checkpoints of an interrupted
            training.
          steps_per_epoch: the number of steps in an epoch.
          every: the number of steps between checkpoints, or None for a checkpoint per epoch.
          kept: the epochs whose checkpoints are kept, or None for the best and the last epoch.
          writes: whether this process writes; False if another process writes to the same folder.
        """
        # Without checkpoints between steps, Keras does not wait for the results of each step.
        super().__init__(needs_step_calls=every is not None, takes_tensors=every is not None)
        self._strategy = strategy
        self._directory = directory
        self._steps = steps_per_epoch
        self._every = every
        self._kept = kept or CheckpointSettings(keep=1)
        self._writes = writes
        self._notes: dict[str, Any] = {}
        self._has_begun = False
        self._epoch = 0
        self.start = BEGINNING
        """The position where training begins or resumes."""
        self.history: dict[str, list[float]] = {}
        """The values of each metric, with a value for each epoch since the first."""
        self.metrics: Callable[[], list[tf_keras.metrics.Metric]] = lambda: self.model.metrics
        """A function that returns the metrics of the current epoch."""
        self.has_next_phase = False
        """Whether another phase of training follows the current phase."""
        self._latest = self._find_resumable()
        self._saved_at = self.start.epoch * self._steps + self.start.step

    def watch(self, callbacks: Sequence[tf_keras.callbacks.Callback]) -> None:
        """Stores the other callbacks: the `BestEpoch`, and the `Stateful` callbacks to save."""
        self._best = next(c for c in callbacks if isinstance(c, BestEpoch))
        self._stateful = _by_name([c for c in callbacks if hasattr(c, "get_state")])

    def restore(self, model: tf_keras.Model, **others: tf_keras.Model) -> Position:
        """Restores the model from the latest checkpoint, if there is one.

        If this process has already run epochs, the model keeps its current state.

        Args:
          model: the model to save and restore, with the state of its optimizer if it is compiled.
          others: additional models to save, by name, such as a model that shares some of the
            weights and has its own optimizer.

        Returns:
          The position where training begins or resumes.
        """
        self._checkpoints = Checkpoints(self._directory, self._writes, model, others)
        if self._has_begun:
            self.start = Position(self._epoch + 1)
        elif self._latest is not None:
            self._checkpoints.restore(self._latest)
            logger.info("resuming from %s: %s", self._latest, self.start)
        return self.start

    def _find_resumable(self) -> str | None:
        """Returns the latest checkpoint if training can resume from it, otherwise None."""
        latest = tf.train.latest_checkpoint(self._directory)
        if not all_workers_equal(self._strategy, _number(latest)):
            logger.warning(
                "The workers found different checkpoints; training starts from the beginning."
            )
            return None
        if latest is None:
            return None
        notes = read_notes(latest)
        if not self._fits(latest, notes):
            all_workers_equal(self._strategy, 0)  # Waits until no worker reads the files.
            if self._writes:
                clear(self._directory)
            return None
        self._notes = notes
        self.start = Position(notes["epoch"], notes["step"], notes["ended"])
        self.history = notes["history"]
        return str(latest)

    def _fits(self, latest: str, notes: Mapping[str, Any]) -> bool:
        """Returns whether the steps per epoch are equal in a checkpoint and in this training.

        The steps per epoch depend on the number of replicas, which may differ between machines. A
        checkpoint's number is its number of steps, so otherwise the best epoch's checkpoint could
        not be found.
        """
        # The number of a checkpoint in the first epoch does not depend on the steps per epoch.
        steps = notes.get("steps")
        if steps == self._steps and _number(latest) == notes["epoch"] * steps + notes["step"]:
            return True
        logger.warning(
            "Training starts from the beginning: an epoch has %d steps, but the number differs in "
            "%s; the cause may be a changed number of replicas.",
            self._steps,
            latest,
        )
        return False

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: str
    ) -> tuple[int, int]:
        """Returns the epoch and the step at which `fit` starts; Keras calls the method.

        `begin_fit_at` registers this object with Keras.
        """
        del steps_per_epoch, initial_epoch, mode
        return self.start.epoch, self.start.step

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restores the state of the other callbacks, which have already reset their state."""
        begin_fit_at(self.model, self)
        saved = {
            _without_own_module(name): state
            for name, state in self._notes.get("callbacks", {}).items()
        }
        # The sets may differ: early stopping may have been added or removed since the checkpoint.
        for name in saved.keys() & self._stateful.keys():
            self._stateful[name].set_state(saved[name])

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Restores the values of the metrics if training resumes within an epoch."""
        self._epoch, self._has_begun = epoch, True
        if epoch == self.start.epoch and self.start.step:
            saved = self._notes["metrics"]
            for metric in self.metrics():
                if metric.name in saved:
                    metric.set_weights([np.array(weight) for weight in saved[metric.name]])

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves a checkpoint if `every` steps have passed, except at the end of an epoch."""
        done = self._epoch * self._steps + batch + 1
        if self._every and done - self._saved_at >= self._every and batch + 1 < self._steps:
            metrics = {m.name: [w.tolist() for w in m.get_weights()] for m in self.metrics()}
            self._save(Position(self._epoch, batch + 1), metrics)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves the checkpoint of an epoch."""
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        self._save(Position(epoch + 1, ended=bool(self.model.stop_training)), {})

    def on_train_end(self, logs: Logs = None) -> None:
        """Restores the weights of the best epoch at the end of training."""
        forget_start(self.model)
        if self._best.epoch and (self.model.stop_training or not self.has_next_phase):
            # The call waits until the checkpoint is written.
            all_workers_equal(self._strategy, self._best.epoch)
            number = self._best.epoch * self._steps
            path = self._checkpoints.path(number)
            self._checkpoints.restore(path)
            best = self._best
            logger.info("restored epoch %d, %s %g", best.epoch, best.monitor, best.loss)
            if self._kept.weights_only:  # An earlier run may have kept no weights.
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
        """Returns the numbers of the checkpoints to keep at the current position."""
        ended = self._notes["epoch"]
        # Without an eligible epoch, training would export the last epoch.
        epochs = self._kept.epochs(ended, self._best.epoch or ended)
        return {epoch * self._steps for epoch in epochs}


def _by_name(callbacks: Sequence[Stateful]) -> dict[str, Stateful]:
    """Returns the callbacks by their class; a number distinguishes callbacks of the same class."""
    named: dict[str, Stateful] = {}
    seen: Counter[str] = Counter()
    for callback in callbacks:
        kind = _without_own_module(f"{type(callback).__module__}.{type(callback).__qualname__}")
        seen[kind] += 1
        named[kind if seen[kind] == 1 else f"{kind} {seen[kind]}"] = callback
    return named


def _without_own_module(name: str) -> str:
    """Removes the module from the name of a Scopeline class, because modules may be renamed."""
    return name.rpartition(".")[2] if name.startswith(_OWN_MODULES) else name


def _number(path: str | None) -> int:
    return int(path.rpartition("-")[2]) if path else 0
