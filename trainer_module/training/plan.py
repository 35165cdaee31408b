"""The inputs, the length and the result of a training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.data.input_pipeline import Split, steps_per_execution
from trainer_module.data.loading import SplitCache, TrainingData, load_data
from trainer_module.runtime import WorkerContext, read_run, report_ready
from trainer_module.settings import TrainerSettings
from trainer_module.settings.train import choose_epochs
from trainer_module.strategies import build_strategy
from trainer_module.training.checkpoint import BEGINNING, CHECKPOINTS_FOLDER, Position
from trainer_module.training.compression import PruningPlan, plan_steps


@dataclass(frozen=True)
class RunInputs:
    """The inputs that trainings of all families share."""

    settings: TrainerSettings
    """The settings, with the strategy to use."""
    runtime: WorkerContext
    """The runtime of this process."""
    strategy: tf.distribute.Strategy
    model_run_dir: str
    """The folder for TensorBoard's logs and the record."""
    prefix: str = field(default="", kw_only=True)
    """A prefix of the reported progress."""
    extra_callbacks: Sequence[tf_keras.callbacks.Callback] = field(default=(), kw_only=True)
    """Further callbacks of the network's training."""

    @property
    def backup_directory(self) -> str:
        """The folder of the checkpoints that an interrupted training resumes from."""
        kept = self.runtime.backup_directory
        return kept or os.path.join(self.model_run_dir, CHECKPOINTS_FOLDER)


@dataclass(frozen=True)
class TrainingInputs(RunInputs):
    """The inputs of a supervised training: of the run itself, a fold or a trial of a search."""

    tft_output: tft.TFTransformOutput
    data: TrainingData
    base_model: str | None = None
    """The path of the model whose weights training starts from; None to start from scratch."""
    checks_export: bool = False
    """Whether a user's model is exported before the first step, to detect errors early."""

    def within(self, folder: str, **changes: Any) -> TrainingInputs:
        """Returns the inputs of a further training, whose files are in a subfolder.

        Args:
          folder: a relative path.
          changes: further changes of attributes.
        """
        backup = os.path.join(self.backup_directory, folder)
        runtime_changes = {"backup_directory": backup, "continued_epochs": 0}
        return replace(
            self,
            model_run_dir=os.path.join(self.model_run_dir, folder),
            runtime=self.runtime.model_copy(update=runtime_changes),
            **changes,
        )


def open_inputs(
    fn_args: Any,
    settings: TrainerSettings | None = None,
    runtime: WorkerContext | None = None,
    cache: SplitCache | None = None,
) -> TrainingInputs:
    """Reads the settings, builds the strategy and loads the data, in this order.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes.
      settings: the settings; None to read them from `custom_config`.
      runtime: the runtime; None to read it from `fn_args.runtime`, if there is one.
      cache: a cache of splits, which the function extends.

    Raises:
      TrainingError: the strategy or the data cannot be used.
    """
    settings, runtime = read_run(fn_args, settings, runtime)
    strategy = open_strategy(settings)
    tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    data = load_data(fn_args, tft_output, settings, strategy, runtime.workers, cache)
    base_model = getattr(fn_args, "base_model", None)
    return TrainingInputs(
        settings, runtime, strategy, fn_args.model_run_dir, tft_output, data, base_model
    )


def open_strategy(settings: TrainerSettings) -> tf.distribute.Strategy:
    """Seeds the process, sets its precision and builds the strategy; call the function first."""
    tf_keras.utils.set_random_seed(settings.train.global_seed)
    tf_keras.mixed_precision.set_global_policy(settings.train.precision.value)
    strategy = build_strategy(settings.train.strategy)
    report_ready()
    return strategy


