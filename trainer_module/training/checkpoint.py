"""The checkpoints of a training: the state to resume from, and the best weights."""

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
"""The prefixes of the names of whole checkpoints, and of weights alone, during training."""
NOTES_ENDING = ".json"
"""The ending of the JSON file beside a checkpoint with the training's progress."""

_OWN_MODULES = "trainer_module."

Logs = dict[str, Any] | None


def read_notes(path: str) -> dict[str, Any]:
    """Returns the notes of a checkpoint on its training: `epoch`, `step`, `history` and more.

    Args:
      path: the path of the checkpoint, without the ending of a file.

    Returns:
      The notes; empty for a checkpoint that Scopeline did not write.
    """
    if not tf.io.gfile.exists(notes := f"{path}{NOTES_ENDING}"):
        return {}
    with tf.io.gfile.GFile(notes) as file:
        return dict(json.loads(file.read()))


def read_checkpoint(path: str, model: tf_keras.Model, **others: tf_keras.Model) -> Any:
    """Restores a model from a checkpoint, with the state of its optimizer if it is compiled.

    Args:
      path: the path of the checkpoint, without the ending of a file.
      model: the model whose weights are restored.
      others: further models to restore, by name.

    Returns:
      TensorFlow's load status, whose methods check whether all values were found.
    """
    return tf.train.Checkpoint(root=model, **others).read(path)


@contextmanager
def without_optimizer(model: tf_keras.Model) -> Iterator[None]:
    """Removes a model's optimizer for the duration of a context, so that only weights are saved."""
    optimizer = model.optimizer
    if optimizer is None:
        yield
        return
    # Keras still saves the former value of an attribute unless the new value is trackable.
    model.optimizer = tf.train.Checkpoint()
    try:
        yield
    finally:
        model.optimizer = optimizer


class Checkpoints:
    """Numbered checkpoints in a folder that several processes may read and one process writes.

    The files have the format of Keras's `save_weights`, so Keras's `load_weights` reads them; a
    file with notes lies beside each. All workers have to take part in saving replicated variables,
    so the other processes write to a scratch folder.
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
          writes: whether this process writes there.
          model: the model, which is saved with its optimizer.
          others: further models to save, by name.
        """
        self._directory, self._writes = directory, writes
        self._model, self._others = model, others
        self._content = tf.train.Checkpoint(root=model, **others)
        self._scratch = None if writes else ScratchFolder()

    def save(self, number: int, notes: Mapping[str, Any], keep: Collection[int] = ()) -> None:
        """Saves a checkpoint under a number, and deletes all others except those to keep.

        Args:
          number: the number of steps done.
          notes: the notes beside the checkpoint.
          keep: the numbers of other checkpoints to keep.
        """
        path = self._write(self._content, self.path(number), notes)
        if self._writes:
            write_state(self._directory, os.path.basename(path))
            self._delete_all_but(CHECKPOINT, {number, *keep})

    def save_weights(self, number: int, notes: Mapping[str, Any], keep: Collection[int]) -> None:
        """Saves the weights alone if `keep` contains their number, and deletes all others.

        Args:
          number: the number of steps done.
          notes: the notes beside the weights.
          keep: the numbers of the weights to keep.
        """
        if number in keep:
            with without_optimizer(self._model):
                weights = tf.train.Checkpoint(root=self._model)
                self._write(weights, self.path(number, WEIGHTS), notes)
        if self._writes:
            self._delete_all_but(WEIGHTS, keep)

    def _write(self, content: tf.train.Checkpoint, path: str, notes: Mapping[str, Any]) -> str:
        """Writes a checkpoint after its notes, so that a visible checkpoint is complete."""
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
        """Returns the path of the checkpoint, or of the weights, of a number."""
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
    """Writes the file from which `tf.train.latest_checkpoint` finds a checkpoint, even in a moved
    folder.

    Args:
      directory: the folder of the checkpoints.
      name: the name of the latest checkpoint.
    """
    path = os.path.join(directory, STATE_FILE)
    with tf.io.gfile.GFile(f"{path}.new", "w") as file:
        file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


def find_latest(directory: str) -> str:
    """Returns the name of the latest checkpoint in a folder; empty if there is none."""
    return os.path.basename(tf.train.latest_checkpoint(directory) or "")


