"""What happens around the epochs: TensorBoard, progress, the best weights, and when to stop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.progress import report_progress
from trainer_module.settings import TrainSettings
from trainer_module.settings.length import choose_stopping
from trainer_module.training.backup import MONITOR, Backup, BestEpoch

logger = logging.getLogger(__name__)

LearningRateSchedule = tf_keras.optimizers.schedules.LearningRateSchedule

LEARNING_RATE = "learning_rate"
"""Its name in the logs of an epoch."""

Logs = dict[str, Any] | None


class LearningRate(tf_keras.callbacks.Callback):
    """Puts the learning rate of the epoch's last step into the logs, as `learning_rate`."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Must come before the callbacks that write the logs."""
        rate, iterations = _learning_rate(self.model)
        if isinstance(rate, LearningRateSchedule):
            rate = rate(iterations - 1)
        if logs is not None:
            logs[LEARNING_RATE] = float(tf_keras.backend.get_value(rate))


def _learning_rate(model: tf_keras.Model) -> tuple[Any, tf.Variable]:
    """A model's learning rate, or the schedule of it, and the steps that are done."""
    # Loss scaling wraps the optimizer, and does not hand on all that it has.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    # The public property of Keras's present optimizers has evaluated a schedule, a step late.
    return getattr(optimizer, "_learning_rate", optimizer.learning_rate), optimizer.iterations


class CopyOnCoordinator(tf_keras.callbacks.Callback):
    """Keeps a copy of the model in this process, for parameter servers, and evaluates with it.

    The servers' workers would draw from the eval split at random; here every example comes up
    once. And a model whose variables are split among servers loses them when it is saved.
    """

    def __init__(self, copy: tf_keras.Model, evaluation: Split) -> None:
        """Takes a compiled model like the one that is trained, built outside of its scope."""
        super().__init__()
        self.copy = copy
        self._evaluation = evaluation
        # `fit` calls in the scope of the servers' strategy; a thread of its own is outside of it.
        self._thread = ThreadPoolExecutor(max_workers=1)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Adds what it finds to the logs; must come before the callbacks that read them."""
        found = self._thread.submit(self._evaluate).result()
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in found.items()})

    def fetch(self) -> tf_keras.Model:
        """The copy, with the weights that the servers have now."""
        parts = iter(self.model.weights)
        for weight in self.copy.weights:
            weight.assign(_joined(parts, weight.shape))
        return self.copy

    def _evaluate(self) -> dict[str, float]:
        batches = self._evaluation.batches(tf.distribute.InputContext())
        return self.fetch().evaluate(batches, verbose=0, return_dict=True)


def _joined(parts: Iterator[tf.Variable], shape: tf.TensorShape) -> tf.Tensor:
    """The next weight, of which several servers may hold a part of the rows each."""
    found = [tf.identity(next(parts))]
    while sum(len(part) for part in found if shape.rank) < (shape[0] if shape.rank else 0):
        found.append(tf.identity(next(parts)))
    return tf.concat(found, 0) if len(found) > 1 else found[0]


class TensorBoard(tf_keras.callbacks.TensorBoard):
    """Keras's, but all workers keep their logs, not the chief alone."""

    def _get_log_write_dir(self) -> str:
        return self.log_dir

    def _collect_learning_rate(self, logs: dict[str, Any]) -> dict[str, Any]:
        """The logs have it already; Keras would take that of the next step."""
        return logs


class StopOnNaN(tf_keras.callbacks.Callback):
    """Raises TrainingError when the loss is not a finite number, and says at which step.

    A step's loss is looked at when the next one is done: to wait for it would stop a GPU's queue.
    """

    def __init__(self, steps_per_epoch: int, is_synchronous: bool = True) -> None:
        super().__init__()
        # Otherwise Keras would wait for every step's loss, to turn it into a number.
        self._supports_tf_logs = is_synchronous
        self._is_synchronous = is_synchronous
        self._steps = steps_per_epoch
        self._waiting: tuple[int, int, Any] | None = None
        self._epoch = 0
        self._next = 0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Counts steps from the beginning of training."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """The first step of an execution."""
        self._next = self._epoch * self._steps + batch + 1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """The last step of an execution, and the mean loss of the epoch up to it."""
        self._look()
        loss = (logs or {}).get("loss", 0.0)
        self._waiting = (self._next, self._epoch * self._steps + batch + 1, loss)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Looks at the last step, and at the losses of the whole epoch."""
        self._look()
        for name in ("loss", MONITOR):
            self._check(name, float((logs or {}).get(name, 0.0)), f"in epoch {epoch + 1}")

    def _implements_train_batch_hooks(self) -> bool:
        """The steps of parameter servers have no order to tell of."""
        return self._is_synchronous

    def _look(self) -> None:
        if self._waiting is not None:
            first, last, loss = self._waiting
            self._waiting = None
            where = f"at step {last}" if first == last else f"between steps {first} and {last}"
            self._check("loss", float(loss), f"{where}, in epoch {self._epoch + 1}")

    def _check(self, name: str, value: float, where: str) -> None:
        if not math.isfinite(value):
            raise TrainingError(
                f"training diverged: {name} is {value} {where}; lower train.learning_rate, or look "
                "for extreme values in the data."
            )


