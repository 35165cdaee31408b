"""A trial of a search: it trains a model with the settings of the trial, and measures the model."""

from __future__ import annotations

import copy
import gc
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
import tf_keras
from tensorboard.plugins.hparams import api as hparams

from trainer_module.data.dealing import divide_records, make_fold
from trainer_module.data.loading import SplitCache, TrainingData
from trainer_module.errors import TrainingError
from trainer_module.runtime import WorkerContext
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import TRAINER, load_trainer, trainer_of
from trainer_module.settings.train import needs_held_out
from trainer_module.training.folds import measure
from trainer_module.training.plan import TrainingInputs, TrainingPlan, TrainingResult, open_inputs
from trainer_module.tuning.plan import PARTS, Measured, MemberTrial, Objective, TrialResult
from trainer_module.tuning.space import Values

BACKUP_FOLDER = "backup"
"""The folder of the checkpoints in the folder of a trial."""

Report = Callable[[int, float], bool]
"""A function of an epoch, counted from 1, and its objective; it returns whether to
prune the trial.
"""


class TrialWatcher(tf_keras.callbacks.Callback):
    """A callback that reports the objective of each epoch, and ends a trial that is pruned."""

    def __init__(self, objective: Objective, report: Report) -> None:
        super().__init__()
        self._objective = objective
        self._report = report
        self.has_pruned = False
        """Whether the trial was pruned."""

    def get_state(self) -> dict[str, Any]:
        """Returns whether the trial was pruned, so that a resumed trial remains pruned."""
        return {"has_pruned": self.has_pruned}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores whether the trial was pruned."""
        self.has_pruned = state["has_pruned"]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reports the objective; the callback must follow the callbacks that extend the logs."""
        if self._objective.name not in (logs or {}):
            raise TrainingError(
                f"tune.objective: the builder compiles the model without a metric "
                f"{self._objective.metric!r}; remove the call of compile, or add this metric."
            )
        value = float((logs or {})[self._objective.name])
        if self._report(epoch + 1, value) and not self.model.stop_training:
            self.has_pruned = self.model.stop_training = True