@dataclass(frozen=True)
class TrainingPlan:
    """The epochs and steps of a network's training."""

    epochs: int
    """The largest number of epochs, which schedules are based on."""
    last_epoch: int
    """The epoch to train up to, unless a callback ends training earlier."""
    steps: int
    """The steps of an epoch."""
    examples_per_step: int
    """The examples in a step of all replicas."""
    steps_per_execution: int = 1
    first_pruned_epoch: int = 0
    """The first epoch, counted from 0, at whose end the final sparsity of pruning is reached."""
    chooses_epoch: bool = True
    """Whether the evaluation examples decide which epoch is kept; otherwise the last epoch is kept.
    """
    notes: tuple[str, ...] = ()
    """Notes on the number of epochs for the summary."""

    @classmethod
    def of(
        cls, settings: TrainerSettings, data: TrainingData, chooses_epoch: bool = True
    ) -> TrainingPlan:
        """Returns the plan that follows from the settings and the data.

        Args:
          settings: the settings of the training.
          data: the data of the training.
          chooses_epoch: whether the evaluation examples decide which epoch is kept.
        """
        steps = data.train.steps
        epochs = choose_epochs(settings.train, steps)
        return cls(
            epochs,
            epochs,
            steps,
            data.train.global_batch_size,
            settings.train.steps_per_execution or _steps_per_execution(settings, epochs * steps),
            _first_pruned_epoch(settings, epochs, steps),
            chooses_epoch,
        )

    def with_length(self, epochs: int, held_out: int, examples: int) -> TrainingPlan:
        """Returns the plan with a number of epochs that an earlier training found.

        Args:
          epochs: the best epoch on the held-out examples.
          held_out: the number of held-out examples.
          examples: the number of all examples, which are now trained on.
        """
        note = (
            f"epoch {epochs} was the best on {held_out:,} held-out examples of the train split; "
            f"the final model was trained on all {examples:,} for as many epochs"
        )
        last = min(self.epochs, max(epochs, self.first_pruned_epoch + 1))
        return replace(self, last_epoch=last, chooses_epoch=False, notes=(*self.notes, note))

    def resumed_at(self, start: Position, continued_epochs: int) -> TrainingPlan:
        """Returns the plan, without further epochs if a callback has already ended the training.

        Args:
          start: the position to resume at.
          continued_epochs: the epochs of an earlier run; the end of that run does not end this
            training.
        """
        has_ended = start.ended and start.epoch > continued_epochs
        return replace(self, last_epoch=start.epoch) if has_ended else self

    def steps_until(self, position: Position) -> int:
        """Returns the number of steps before a position, over all epochs."""
        return position.epoch * self.steps + position.step


def _steps_per_execution(settings: TrainerSettings, steps: int) -> int:
    """Returns the steps per execution; 1 if TensorBoard records each step."""
    return 1 if settings.train.tensorboard.looks_at_steps else steps_per_execution(steps)


def _first_pruned_epoch(settings: TrainerSettings, epochs: int, steps: int) -> int:
    if settings.optimize.prune is None:
        return 0
    return plan_steps(settings.optimize.prune, epochs * steps).first_pruned_epoch(steps)


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training, of a network or of trees."""

    model: tf_keras.Model
    """The trained model in this process."""
    train: Split
    """The split that the model was trained on, which has the steps of an epoch."""
    evaluation: Split
    """The split that the model was evaluated on during training."""
    history: Mapping[str, list[float]]
    """A value per epoch for each metric, from the first epoch on."""
    best_epoch: int
    """The epoch whose weights the model has, counted from 1."""
    epoch_seconds: Sequence[float]
    """The duration of the steps of each epoch since the last interruption."""
    plan: TrainingPlan | None = None
    """The plan of the epochs and steps; None without an optimizer."""
    start: Position = BEGINNING
    """The position at which this process began or resumed."""
    base_model: str | None = None
    """The path of the model whose weights training started from; None if it started from scratch.
    """
    measured: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the model on `evaluation`; empty if they have not been computed."""
    notes: Sequence[str] = ()
    """Notes for the reader of the summary."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the record for this kind of training."""
    pruning: PruningPlan | None = None
    """The plan of the pruned weights, if any."""

    @property
    def start_step(self) -> int:
        """The number of steps done before the last interruption."""
        return self.start.epoch * self.train.steps + self.start.step

    @property
    def step_seconds(self) -> float:
        """The mean duration of a step, without the first epoch if possible, which traces graphs.

        The value is 0 if all steps were done before the last interruption.
        """
        _, *later = self.epoch_seconds or [0.0]
        if later:
            return sum(later) / (len(later) * self.train.steps)
        steps = len(self.history["loss"]) * self.train.steps - self.start_step
        return sum(self.epoch_seconds) / steps if steps else 0.0
