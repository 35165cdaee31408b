"""The inputs of training, its number of epochs and steps, and its result."""

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
from trainer_module.errors import counted
from trainer_module.families.supervised.log_target import with_target
from trainer_module.runtime import WorkerContext, read_run, report_ready
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import has_small_operations
from trainer_module.settings.train import choose_epochs
from trainer_module.strategies import build_strategy
from trainer_module.strategies.devices import use_single_threads
from trainer_module.training.checkpoint import BEGINNING, CHECKPOINTS_FOLDER, Position
from trainer_module.training.compression import PruningPlan, plan_steps
from trainer_module.training.reuse import Reuse


@dataclass(frozen=True)
class RunInputs:
    """The inputs of training that all families share."""

    settings: TrainerSettings
    """The settings, with the chosen strategy."""
    runtime: WorkerContext
    """The runtime of this process."""
    strategy: tf.distribute.Strategy
    model_run_dir: str
    """The folder for TensorBoard's logs and the record of the training (`RECORD_FILE`)."""
    prefix: str = field(default="", kw_only=True)
    """A prefix of the reported progress."""
    extra_callbacks: Sequence[tf_keras.callbacks.Callback] = field(default=(), kw_only=True)
    """Additional callbacks."""

    @property
    def backup_directory(self) -> str:
        """The folder of the checkpoints from which an interrupted training resumes."""
        directory = self.runtime.backup_directory
        return directory or os.path.join(self.model_run_dir, CHECKPOINTS_FOLDER)


@dataclass(frozen=True)
class TrainingInputs(RunInputs):
    """The inputs of supervised training, for the model of the run, a fold or a trial of a
    search.
    """

    tft_output: tft.TFTransformOutput
    data: TrainingData
    base_model: str | None = None
    """The path of the model from whose weights training starts; None to start from scratch."""
    notes: Sequence[str] = ()
    """Notes on the problem for the summary."""
    checks_export: bool = False
    """Whether a user's model is exported before the first step, to detect errors early."""
    reuse: Reuse | None = None
    """The network that this training passes to a second training, or takes from a first one."""

    def within(self, folder: str, **changes: Any) -> TrainingInputs:
        """Returns the inputs of another training, such as a fold, whose files are in a subfolder.

        Args:
          folder: the path of the subfolder, relative to the folders of this training.
          changes: other attributes to replace, by name.
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
      runtime: the runtime; None to read `fn_args.runtime`, or a default if that is missing.
      cache: a cache of splits, which the function extends.

    Raises:
      TrainingError: the strategy or the data cannot be used.
    """
    settings, runtime = read_run(fn_args, settings, runtime)
    strategy = open_strategy(settings)
    tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    cache = {} if cache is None else cache
    data = load_data(fn_args, tft_output, settings, strategy, runtime.workers, cache)
    data, notes = with_target(data, settings, strategy, cache)
    base_model = getattr(fn_args, "base_model", None)
    return TrainingInputs(
        settings, runtime, strategy, fn_args.model_run_dir, tft_output, data, base_model, notes
    )


def open_strategy(settings: TrainerSettings) -> tf.distribute.Strategy:
    """Sets the threads, the random seed and the precision, and builds the strategy.

    Call the function before any other TensorFlow code.
    """
    if has_small_operations(settings.model.kind):
        use_single_threads()
    tf_keras.utils.set_random_seed(settings.train.global_seed)
    tf_keras.mixed_precision.set_global_policy(settings.train.precision.value)
    strategy = build_strategy(settings.train.strategy)
    report_ready()
    return strategy