def finish_checkpoints(directory: str, settings: CheckpointSettings, best_epoch: int) -> int:
    """Deletes the checkpoints of a finished training that are not kept, and renames the others.

    Args:
      directory: the folder of the training's checkpoints.
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
    for epoch in kept:  # Smaller numbers are already renamed.
        default = f"{CHECKPOINT}-{found[epoch].rpartition('-')[2]}"
        new = settings.name.format(epoch=epoch) if settings.name else default
        _rename(directory, found[epoch], new)
    write_state(directory, new)
    return kept[-1]


def reopen_checkpoints(directory: str, latest: str) -> None:
    """Renames kept checkpoints to the names by which a training finds them.

    Args:
      directory: the folder with copies of the checkpoints. If the process is killed, the folder has
        no latest checkpoint.
      latest: the name of the latest checkpoint.
    """
    for _, name in sorted(names_by_epoch(directory).items(), reverse=True):
        notes = read_notes(os.path.join(directory, name))
        new = f"{CHECKPOINT}-{notes['epoch'] * notes['steps']}"
        _rename(directory, name, new)
        latest = new if name == latest else latest
    write_state(directory, latest)


def names_by_epoch(directory: str, prefix: str = "") -> dict[int, str]:
    """Returns the names of the checkpoints at the end of an epoch, by the epoch, counted from 1.

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
    """A callback whose state has to be restored when training resumes."""

    def get_state(self) -> dict[str, Any]:
        """Returns the state of the callback as JSON."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores the state of the callback."""


@dataclass(frozen=True)
class Position:
    """A position within a training."""

    epoch: int = 0
    """The number of epochs that have ended."""
    step: int = 0
    """The number of steps done in the current epoch."""
    ended: bool = False
    """Whether a callback, such as early stopping, has ended training at this position."""


BEGINNING = Position()


class BestEpoch(tf_keras.callbacks.Callback):
    """Finds the epoch with the lowest monitored value, whose weights are kept.

    `epoch` counts from 1; it is 0 until the first eligible epoch has ended.
    """

    def __init__(self, monitor: str, first: int = 0, chooses_epoch: bool = True) -> None:
        """Stores the rule by which the best epoch is found.

        Args:
          monitor: the name of the value in an epoch's logs, such as `val_loss`.
          first: the first eligible epoch, counted from 0.
          chooses_epoch: whether the value decides; otherwise the last epoch is the best.
        """
        super().__init__()
        self.monitor = monitor
        self._first = first
        self._chooses = chooses_epoch
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
        if not self._chooses or (epoch >= self._first and loss < self.loss):
            self.epoch, self.loss = epoch + 1, loss


