"""What a training is given, how long it is, and what comes of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.data.input_pipeline import Split, steps_per_execution
from trainer_module.data.loading import Known, TrainingData, load_data
from trainer_module.runtime import Runtime, read_run, report_ready
from trainer_module.settings import TrainerSettings
from trainer_module.settings.train import choose_epochs
from trainer_module.strategies import build_strategy
from trainer_module.training.checkpoint import BEGINNING, CHECKPOINTS_FOLDER, Position
from trainer_module.training.compression import PruningPlan, plan_steps


@dataclass(frozen=True)
class RunInputs:
    """What the inputs of a training have in common, whichever family it is of."""

    settings: TrainerSettings
    """With the strategy that is used."""
    runtime: Runtime
    """Of this process."""
    strategy: tf.distribute.Strategy
    model_run_dir: str
    """For TensorBoard, and the record."""
    prefix: str = field(default="", kw_only=True)
    """Begins what it says of its progress."""
    watchers: Sequence[tf_keras.callbacks.Callback] = field(default=(), kw_only=True)
    """Callbacks that see each epoch of a network."""

    @property
    def backup_directory(self) -> str:
        """Where training goes on from if it was interrupted."""
        kept = self.runtime.backup_directory
        return kept or os.path.join(self.model_run_dir, CHECKPOINTS_FOLDER)


@dataclass(frozen=True)
class TrainingInputs(RunInputs):
    """What a training is given, whoever trains: the run itself, a fold or a trial of a search."""

    tft_output: tft.TFTransformOutput
    data: TrainingData
    base_model: str | None = None
    """Path of the model whose weights it begins with; None if it begins from scratch."""
    tries_export: bool = False
    """Whether a model of the user's is exported before the first step, to see whether it can be."""

    def within(self, folder: str, **changes: Any) -> TrainingInputs:
        """Of a further training, whose files are in a folder of this one's.

        Args:
          folder: a relative path.
          changes: what else is other than here.
        """
        backup = os.path.join(self.backup_directory, folder)
        told = {"backup_directory": backup, "continued_epochs": 0}
        return replace(
            self,
            model_run_dir=os.path.join(self.model_run_dir, folder),
            runtime=self.runtime.model_copy(update=told),
            **changes,
        )


def open_inputs(
    fn_args: Any,
    settings: TrainerSettings | None = None,
    runtime: Runtime | None = None,
    known: Known | None = None,
) -> TrainingInputs:
    """Returns the settings, then the strategy, then the data.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes.
      settings: None for those in its `custom_config`.
      runtime: None for its `runtime`, where it has one.
      known: splits that need not be read again; grows.

    Raises:
      TrainingError: the strategy or the data cannot be used.
    """
    settings, runtime = read_run(fn_args, settings, runtime)
    strategy = open_strategy(settings)
    tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    data = load_data(fn_args, tft_output, settings, strategy, runtime.workers, known)
    base_model = getattr(fn_args, "base_model", None)
    return TrainingInputs(
        settings, runtime, strategy, fn_args.model_run_dir, tft_output, data, base_model
    )


def open_strategy(settings: TrainerSettings) -> tf.distribute.Strategy:
    """Seeds the process, sets its precision and builds the strategy, before all else."""
    tf_keras.utils.set_random_seed(settings.train.global_seed)
    tf_keras.mixed_precision.set_global_policy(settings.train.precision.value)
    strategy = build_strategy(settings.train.strategy)
    report_ready()
    return strategy