class TrialRunner:
    """Runs trials one after another in this process, and reads the examples only once."""

    def __init__(
        self, fn_args: Any, runtime: WorkerContext, objective: Objective, has_own_split: bool
    ) -> None:
        """Stores the arguments without reading anything.

        Args:
          fn_args: an object with the attributes of TFX's FnArgs. `eval_files` are the files of the
            search's own split. Without its own split they are the files of the train split, and a
            part of the train split is held out.
          runtime: the runtime of this process.
          objective: the objective of the search.
          has_own_split: whether the search has its own split.
        """
        self._fn_args = fn_args
        self._runtime = runtime
        self._objective = objective
        self._has_own_split = has_own_split
        self._cache: SplitCache = {}

    def run(
        self,
        settings: TrainerSettings,
        values: Values,
        folder: str,
        report: Report,
        part: int = 0,
        *,
        is_of_members: bool = False,
    ) -> TrialResult:
        """Runs a trial, or resumes an interrupted trial.

        Args:
          settings: the settings of the trial.
          values: the values of the trial, for TensorBoard.
          folder: the folder of the trial, for logs and checkpoints.
          report: the function that receives the objective of each epoch.
          part: the held-out part of the train split, on which the model is measured. It is not used
            if the search has its own split.
          is_of_members: whether the trial trains members of an ensemble, which are measured on the
            examples that they hold out themselves.

        Raises:
          TrainingError: the model cannot be built, the data cannot be used, or training diverges.
        """
        start = time.monotonic()
        watcher = TrialWatcher(self._objective, report)
        try:
            inputs = replace(self._open(settings, folder), extra_callbacks=[watcher])
            if is_of_members:
                result = self._run_members(inputs, folder, watcher, start)
            else:
                inputs = replace(inputs, data=self._data_of_part(inputs.data, part))
                result = self._result(_train(inputs), inputs.data, watcher, start)
        finally:
            # The call resets the numbers in layer names, so all trials have the same layer names.
            tf_keras.backend.clear_session()
            gc.collect()  # Keras's models have reference cycles.
        _write_hparams(folder, values, self._objective.name, result.value)
        return result

    def join(
        self, settings: TrainerSettings, trials: Sequence[MemberTrial], folder: str
    ) -> tuple[dict[str, Any], TrialResult]:
        """Returns the values of the best ensemble of the members of trials, and its result.

        Args:
          settings: the settings of the config.
          trials: the completed trials, the first with the config.
          folder: a folder for temporary files.
        """
        from trainer_module.tuning.members import join_trials

        start = time.monotonic()
        values, measured = join_trials(trials, self._open(settings, folder))
        return values, self._of_members(measured, start)

    def _open(self, settings: TrainerSettings, folder: str) -> TrainingInputs:
        arguments = copy.copy(self._fn_args)
        arguments.model_run_dir, arguments.base_model = folder, None
        backup = {"backup_directory": os.path.join(folder, BACKUP_FOLDER)}
        runtime = self._runtime.model_copy(update=backup)
        inputs = open_inputs(arguments, settings, runtime, self._cache)
        measures = self._objective.measures(settings.label_task)
        problem = replace(inputs.data.problem, measures=measures)
        return replace(inputs, data=replace(inputs.data, problem=problem))

    def _data_of_part(self, data: TrainingData, part: int) -> TrainingData:
        if self._has_own_split:
            return data
        parts = divide_records(data.train, PARTS, f"tune: {PARTS} parts to measure on")
        train, held_out = make_fold(data.train, data.evaluation, parts, part)
        return replace(data, train=train, evaluation=held_out)

    def _result(
        self, trained: TrainingResult, data: TrainingData, watcher: TrialWatcher, start: float
    ) -> TrialResult:
        metrics = dict(trained.measured) or measure(trained.model, data)
        result = self._of_metrics(metrics, data.evaluation.examples, start)
        return _with_epochs(result, trained, watcher)

    def _run_members(
        self, inputs: TrainingInputs, folder: str, watcher: TrialWatcher, start: float
    ) -> TrialResult:
        # The import is here, as scikit-learn takes a second to import.
        from trainer_module.tuning.members import train_members

        measured, network = train_members(inputs, folder)
        result = self._of_members(measured, start)
        return _with_epochs(result, network, watcher) if network else result

    def _of_members(self, measured: Measured, start: float) -> TrialResult:
        result = self._of_metrics(measured.metrics, measured.examples, start)
        return replace(result, weights=measured.weights)

    def _of_metrics(self, metrics: Mapping[str, float], examples: int, start: float) -> TrialResult:
        """Returns a result without epochs."""
        value = metrics[self._objective.metric]
        if not math.isfinite(value):
            raise TrainingError(f"{self._objective.name} is {value}, which is not a finite number.")
        return TrialResult(value, metrics, examples, 0, 0, False, time.monotonic() - start)


def _with_epochs(
    result: TrialResult, trained: TrainingResult, watcher: TrialWatcher
) -> TrialResult:
    return replace(
        result,
        epochs=len(trained.history["loss"]),
        best_epoch=trained.best_epoch,
        was_pruned=watcher.has_pruned,
    )


def _train(inputs: TrainingInputs) -> TrainingResult:
    """Trains as the Trainer does; without early stopping, the last epoch is kept."""
    settings, data = inputs.settings, inputs.data
    tf_keras.utils.set_random_seed(settings.train.global_seed)
    train = load_trainer(settings.model.kind).train
    if trainer_of(settings.model.kind) != TRAINER:
        return train(inputs)
    chooses_epoch = needs_held_out(settings.train, data.train.steps)
    return train(inputs, TrainingPlan.of(settings, data, chooses_epoch))


def _write_hparams(folder: str, values: Values, name: str, value: float) -> None:
    """Writes a trial's values and objective for TensorBoard's HParams tab."""
    plain_values = {
        path: v if isinstance(v, bool | int | float) else str(v) for path, v in values.items()
    }
    with tf.summary.create_file_writer(folder).as_default():
        hparams.hparams(plain_values, trial_id=os.path.basename(folder))
        tf.summary.scalar(name, value, step=0)
