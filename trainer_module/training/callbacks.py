"""What happens around the epochs: TensorBoard, progress, the best weights, and when to stop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import StepCallback, TensorBoard, learning_rate_of
from trainer_module.errors import TrainingError
from trainer_module.runtime import EPOCH, report_progress
from trainer_module.sections import count_needed, load_own
from trainer_module.settings import TrainerSettings
from trainer_module.settings.train import choose_stopping
from trainer_module.strategies import hooks_of
from trainer_module.strategies.coordinator import CopyOnCoordinator
from trainer_module.training.checkpoint import BestEpoch, CheckpointCallback
from trainer_module.training.plan import RunInputs, TrainingPlan

logger = logging.getLogger(__name__)

LearningRateSchedule = tf_keras.optimizers.schedules.LearningRateSchedule

LEARNING_RATE = "learning_rate"
"""Its name in the logs of an epoch."""

Logs = dict[str, Any] | None


class LearningRate(tf_keras.callbacks.Callback):
    """Puts the learning rate of the epoch's last step into the logs, as `learning_rate`."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Must come before the callbacks that write the logs."""
        rate, iterations = learning_rate_of(self.model)
        if isinstance(rate, LearningRateSchedule):
            rate = rate(iterations - 1)
        if logs is not None:
            logs[LEARNING_RATE] = float(tf_keras.backend.get_value(rate))


class StopOnNaN(StepCallback):
    """Raises TrainingError when a loss is not a finite number, and says at which step.

    A step's loss is looked at when the next one is done: to wait for it would stop a GPU's queue;
    or before a checkpoint is saved, from which training would go on with what is lost.
    """

    def __init__(
        self, steps_per_epoch: int, losses: Sequence[str], monitor: str, is_synchronous: bool
    ) -> None:
        # The steps of parameter servers have no order to tell of.
        super().__init__(hears_steps=is_synchronous, takes_tensors=is_synchronous)
        self._steps = steps_per_epoch
        self._losses, self._monitor = losses, monitor
        self._waiting: tuple[int, int, dict[str, Any]] | None = None
        self._epoch = 0
        self._next = 0

    def get_state(self) -> dict[str, Any]:
        """Looks at the last step, before its state is saved; remembers nothing."""
        self._look()
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes nothing back."""

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Counts steps from the beginning of training."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """The first step of an execution."""
        self._next = self._epoch * self._steps + batch + 1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """The last step of an execution, and the mean loss of the epoch up to it."""
        self._look()
        losses = {name: (logs or {}).get(name, 0.0) for name in self._losses}
        self._waiting = (self._next, self._epoch * self._steps + batch + 1, losses)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Looks at the last step, and at the losses of the whole epoch."""
        self._look()
        for name in (*self._losses, self._monitor):
            self._check(name, float((logs or {}).get(name, 0.0)), f"in epoch {epoch + 1}")

    def _look(self) -> None:
        if self._waiting is not None:
            first, last, losses = self._waiting
            self._waiting = None
            where = f"at step {last}" if first == last else f"between steps {first} and {last}"
            for name, loss in losses.items():
                self._check(name, float(loss), f"{where}, in epoch {self._epoch + 1}")

    def _check(self, name: str, value: float, where: str) -> None:
        if not math.isfinite(value):
            raise TrainingError(
                f"training diverged: {name} is {value} {where}; lower train.learning_rate, or look "
                "for extreme values in the data."
            )