@dataclass(frozen=True)
class TrainingPlan:
    """The epochs and steps of a network's training."""

    epochs: int
    """That schedules go by: at most so many are trained."""
    last_epoch: int
    """The one to train up to, unless a callback ends training before."""
    steps: int
    """Of each epoch."""
    examples_per_step: int
    """Of all replicas."""
    steps_per_execution: int = 1
    whole_from: int = 0
    """The first epoch, counted from 0, at whose end all is pruned that is to be."""
    chooses: bool = True
    """Whether the examples that are looked at decide which epoch is kept; otherwise the last is."""
    notes: tuple[str, ...] = ()
    """On how long it is, for people."""

    @classmethod
    def of(
        cls, settings: TrainerSettings, data: TrainingData, chooses: bool = True
    ) -> TrainingPlan:
        """What the settings say of so many examples.

        Args:
          settings: of the training.
          data: that is learnt from.
          chooses: whether what is looked at decides.
        """
        steps = data.train.steps
        epochs = choose_epochs(settings.train, steps)
        return cls(
            epochs,
            epochs,
            steps,
            data.train.global_batch_size,
            settings.train.steps_per_execution or _steps_at_a_time(settings, epochs * steps),
            _whole_from(settings, epochs, steps),
            chooses,
        )

    def with_length(self, epochs: int, held_out: int, examples: int) -> TrainingPlan:
        """Returns the same with a length that was found before.

        Args:
          epochs: that were the best for what was held out.
          held_out: examples by which they were.
          examples: of all, which are learnt from now.
        """
        note = (
            f"epoch {epochs} was the best for {held_out:,} examples of the train split that were "
            f"held out; then all {examples:,} were learnt from as long"
        )
        last = min(self.epochs, max(epochs, self.whole_from + 1))
        return replace(self, last_epoch=last, chooses=False, notes=(*self.notes, note))

    def going_on_from(self, start: Position, continued_epochs: int) -> TrainingPlan:
        """Returns the same, but of no more epochs where a callback has ended the training before.

        Args:
          start: where it goes on.
          continued_epochs: of an earlier run: what has ended that is no end for this one.
        """
        is_over = start.ended and start.epoch > continued_epochs
        return replace(self, last_epoch=start.epoch) if is_over else self

    def steps_until(self, position: Position) -> int:
        """Steps that are done there, over all epochs."""
        return position.epoch * self.steps + position.step


def _steps_at_a_time(settings: TrainerSettings, steps: int) -> int:
    """Of a training of so many in all: one, where TensorBoard looks at each."""
    return 1 if settings.train.tensorboard.looks_at_steps else steps_per_execution(steps)


def _whole_from(settings: TrainerSettings, epochs: int, steps: int) -> int:
    if settings.optimize.prune is None:
        return 0
    return plan_steps(settings.optimize.prune, epochs * steps).first_whole_epoch(steps)


@dataclass(frozen=True)
class Trained:
    """What came of a training, of a network or of trees."""

    model: tf_keras.Model
    """In this process."""
    train: Split
    """What it learnt from; an epoch has as many steps as it says."""
    evaluation: Split
    """What was only looked at."""
    history: Mapping[str, list[float]]
    """A value per epoch for each metric, from the first one on."""
    best_epoch: int
    """Counted from 1: the epoch that the model is of."""
    epoch_seconds: Sequence[float]
    """That the steps of each epoch took since the last interruption."""
    plan: TrainingPlan | None = None
    """None where there is no optimizer, whose steps it would plan."""
    start: Position = BEGINNING
    """Where this process began, or went on."""
    base_model: str | None = None
    """Path of the model that it began with; None if it began from scratch."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """What it came to on `evaluation`, by metric; empty if that has not been measured."""
    notes: Sequence[str] = ()
    """What the one who reads the summary should know."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """What the record says of this kind of training alone."""
    pruning: PruningPlan | None = None
    """The weights that were made zero, if any."""

    @property
    def start_step(self) -> int:
        """Steps that were done before the last interruption."""
        return self.start.epoch * self.train.steps + self.start.step

    @property
    def step_seconds(self) -> float:
        """Of a step, by the epochs after the first, where there are any: it traces graphs.

        0 if everything was done before the last interruption.
        """
        _, *later = self.epoch_seconds or [0.0]
        if later:
            return sum(later) / (len(later) * self.train.steps)
        steps = len(self.history["loss"]) * self.train.steps - self.start_step
        return sum(self.epoch_seconds) / steps if steps else 0.0
