"""The callbacks of training: TensorBoard, progress, the best epoch and early stopping."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import StepCallback, TensorBoard, learning_rate_of
from trainer_module.errors import DivergedError, TrainingError
from trainer_module.runtime import ABOUT, AT_MOST, EPOCH, report_progress, report_step
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
"""The name of the learning rate in the logs of an epoch."""

Logs = dict[str, Any] | None


class LearningRate(tf_keras.callbacks.Callback):
    """Adds the learning rate of the epoch's last step to the logs as `learning_rate`."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Adds the learning rate; the callback must precede the callbacks that write the logs."""
        rate, iterations = learning_rate_of(self.model)
        if isinstance(rate, LearningRateSchedule):
            rate = rate(iterations - 1)
        if logs is not None:
            logs[LEARNING_RATE] = float(tf_keras.backend.get_value(rate))


class StopOnNaN(StepCallback):
    """Raises TrainingError when a loss is not a finite number; the message names the step.

    The callback reads the loss of a step after the next step, because waiting for the result would
    leave the GPU idle.
    """

    def __init__(
        self, steps_per_epoch: int, losses: Sequence[str], monitor: str, is_synchronous: bool
    ) -> None:
        # Under parameter servers, steps run asynchronously and have no order.
        super().__init__(needs_step_calls=is_synchronous, takes_tensors=is_synchronous)
        self._steps = steps_per_epoch
        self._losses, self._monitor = losses, monitor
        self._pending: tuple[int, int, dict[str, Any]] | None = None
        self._epoch = 0
        self._next = 0

    def get_state(self) -> dict[str, Any]:
        """Checks the last step before a checkpoint is saved; returns an empty state."""
        self._check_pending()
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Does nothing, because the state is empty."""

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Stores the epoch, because messages count steps from the beginning of training."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Stores the number of the first step of an execution."""
        self._next = self._epoch * self._steps + batch + 1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stores the last step of an execution, and the mean losses of the epoch up to this
        step.
        """
        self._check_pending()
        losses = {name: (logs or {}).get(name, 0.0) for name in self._losses}
        self._pending = (self._next, self._epoch * self._steps + batch + 1, losses)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Checks the loss of the last step and the losses of the whole epoch."""
        self._check_pending()
        for name in (*self._losses, self._monitor):
            self._check(name, float((logs or {}).get(name, 0.0)), f"in epoch {epoch + 1}")

    def _check_pending(self) -> None:
        if self._pending is not None:
            first, last, losses = self._pending
            self._pending = None
            where = f"at step {last}" if first == last else f"between steps {first} and {last}"
            for name, loss in losses.items():
                self._check(name, float(loss), f"{where}, in epoch {self._epoch + 1}")

    def _check(self, name: str, value: float, where: str) -> None:
        if not math.isfinite(value):
            raise DivergedError(
                f"training diverged: {name} is {value} {where}; lower train.learning_rate, or look "
                "for extreme values in the data."
            )


