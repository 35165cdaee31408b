"""What a training loop is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from trainer_module.input_pipeline import Split
from trainer_module.loops.callbacks import CopyOnCoordinator
from trainer_module.loops.checkpoints import Backup, BestEpoch, Position


@dataclass(frozen=True)
class TrainingJob:
    """A compiled model, its data, and where to begin."""

    model: tf_keras.Model
    strategy: tf.distribute.Strategy
    train: Split
    evaluation: Split
    epochs: int
    """That are planned."""
    last_epoch: int
    """The one to train up to: an earlier one where training was interrupted after its end."""
    steps_per_execution: int
    callbacks: Sequence[tf_keras.callbacks.Callback]
    backup: Backup
    """The last of the callbacks."""
    base_model: str | None = None
    """Path of the model whose weights the model began with; None if it began from scratch."""
    notes: Sequence[str] = ()
    """What the one who reads the summary should know of how it began."""

    @property
    def start(self) -> Position:
        """Where to begin, or to go on."""
        return self.backup.start

    @property
    def start_step(self) -> int:
        """Steps that are done, over all epochs."""
        return self.start.epoch * self.train.steps + self.start.step

    @property
    def best_epoch(self) -> int:
        """Counted from 1: the epoch whose weights the trained model has."""
        return next(c.epoch for c in self.callbacks if isinstance(c, BestEpoch))

    @property
    def is_asynchronous(self) -> bool:
        """Whether workers run steps at their own pace, by a coordinator's orders."""
        return isinstance(self.strategy, tf.distribute.ParameterServerStrategy)

    @property
    def exported(self) -> tf_keras.Model:
        """The model to export, in this process; `result` is the same with what has been learnt."""
        return self._copy.copy if self._copy else self.model

    @property
    def result(self) -> tf_keras.Model:
        """The trained model, in this process."""
        return self._copy.fetch() if self._copy else self.model

    @property
    def _copy(self) -> CopyOnCoordinator | None:
        return next((c for c in self.callbacks if isinstance(c, CopyOnCoordinator)), None)
