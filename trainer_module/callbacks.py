"""What happens around the epochs: checkpoints, TensorBoard, progress, and when to stop."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.progress import report_progress
from trainer_module.settings import TrainSettings

logger = logging.getLogger(__name__)

MONITOR = "val_loss"
"""What the best epoch is best at: lower is better."""

Logs = dict[str, Any] | None


class LearningRate(tf_keras.callbacks.Callback):
    """Puts the learning rate of the epoch's last step into the logs, as `learning_rate`."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Must come before the callbacks that write the logs."""
        optimizer = self.model.optimizer
        # The public property of Keras's present optimizers has evaluated a schedule, a step late.
        rate = getattr(optimizer, "_learning_rate", optimizer.learning_rate)
        if isinstance(rate, tf_keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(optimizer.iterations - 1)
        if logs is not None:
            logs["learning_rate"] = float(tf_keras.backend.get_value(rate))


class StopOnNaN(tf_keras.callbacks.Callback):
    """Raises TrainingError at the end of the first epoch whose loss is not a finite number."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Looks at the training and the evaluation loss."""
        for name in ("loss", MONITOR):
            value = (logs or {}).get(name, 0.0)
            if not math.isfinite(value):
                raise TrainingError(
                    f"training diverged: {name} is {value} in epoch {epoch + 1}; lower "
                    "train.learning_rate, or look for extreme values in the data."
                )


class BestWeights(tf_keras.callbacks.ModelCheckpoint):
    """Keeps a checkpoint of the epoch with the lowest evaluation loss, and ends with its weights.

    `best_epoch` counts from 1; 0 until an epoch has ended.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(
            os.path.join(directory, "best"),
            monitor=MONITOR,
            mode="min",
            save_best_only=True,
            save_weights_only=True,
        )
        self.best_epoch = 0

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves the weights if they are the best yet."""
        before = self.best
        super().on_epoch_end(epoch, logs)
        if self.best < before:
            self.best_epoch = epoch + 1

    def on_train_end(self, logs: Logs = None) -> None:
        """Restores the best weights."""
        super().on_train_end(logs)
        if self.best_epoch:
            self.model.load_weights(self.filepath).expect_partial()
            logger.info("restored epoch %d, %s %.4f", self.best_epoch, MONITOR, self.best)


class Progress(tf_keras.callbacks.Callback):
    """Reports each epoch to whoever listens."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Logs the loss and the evaluation metrics."""
        shown = {k: v for k, v in (logs or {}).items() if k == "loss" or k.startswith("val_")}
        detail = ", ".join(f"{name} {value:.4g}" for name, value in shown.items())
        report_progress(epoch + 1, self.params["epochs"], "epoch", detail)


def build_callbacks(train: TrainSettings, directory: str) -> list[tf_keras.callbacks.Callback]:
    """The callbacks of a training run that keeps its records in `directory`, in working order."""
    callbacks = [
        LearningRate(),
        Progress(),
        StopOnNaN(),
        tf_keras.callbacks.TensorBoard(directory, write_graph=False),
        BestWeights(os.path.join(directory, "checkpoints")),
    ]
    if stopping := train.early_stopping:
        callbacks.append(
            tf_keras.callbacks.EarlyStopping(
                MONITOR, min_delta=stopping.min_delta, patience=stopping.patience, mode="min"
            )
        )
    tf.io.gfile.makedirs(directory)
    return callbacks