class EarlyStopping(tf_keras.callbacks.EarlyStopping):
    """Keras's, with a memory that survives an interruption."""

    def get_state(self) -> dict[str, Any]:
        """How long it has waited, and for what to be surpassed."""
        return {"wait": self.wait, "best": float(self.best)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what it knew."""
        self.wait, self.best = state["wait"], state["best"]


class Progress(tf_keras.callbacks.Callback):
    """Reports each epoch to whoever listens."""

    def __init__(self, unit: str = "epoch") -> None:
        super().__init__()
        self._unit = unit

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Logs the loss, the evaluation metrics, and a learning rate that changes."""
        names = {"loss"}
        if isinstance(_learning_rate(self.model)[0], LearningRateSchedule):
            names.add(LEARNING_RATE)
        shown = {k: v for k, v in (logs or {}).items() if k in names or k.startswith("val_")}
        detail = ", ".join(f"{name} {value:.4g}" for name, value in shown.items())
        report_progress(epoch + 1, self.params["epochs"], self._unit, detail)
        logger.info("epoch %d: %s", epoch + 1, detail)


class EpochTimes(tf_keras.callbacks.Callback):
    """Seconds that the steps of each epoch took, without its evaluation and backup."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        """Of the epochs since the last interruption."""
        self._begun: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Where the steps begin."""
        self._begun = time.monotonic()

    def on_test_begin(self, logs: Logs = None) -> None:
        """Where evaluation follows them."""
        self._end_steps()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Where nothing did; must come before callbacks that take their time."""
        self._end_steps()

    def _end_steps(self) -> None:
        if self._begun is not None:
            self.seconds.append(time.monotonic() - self._begun)
            self._begun = None


def build_callbacks(
    train: TrainSettings,
    strategy: tf.distribute.Strategy,
    steps_per_epoch: int,
    log_directory: str,
    backup_directory: str,
    backup_steps: int | None = None,
    writes_backup: bool = True,
    unit: str = "epoch",
    own: Sequence[tf_keras.callbacks.Callback] = (),
    patient_from: int = 0,
    best_from: int = 0,
    chooses: bool = True,
) -> list[tf_keras.callbacks.Callback]:
    """The callbacks of a training run, in working order; the last one is the `Backup`.

    Args:
      train: the settings.
      strategy: that the model is trained under.
      steps_per_epoch: of the training.
      log_directory: for TensorBoard.
      backup_directory: for checkpoints.
      backup_steps: steps between backups; None is one at the end of each epoch.
      writes_backup: whether no other process does so for this one, in the same directory.
      unit: what an epoch is called where its progress is shown.
      own: callbacks of the user's.
      patient_from: the epoch, counted from 0, from which on early stopping looks.
      best_from: likewise, the first one that may be the best.
      chooses: whether an epoch is chosen, and training ended, by what is held out.
    """
    tf.io.gfile.makedirs(log_directory)
    callbacks = [
        EpochTimes(),
        LearningRate(),
        StopOnNaN(steps_per_epoch, not isinstance(strategy, tf.distribute.ParameterServerStrategy)),
        Progress(unit),
        TensorBoard(log_directory, write_graph=False),
        BestEpoch(best_from, chooses),
    ]
    if chooses and (stopping := choose_stopping(train, steps_per_epoch)):
        callbacks.append(
            EarlyStopping(
                MONITOR,
                min_delta=stopping.min_delta,
                patience=stopping.patience,
                mode="min",
                start_from_epoch=patient_from,
            )
        )
    callbacks += own
    backup = Backup(
        strategy,
        backup_directory,
        steps_per_epoch,
        backup_steps,
        train.checkpoints.keep if train.checkpoints else 1,
        writes=writes_backup,
        callbacks=callbacks,
    )
    return [*callbacks, backup]