class EarlyStopping(tf_keras.callbacks.EarlyStopping):
    """Keras's early stopping with a state that survives an interruption."""

    def get_state(self) -> dict[str, Any]:
        """Returns the epochs without improvement and the best value."""
        return {"wait": self.wait, "best": float(self.best)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores the epochs without improvement and the best value."""
        self.wait, self.best = state["wait"], state["best"]


_REPORT_SECONDS = 1.0
"""The minimum time between two reports about the steps of an epoch."""


class Progress(StepCallback):
    """Reports each epoch, and the steps of long epochs, through the progress logger."""

    def __init__(self, unit: str, steps: int, may_stop: bool, is_synchronous: bool) -> None:
        """Sets the words of the reports.

        Args:
          unit: the word for an epoch.
          steps: the number of steps of an epoch.
          may_stop: whether training may end before the last epoch.
          is_synchronous: whether steps have an order; if not, only epochs are reported.
        """
        super().__init__(needs_step_calls=is_synchronous, takes_tensors=is_synchronous)
        self._unit, self._steps, self._left = unit, steps, AT_MOST if may_stop else ABOUT
        self._epoch, self._detail, self._next = 0, "", 0.0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Stores the epoch; logs that TensorFlow traces a graph if it is the first one."""
        if not self._next:
            total = self.params["epochs"]
            report_step(f"{self._unit} {epoch + 1} of {total}, traces the graph", epoch, total)
        self._epoch, self._next = epoch, time.monotonic() + _REPORT_SECONDS

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Logs the steps of the epoch so far, with the losses of the last epoch."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _REPORT_SECONDS
        done, total, step = self._epoch + 1, self.params["epochs"], batch + 1
        text = f"{self._unit} {done} of {total}, step {step} of {self._steps}"
        finished = self._epoch + min(step / self._steps, 1)
        report_step(text, finished, total, self._detail, self._left, is_logged=False)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Logs the losses, the metrics and the last learning rate of an epoch."""
        self._detail = describe_epoch(logs or {})
        report_progress(epoch + 1, self.params["epochs"], self._unit, self._detail, self._left)
        logger.info("epoch %d: %s", epoch + 1, self._detail)


def describe_epoch(logs: Mapping[str, Any]) -> str:
    """Returns the logs of an epoch in a line; each training value precedes its evaluation value.

    Args:
      logs: the values by name; the names of evaluation values begin with `val_`.

    Returns:
      The line, for example `loss 0.5, val_loss 0.6, accuracy 0.8, learning_rate 0.001`.
    """
    measured = [name for name in logs if name != LEARNING_RATE]
    train_names = [name for name in measured if not name.startswith("val_")]
    pairs = [key for name in train_names for key in (name, f"val_{name}")]
    # Under parameter servers, some metrics exist only for the evaluation examples.
    ordered = dict.fromkeys([*pairs, *measured, LEARNING_RATE])
    return ", ".join(f"{name} {logs[name]:.4g}" for name in ordered if name in logs)


class EpochTimes(tf_keras.callbacks.Callback):
    """Measures the duration of the steps of each epoch, without evaluation and checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        """The duration of each epoch in seconds since the last interruption."""
        self._started: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Starts the clock at the first step of an epoch."""
        self._started = time.monotonic()

    def on_test_begin(self, logs: Logs = None) -> None:
        """Stops the clock when evaluation follows the steps."""
        self._end_steps()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Stops the clock if there was no evaluation; the callback must precede slow callbacks."""
        self._end_steps()

    def _end_steps(self) -> None:
        if self._started is not None:
            self.seconds.append(time.monotonic() - self._started)
            self._started = None


def open_checkpoint(inputs: RunInputs, plan: TrainingPlan) -> CheckpointCallback:
    """Returns the checkpoint callback, which holds the position where training begins or resumes.

    Args:
      inputs: the inputs of the training. All workers must call the function.
      plan: the epochs and steps.
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
    """Returns the TensorBoard callback that `train.tensorboard` configures."""
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
    stopping_start: int = 0,
    losses: Sequence[str] = ("loss",),
) -> list[tf_keras.callbacks.Callback]:
    """Returns the callbacks of training in the order of calls; the checkpoint callback is last.

    Args:
      inputs: the inputs of the training.
      plan: the epochs and steps.
      checkpoint: the callback that saves the state of the other callbacks.
      evaluator: the callback that evaluates each epoch under parameter servers, or None.
      stopping_start: the first epoch, counted from 0, that early stopping considers.
      losses: the names of the losses in the logs of a step.
    """
    tf.io.gfile.makedirs(inputs.model_run_dir)
    settings, monitor = inputs.settings, inputs.settings.target.monitor
    has_step_hooks = hooks_of(inputs.strategy).has_step_hooks
    stopping = choose_stopping(settings.train, plan.steps) if plan.chooses_epoch else None
    may_stop = stopping is not None or bool(settings.train.callbacks)
    callbacks = [
        EpochTimes(),
        # The evaluator precedes all callbacks that read its metrics.
        *([evaluator] if evaluator else []),
        LearningRate(),
        StopOnNaN(plan.steps, losses, monitor, has_step_hooks),
        Progress(f"{inputs.prefix}{EPOCH}", plan.steps, may_stop, has_step_hooks),
        open_board(inputs),
        BestEpoch(monitor, plan.first_pruned_epoch, plan.chooses_epoch),
    ]
    if stopping is not None:
        callbacks.append(
            EarlyStopping(
                monitor,
                min_delta=stopping.min_delta,
                patience=stopping.patience,
                mode="min",
                start_from_epoch=max(stopping_start, plan.first_pruned_epoch),
            )
        )
    callbacks += [*make_own_callbacks(settings), *inputs.extra_callbacks]
    checkpoint.watch(callbacks)
    return [*callbacks, checkpoint]


def make_own_callbacks(settings: TrainerSettings) -> list[tf_keras.callbacks.Callback]:
    """Returns new instances of the callbacks in `train.callbacks`, in their order.

    Args:
      settings: the settings of the training, which are the argument of a user's class or function
        with a required parameter.

    Raises:
      TrainingError: a path cannot be imported, or its result is not a tf_keras callback.
    """
    return [_make_own_callback(path, settings) for path in settings.train.callbacks]


def _make_own_callback(path: str, settings: TrainerSettings) -> tf_keras.callbacks.Callback:
    make = load_own("train.callbacks", path)
    callback = make(settings) if count_needed(make) else make()
    if not isinstance(callback, tf_keras.callbacks.Callback):
        raise TrainingError(
            f"train.callbacks {path!r} returns a {type(callback).__module__}."
            f"{type(callback).__qualname__}; expected a subclass of tf_keras.callbacks.Callback, "
            "or a function that returns such an object."
        )
    return callback