@dataclass(frozen=True)
class TrainingPlan:
    """The epochs and steps of a network's training."""

    epochs: int
    """The maximum number of epochs, on which schedules are based."""
    last_epoch: int
    """The last epoch, counted from 1, unless a callback ends training earlier."""
    steps: int
    """The number of steps in an epoch."""
    examples_per_step: int
    """The number of examples in a step of all replicas."""
    steps_per_execution: int = 1
    first_pruned_epoch: int = 0
    """The first epoch, counted from 0, at whose end the final sparsity of pruning is reached."""
    chooses_epoch: bool = True
    """Whether the monitored value chooses the epoch to keep; if not, the last epoch is kept."""
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
          chooses_epoch: whether the monitored value chooses the epoch to keep.
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
        """Returns the plan of the final training, with the number of epochs of an earlier training.

        Args:
          epochs: the best epoch on the held-out examples.
          held_out: the number of held-out examples.
          examples: the number of all examples, from which the final model learns.
        """
        last = min(self.epochs, max(epochs, self.first_pruned_epoch + 1))
        note = (
            f"epoch {epochs} was the best on {held_out:,} held-out examples of the train split; "
            f"the final model was trained on all {examples:,} examples for "
            f"{counted(last, 'epoch')}"
        )
        return replace(self, last_epoch=last, chooses_epoch=False, notes=(*self.notes, note))

    def resumed_at(self, start: Position, continued_epochs: int) -> TrainingPlan:
        """Returns the plan for resuming at a position.

        The plan has no more epochs if a callback, such as early stopping, has ended the training.

        Args:
          start: the position to resume at.
          continued_epochs: the number of epochs of an earlier run that this training continues. The
            end of the earlier run does not end this training.
        """
        has_ended = start.ended and start.epoch > continued_epochs
        return replace(self, last_epoch=start.epoch) if has_ended else self

    def steps_until(self, position: Position) -> int:
        """Returns the number of steps before a position, over all epochs."""
        return position.epoch * self.steps + position.step


def _steps_per_execution(settings: TrainerSettings, steps: int) -> int:
    """Returns the number of steps per execution, which is 1 if TensorBoard records each step."""
    return 1 if settings.train.tensorboard.looks_at_steps else steps_per_execution(steps)


def _first_pruned_epoch(settings: TrainerSettings, epochs: int, steps: int) -> int:
    if settings.optimize.prune is None:
        return 0
    return plan_steps(settings.optimize.prune, epochs * steps).first_pruned_epoch(steps)


@dataclass(frozen=True)
class TrainingResult:
    """The result of training a network or trees."""

    model: tf_keras.Model
    """The trained model in this process."""
    train: Split
    """The split from which the model learnt."""
    evaluation: Split
    """The split on which the model was evaluated during training."""
    history: Mapping[str, list[float]]
    """The values of each metric, with a value for each epoch since the first."""
    best_epoch: int
    """The epoch whose weights the model has, counted from 1."""
    epoch_seconds: Sequence[float]
    """The duration of the steps of each epoch in seconds, since the last interruption."""
    plan: TrainingPlan | None = None
    """The plan of the epochs and steps, or None if no optimizer steps were taken."""
    start: Position = BEGINNING
    """The position at which this process began or resumed."""
    base_model: str | None = None
    """The path of the model from whose weights training started, or None if it started from
    scratch.
    """
    measured: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the model on `evaluation`, or an empty mapping if they have not been computed.
    """
    notes: Sequence[str] = ()
    """Notes for the reader of the summary."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Additional keys of the record."""
    pruning: PruningPlan | None = None
    """The pruning plan, or None without pruning."""

    def with_notes(self, notes: Sequence[str]) -> TrainingResult:
        """Returns the result with more notes."""
        return replace(self, notes=[*self.notes, *notes])

    @property
    def start_step(self) -> int:
        """The number of completed steps before the last interruption."""
        return self.start.epoch * self.train.steps + self.start.step

    @property
    def step_seconds(self) -> float:
        """The mean duration of a step in seconds, or 0 if no step followed the last interruption.

        The first epoch traces graphs, so it counts only if there is no other epoch.
        """
        _, *later = self.epoch_seconds or [0.0]
        if later:
            return sum(later) / (len(later) * self.train.steps)
        steps = len(self.history["loss"]) * self.train.steps - self.start_step
        return sum(self.epoch_seconds) / steps if steps else 0.0
