"""The two phases of a model: which epochs they have, and what is trained in each.

As in https://www.tensorflow.org/guide/keras/transfer_learning. Which phase an epoch belongs to
follows from its number, so that a checkpoint says it by how far it has come.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
import tf_keras

from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.models.pretrained.model import (
    batch_norms,
    head_of,
    network_of,
    pooled_of,
)
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import TransferSettings
from trainer_module.training.backup import Backup, Position
from trainer_module.training.fine_tuning.features import describe_features, why_not

Compile = Callable[[tf_keras.Model, TrainerSettings], None]
"""Compiles a model for the training that some settings describe."""


def frozen_epochs(transfer: TransferSettings, epochs: int) -> int:
    """How many of the epochs the first phase has: all of them, if no other follows.

    Raises:
      TrainingError: the network is to be unfrozen after the last epoch.
    """
    if transfer.unfreeze_after is None:
        return epochs
    if transfer.unfreeze_after >= epochs:
        raise TrainingError(
            f"model.transfer.unfreeze_after is {transfer.unfreeze_after}, but the training has "
            f"{epochs} epochs, so nothing would be fine-tuned; give fewer, or more as "
            "train.epochs."
        )
    return transfer.unfreeze_after


class Phases:
    """What is trained in each of the two phases, and how the second one is entered."""

    def __init__(
        self,
        model: tf_keras.Model,
        problem: Problem,
        settings: TrainerSettings,
        strategy: tf.distribute.Strategy,
        epochs: int,
        compile_: Compile,
    ) -> None:
        """Freezes the network.

        Args:
          model: of `models.pretrained`, not compiled; it will be for the second phase.
          problem: what is to be learnt.
          settings: of the training.
          strategy: that it is under.
          epochs: of both phases together.
          compile_: for training.
        """
        self._transfer = settings.model.transfer or TransferSettings()
        self._settings, self._strategy, self._compile = settings, strategy, compile_
        self._model = model
        self.network = network_of(model, settings.model.kind)
        self._images = problem.of_kind("image")
        self.until = frozen_epochs(self._transfer, epochs)
        """Epochs of the first phase."""
        self.is_one = self.until == epochs
        """Whether there is no other."""
        self.notes: list[str] = []
        """For people."""
        with strategy.scope():
            self.network.trainable = False

    @property
    def patient_from(self) -> int:
        """The epoch, counted from 0, from which on early stopping looks: of the last phase."""
        return 0 if self.is_one else self.until

    def begin(self, backup: Backup, *splits: Split) -> Position:
        """Prepares the first phase, and brings the training back to its latest backup, if any.

        Args:
          backup: of the training.
          splits: that are learnt from and looked at.
        """
        with self._strategy.scope():
            pooled = pooled_of(self._model, self._images)
            reason = why_not(self._settings, self._strategy, splits, pooled)
            part = self._model if reason else head_of(self._model)
            self.trained = tf_keras.Model(part.input, part.output)
            """In the first phase: the head alone, or all of the model where features are not kept.
            A model of its own, whose optimizer is no part of what is exported."""
        self.pooled = None if reason else pooled
        """Gives the features to keep; None where they are computed in each epoch."""
        self._compile(self.trained, self._settings)
        self.notes = [f"transfer: {self._describe(reason, splits)}"]
        start = backup.restore(self._model, frozen=self.trained)
        if not self.is_one and start.epoch >= self.until:
            self.thaw()
            start = backup.restore(self._model)
        return start

    def thaw(self) -> None:
        """Makes the last layers trainable, and the model ready for the second phase."""
        with self._strategy.scope():
            self.network.trainable = True
            first = self.network.layers[: -self._transfer.unfreeze_layers]
            for layer in [*first, *batch_norms(self.network)]:
                layer.trainable = False
        rate = {"learning_rate": self._transfer.learning_rate}
        train = self._settings.train.model_copy(update=rate)
        self._compile(self._model, self._settings.model_copy(update={"train": train}))

    def _describe(self, reason: str, splits: tuple[Split, ...]) -> str:
        if reason:
            return f"the network's features are computed in each epoch, as {reason}"
        return describe_features(splits, self.pooled)