class CheckpointCallback(StepCallback):
    """Saves the state of training each epoch or every `every` steps, and resumes from it.

    The callback also keeps the checkpoint of the best epoch and restores it at the end of training.

    Unlike Keras's BackupAndRestore, it supports every strategy, saves the state of callbacks and
    metrics, and resumes in mid-epoch, as step `s` has the same examples in every run. It has to be
    the last callback.
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
        """Finds the position where training begins or resumes, `start`, and the `history` until
        then.

        Args:
          strategy: the strategy of the training; all workers construct the callback together.
          directory: the folder of the checkpoints, which may hold those of an interrupted training.
          steps_per_epoch: the steps of an epoch.
          every: the steps between checkpoints; None for one at the end of each epoch.
          kept: the epochs whose checkpoints are kept; None for the best and the last epoch.
          writes: whether this process writes; False if another process writes to the same folder.
        """
        # Without step checkpoints, Keras need not wait for the results of each step.
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
        """A value per epoch for each metric, from the first epoch on."""
        self.metrics: Callable[[], list[tf_keras.metrics.Metric]] = lambda: self.model.metrics
        """A function that returns the metrics of the current epoch."""
        self.has_next_phase = False
        """Whether another training phase resumes from the final state of this training."""
        self._latest = self._find_resumable()
        self._saved_at = self.start.epoch * self._steps + self.start.step

    def watch(self, callbacks: Sequence[tf_keras.callbacks.Callback]) -> None:
        """Stores the callbacks before this one: a `BestEpoch`, and the `Stateful` ones, whose state
        is saved.
        """
        self._best = next(c for c in callbacks if isinstance(c, BestEpoch))
        self._stateful = _by_name([c for c in callbacks if hasattr(c, "get_state")])

    def restore(self, model: tf_keras.Model, **others: tf_keras.Model) -> Position:
        """Restores the model, if a checkpoint exists, and returns the position where training
        begins.

        Args:
          model: the model that is saved, with the state of its optimizer if it is compiled. After
            epochs of this process, training continues in the model's current state; its optimizer
            may be new.
          others: further models to save, by name, such as a model that shares some of the weights
            and has its own optimizer.
        """
        self._checkpoints = Checkpoints(self._directory, self._writes, model, others)
        if self._has_begun:
            self.start = Position(self._epoch + 1)
        elif self._latest is not None:
            self._checkpoints.restore(self._latest)
            logger.info("resuming from %s: %s", self._latest, self.start)
        return self.start

    def _find_resumable(self) -> str | None:
        """Returns the latest checkpoint that fits this training, or None to begin anew."""
        latest = tf.train.latest_checkpoint(self._directory)
        if not all_workers_equal(self._strategy, _number(latest)):
            logger.warning(
                "The workers have different backups; training starts from the beginning."
            )
            return None
        if latest is None:
            return None
        notes = read_notes(latest)
        if not self._fits(latest, notes):
            all_workers_equal(self._strategy, 0)  # Waits until no worker reads the files any more.
            if self._writes:
                clear(self._directory)
            return None
        self._notes = notes
        self.start = Position(notes["epoch"], notes["step"], notes["ended"])
        self.history = notes["history"]
        return str(latest)

    def _fits(self, latest: str, notes: Mapping[str, Any]) -> bool:
        """Returns whether the epochs of a checkpoint have as many steps as the epochs of this
        training.

        The steps depend on the number of replicas, which may differ between machines. The number of
        steps identifies a checkpoint, so the checkpoint of the best epoch would not be found.
        """
        # In the first epoch the checkpoint's number alone does not reveal the steps per epoch.
        steps = notes.get("steps")
        if steps == self._steps and _number(latest) == notes["epoch"] * steps + notes["step"]:
            return True
        logger.warning(
            "Training starts from the beginning: an epoch now has %d steps, but another number in "
            "%s; the cause may be a changed number of replicas.",
            self._steps,
            latest,
        )
        return False

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: str
    ) -> tuple[int, int]:
        """Returns the initial epoch and step of Keras's `fit`, which calls this through
        `begin_fit_at`.
        """
        del steps_per_epoch, initial_epoch, mode
        return self.start.epoch, self.start.step

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restores the state of the callbacks before this one, which have just reset themselves."""
        begin_fit_at(self.model, self)
        saved = {
            _shortened(name): state for name, state in self._notes.get("callbacks", {}).items()
        }
        # A continued training may have early stopping where the earlier one had none, or the
        # reverse.
        for name in saved.keys() & self._stateful.keys():
            self._stateful[name].set_state(saved[name])

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Restores the values of the metrics when training resumes in mid-epoch."""
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
        """Restores the best epoch at the end of training."""
        forget_start(self.model)
        if self._best.epoch and (self.model.stop_training or not self.has_next_phase):
            all_workers_equal(
                self._strategy, self._best.epoch
            )  # Waits until the checkpoint is written.
            number = self._best.epoch * self._steps
            path = self._checkpoints.path(number)
            self._checkpoints.restore(path)
            best = self._best
            logger.info("restored epoch %d, %s %g", best.epoch, best.monitor, best.loss)
            if self._kept.weights_only:  # An earlier run may have saved no weights.
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
        # While no epoch is eligible, the last epoch would become the model.
        epochs = self._kept.epochs(ended, self._best.epoch or ended)
        return {epoch * self._steps for epoch in epochs}


def _by_name(callbacks: Sequence[Stateful]) -> dict[str, Stateful]:
    """Returns the callbacks by class; further callbacks of a class have a number as well."""
    named: dict[str, Stateful] = {}
    seen: Counter[str] = Counter()
    for callback in callbacks:
        kind = _shortened(f"{type(callback).__module__}.{type(callback).__qualname__}")
        seen[kind] += 1
        named[kind if seen[kind] == 1 else f"{kind} {seen[kind]}"] = callback
    return named


def _shortened(name: str) -> str:
    """Returns a class name without its module if the module belongs to Scopeline and may move."""
    return name.rpartition(".")[2] if name.startswith(_OWN_MODULES) else name


def _number(path: str | None) -> int:
    return int(path.rpartition("-")[2]) if path else 0
