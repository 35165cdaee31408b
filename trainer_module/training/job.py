"""What is to be trained, and how far that has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf
import tf_keras

from trainer_module.data.input_pipeline import Split
from trainer_module.training.backup import Backup, BestEpoch, Position
from trainer_module.training.callbacks import CopyOnCoordinator, EpochTimes
from trainer_module.training.pruning import strip_pruning

if TYPE_CHECKING:
    from trainer_module.training.pruning import PruningPlan


class Job(Protocol):
    """The training of any kind of model, as `run_fn` and the record see it."""

    @property
    def train(self) -> Split:
        """What is learnt from; an epoch has as many steps as it says."""

    @property
    def evaluation(self) -> Split:
        """What is only looked at."""

    @property
    def base_model(self) -> str | None:
        """Path of the model that this one began with; None if it began from scratch."""

    @property
    def notes(self) -> Sequence[str]:
        """What the one who reads the summary should know."""

    @property
    def start_step(self) -> int:
        """Steps that were done before the last interruption."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether workers run steps at their own pace, by a coordinator's orders."""

    @property
    def exported(self) -> tf_keras.Model | None:
        """The model to export, not trained yet; None if nothing of the user's is in it."""

    def run(self) -> None:
        """Trains."""

    @property
    def result(self) -> tf_keras.Model:
        """The trained model, in this process."""

    @property
    def history(self) -> Mapping[str, list[float]]:
        """A value per epoch for each metric; those of `evaluation` begin with `val_`."""

    @property
    def best_epoch(self) -> int:
        """Counted from 1: the epoch that the trained model is of."""

    @property
    def step_seconds(self) -> float:
        """Of a training step; 0 if all were done before the last interruption."""

    @property
    def measured(self) -> Mapping[str, float]:
        """What the trained model came to on `evaluation`, by metric."""

    @property
    def extras(self) -> Mapping[str, Any]:
        """What the record says of this kind of training alone."""


@dataclass(frozen=True)
class TrainingJob:
    """A compiled model, its data, and where to begin."""

    loop: Callable[[TrainingJob], None]
    """Who runs the steps."""
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
    chooses: bool = True
    """Whether `evaluation` decides which epoch is kept; otherwise it is the last one."""
    pruning: PruningPlan | None = None
    """The weights that are made zero, if any."""

    def run(self) -> None:
        """Trains the model, or goes on."""
        self.loop(self)
        if self.pruning:
            strip_pruning(self.model)

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
        best = next(c.epoch for c in self.callbacks if isinstance(c, BestEpoch))
        # A callback may end training before any epoch could be the best.
        return best or len(self.history["loss"])

    @property
    def history(self) -> dict[str, list[float]]:
        """A value per epoch for each metric, from the first epoch on."""
        return self.backup.history

    @property
    def measured(self) -> dict[str, float]:
        """What the best epoch came to on the examples that are only looked at, by metric."""
        return {
            name.removeprefix("val_"): values[self.best_epoch - 1]
            for name, values in self.history.items()
            if name.startswith("val_")
        }

    @property
    def step_seconds(self) -> float:
        """Of a step, by the epochs after the first, where there are any: it traces graphs.

        0 if everything was done before the last interruption.
        """
        epochs = next(c.seconds for c in self.callbacks if isinstance(c, EpochTimes))
        if len(epochs) > 1:
            return sum(epochs[1:]) / (len(epochs[1:]) * self.train.steps)
        steps = len(self.history["loss"]) * self.train.steps - self.start_step
        return sum(epochs) / steps if steps else 0.0

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

    @property
    def extras(self) -> dict[str, Any]:
        """Of a network that was pruned, how far."""
        return {"sparsity": self.pruning.sparsity} if self.pruning else {}