class EarlyStopping(tf_keras.callbacks.EarlyStopping):
    """Keras's, with a memory that survives an interruption."""

    def get_state(self) -> dict[str, Any]:
        """Returns how long it has waited, and for what to be surpassed."""
        return {"wait": self.wait, "best": float(self.best)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what it knew."""
        self.wait, self.best = state["wait"], state["best"]


class Progress(tf_keras.callbacks.Callback):
    """Reports each epoch to whoever listens."""

    def __init__(self, unit: str = EPOCH) -> None:
        super().__init__()
        self._unit = unit

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Logs the losses and metrics, and the learning rate that the epoch ended with."""
        detail = describe_epoch(logs or {})
        report_progress(epoch + 1, self.params["epochs"], self._unit, detail)
        logger.info("epoch %d: %s", epoch + 1, detail)


def describe_epoch(logs: Mapping[str, Any]) -> str:
    """Returns the logs of an epoch in a line: what is held out beside what is learnt from.

    Args:
      logs: values by name; those of what is held out begin with `val_`.

    Returns:
      Such as `loss 0.5, val_loss 0.6, accuracy 0.8, val_accuracy 0.7, learning_rate 0.001`.
    """
    measured = [name for name in logs if name != LEARNING_RATE]
    learnt = [name for name in measured if not name.startswith("val_")]
    pairs = [each for name in learnt for each in (name, f"val_{name}")]
    # Under parameter servers, some metrics are of what is held out alone.
    ordered = dict.fromkeys([*pairs, *measured, LEARNING_RATE])
    return ", ".join(f"{name} {logs[name]:.4g}" for name in ordered if name in logs)


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


def open_checkpoint(inputs: RunInputs, plan: TrainingPlan) -> CheckpointCallback:
    """Returns the callback that saves a training, with where that begins or goes on.

    Args:
      inputs: of the training, all of whose workers do this together.
      plan: its epochs and steps.
    """
    return CheckpointCallback(
        inputs.strategy,
        inputs.backup_directory,
        plan.steps,
        inputs.runtime.backup_steps,
        inputs.settings.train.checkpoints,
        writes=inputs.runtime.writes_backup,
    )


def open_board(inputs: RunInputs) -> TensorBoard:
    """Returns the callback that writes for TensorBoard what `train.tensorboard` asks for."""
    board = inputs.settings.train.tensorboard
    return TensorBoard(
        inputs.model_run_dir,
        writes_graph=board.graph,
        writes_steps=board.every == "batch",
        profiled=board.profile,
    )


def make_callbacks(
    inputs: RunInputs,
    plan: TrainingPlan,
    checkpoint: CheckpointCallback,
    evaluator: CopyOnCoordinator | None = None,
    patient_from: int = 0,
    losses: Sequence[str] = ("loss",),
) -> list[tf_keras.callbacks.Callback]:
    """Returns the callbacks of a training, in working order; the last one is the checkpoint's.

    Args:
      inputs: of the training.
      plan: its epochs and steps.
      checkpoint: saves what the others know.
      evaluator: what evaluates each epoch, where Keras does not.
      patient_from: the epoch, counted from 0, from which on early stopping looks.
      losses: what is learnt by, as the logs of a step have it.
    """
    tf.io.gfile.makedirs(inputs.model_run_dir)
    settings, monitor = inputs.settings, inputs.settings.target.monitor
    callbacks = [
        EpochTimes(),
        # Before all that reads what it finds.
        *([evaluator] if evaluator else []),
        LearningRate(),
        StopOnNaN(plan.steps, losses, monitor, hooks_of(inputs.strategy).has_step_hooks),
        Progress(f"{inputs.prefix}{EPOCH}"),
        open_board(inputs),
        BestEpoch(monitor, plan.whole_from, plan.chooses),
    ]
    if plan.chooses and (stopping := choose_stopping(settings.train, plan.steps)):
        callbacks.append(
            EarlyStopping(
                monitor,
                min_delta=stopping.min_delta,
                patience=stopping.patience,
                mode="min",
                start_from_epoch=max(patient_from, plan.whole_from),
            )
        )
    callbacks += [*make_own_callbacks(settings), *inputs.watchers]
    checkpoint.watch(callbacks)
    return [*callbacks, checkpoint]


def make_own_callbacks(settings: TrainerSettings) -> list[tf_keras.callbacks.Callback]:
    """New callbacks, in the order of `train.callbacks`.

    Args:
      settings: what a class or function of the user's is called with, unless it needs nothing.

    Raises:
      TrainingError: if a path leads nowhere, or what it gives is no callback of tf_keras.
    """
    return [_make(path, settings) for path in settings.train.callbacks]


def _make(path: str, settings: TrainerSettings) -> tf_keras.callbacks.Callback:
    make = load_own("train.callbacks", path)
    made = make(settings) if count_needed(make) else make()
    if not isinstance(made, tf_keras.callbacks.Callback):
        raise TrainingError(
            f"train.callbacks {path!r} gives a {type(made).__module__}.{type(made).__qualname__}; "
            "right is a class or function that gives a tf_keras.callbacks.Callback."
        )
    return made
