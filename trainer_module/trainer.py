"""`run_fn`, what TFX Trainer runs: the data in, a trained model exported, a record of how."""

from __future__ import annotations

import copy
import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.data.dealing import ENOUGH, Parts, deal, hold_out, make_fold
from trainer_module.data.input_pipeline import steps_per_execution
from trainer_module.data.loading import TrainingData, load_data
from trainer_module.export.saving import export_model, try_export
from trainer_module.families.supervised.losses import make_loss
from trainer_module.progress import report_ready
from trainer_module.record import describe, remember_record, write_record
from trainer_module.runtime import Runtime
from trainer_module.settings import TrainerSettings
from trainer_module.settings.length import choose_epochs, is_chosen
from trainer_module.settings.model import is_grown
from trainer_module.strategies import build_strategy
from trainer_module.training import LOOPS, Job, TrainingJob
from trainer_module.training.building import build_model, compile_model, make_network
from trainer_module.training.callbacks import CopyOnCoordinator, build_callbacks
from trainer_module.training.checkpoints import CHECKPOINTS_FOLDER
from trainer_module.training.fine_tuning.job import TransferJob
from trainer_module.training.fine_tuning.phases import Phases
from trainer_module.training.folds import FOLDS_FOLDER, summarize
from trainer_module.training.own_callbacks import make_callbacks
from trainer_module.training.pruning import pruning_of
from trainer_module.training.warm_start.transfer import warm_start

CHOICE_FOLDER = "choice"
"""In the folders of a training: that of the one by which its length is chosen."""


@dataclass(frozen=True)
class Length:
    """How long a network is trained, where nothing of that is chosen any more."""

    epochs: int | None = None
    """None: as many as the settings say."""
    held_out: int = 0
    """Examples by which they were chosen."""


def run_fn(fn_args: Any) -> None:
    """Trains under the configured strategy, restores the best epoch and exports it.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes. The settings are in its
          `custom_config`; what else this process has to know may be there as `runtime`, a
          `Runtime`.

    Raises:
      TrainingError: if the model, the strategy or the data cannot be used, the model could not be
          exported, or training diverges.
    """
    settings = TrainerSettings.from_custom_config(fn_args.custom_config)
    runtime: Runtime = getattr(fn_args, "runtime", Runtime())
    if runtime.choice is not None:
        settings = settings.with_strategy(runtime.choice.strategy)
    strategy = open_strategy(settings)
    tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    data = load_data(fn_args, tft_output, settings, strategy, runtime.workers)

    def check(job: Job) -> None:
        if settings.model.is_custom and job.exported is not None and not job.start_step:
            try_export(job.exported, tft_output, data.problem, settings)

    start = time.monotonic()
    job = train_model(fn_args, settings, runtime, strategy, data, check=check)
    seconds = time.monotonic() - start
    export_model(job.result, tft_output, data.problem, settings, fn_args.serving_model_dir)
    record = describe(settings, runtime, job, seconds)
    if folds := settings.evaluate.folds:
        backups = os.path.join(_backup_directory(fn_args, runtime), FOLDS_FOLDER)
        record = remember_record(backups, record, runtime.writes_backup)
        record["folds"] = cross_validate(folds, fn_args, settings, runtime, strategy, data)
    write_record(fn_args.model_run_dir, record)


def train_model(
    fn_args: Any,
    settings: TrainerSettings,
    runtime: Runtime,
    strategy: tf.distribute.Strategy,
    data: TrainingData,
    prefix: str = "",
    check: Callable[[Job], None] = lambda job: None,
) -> Job:
    """Trains a model; what is chosen, such as the epoch, is chosen by a part of the train split.

    The eval split judges the model, so nothing is chosen by it. A small train split is learnt from
    whole once it is known for how many epochs.

    Args:
      fn_args: as of `run_fn`.
      settings: of the model and its training.
      runtime: of this process.
      strategy: that the model is trained under.
      data: what is to be learnt, and the examples.
      prefix: begins what it says of itself.
      check: called with the job before its first step.

    Raises:
      TrainingError: if the model cannot be built, or training diverges.
    """
    options: dict[str, Any] = {"prefix": prefix}
    if not is_grown(settings.model.kind):
        held_out = None
        if is_chosen(settings.train, data.train.steps):
            held_out = hold_out(data.train, data.evaluation)
        if held_out is None:
            options["length"] = Length()
        else:
            part = replace(data, train=held_out[0], evaluation=held_out[1])
            # Callbacks of the user's may choose by what they see, and checkpoints are gone on from.
            goes_once = settings.train.callbacks or settings.train.checkpoints
            if data.train.examples > ENOUGH or goes_once:
                data = part
            else:
                options["length"] = _find_length(
                    fn_args, settings, runtime, strategy, part, prefix, check
                )
    job = open_job(fn_args, settings, runtime, strategy, data, **options)
    check(job)
    job.run()
    return job


def _find_length(
    fn_args: Any,
    settings: TrainerSettings,
    runtime: Runtime,
    strategy: tf.distribute.Strategy,
    data: TrainingData,
    prefix: str,
    check: Callable[[Job], None],
) -> Length:
    """Trains on a part, and finds for how many epochs by the rest."""
    arguments, told = _in_folder(fn_args, runtime, CHOICE_FOLDER)
    job = open_job(arguments, settings, told, strategy, data, f"{prefix}first on a part, ")
    check(job)
    job.run()
    length = Length(job.best_epoch, data.evaluation.examples)
    del job
    # The model's layers have the names that a new process would give them.
    tf_keras.backend.clear_session()
    gc.collect()
    tf_keras.utils.set_random_seed(settings.train.seed)
    return length


def open_strategy(settings: TrainerSettings) -> tf.distribute.Strategy:
    """Seeds the process, sets its precision and builds the strategy, before all else."""
    tf_keras.utils.set_random_seed(settings.train.seed)
    tf_keras.mixed_precision.set_global_policy(settings.train.precision.value)
    strategy = build_strategy(settings.train.strategy)
    report_ready()
    return strategy


def cross_validate(
    count: int,
    fn_args: Any,
    settings: TrainerSettings,
    runtime: Runtime,
    strategy: tf.distribute.Strategy,
    data: TrainingData,
) -> dict[str, Any]:
    """Trains a model per fold as the model itself was trained, and measures it on the fold.

    Each begins from scratch: a base model may have seen the examples that are held out. Transform's
    analyzers, and the scale of a regression's label, are those of the whole train split.

    Returns:
      By metric its value on each fold, their mean and their standard deviation.

    Raises:
      TrainingError: there are fewer examples than folds, or training diverges.
    """

    def train_fold(fold: int, folds: Parts) -> dict[str, float]:
        """What is made for a fold is let go of with the end of the call: it may fill the memory."""
        number = fold + 1
        folder = os.path.join(FOLDS_FOLDER, str(number))
        arguments, told = _in_folder(fn_args, runtime, folder)
        arguments.base_model = None
        train, held_out = make_fold(data.train, data.evaluation, folds, fold)
        part = replace(data, train=train, evaluation=held_out)
        tf_keras.utils.set_random_seed(settings.train.seed)
        job = train_model(arguments, settings, told, strategy, part, f"fold {number} of {count}, ")
        return dict(job.measured if job.evaluation is held_out else measure(job.result, part))

    folds = deal(data.train, count, f"evaluate.folds: {count} folds")
    measured = []
    for fold in range(count):
        measured.append(train_fold(fold, folds))
        gc.collect()  # Keras's models refer to themselves.
    return summarize(measured)


def measure(model: tf_keras.Model, data: TrainingData) -> dict[str, float]:
    """What a trained model comes to on the examples that it is evaluated on, by metric."""
    strategy = model.distribute_strategy
    if model.optimizer is None:  # It was trained as a part of another one.
        with strategy.scope():
            metrics = data.problem.make_metrics()
            model.compile(loss=make_loss(data.problem, None), metrics=metrics)
    batches = data.evaluation.distribute(strategy)
    found = model.evaluate(batches, steps=data.evaluation.steps, verbose=0, return_dict=True)
    return {name: float(value) for name, value in found.items()}


def _in_folder(fn_args: Any, runtime: Runtime, folder: str) -> tuple[Any, Runtime]:
    """The arguments of a further training, whose files are in a folder of this one's."""
    arguments = copy.copy(fn_args)
    arguments.model_run_dir = os.path.join(fn_args.model_run_dir, folder)
    backup = os.path.join(_backup_directory(fn_args, runtime), folder)
    return arguments, runtime.model_copy(update={"backup_directory": backup, "continued_epochs": 0})


def _backup_directory(fn_args: Any, runtime: Runtime) -> str:
    return runtime.backup_directory or os.path.join(fn_args.model_run_dir, CHECKPOINTS_FOLDER)


def open_job(
    fn_args: Any,
    settings: TrainerSettings,
    runtime: Runtime,
    strategy: tf.distribute.Strategy,
    data: TrainingData,
    prefix: str = "",
    watchers: Sequence[tf_keras.callbacks.Callback] = (),
    length: Length | None = None,
) -> Job:
    """The training of the model that the settings name.

    Args:
      fn_args: as of `run_fn`.
      settings: of the model and its training.
      runtime: of this process.
      strategy: that the model is trained under.
      data: what is to be learnt, and the examples.
      prefix: begins what it says of itself.
      watchers: callbacks that see each epoch of a network; what is grown has none.
      length: of a network's training; None lets the examples that are evaluated on decide.
    """
    if not is_grown(settings.model.kind):
        return make_job(fn_args, settings, runtime, strategy, data, prefix, watchers, length)
    from trainer_module.families.supervised.trees.job import ForestJob

    directory = fn_args.model_run_dir
    return ForestJob(
        settings, strategy, data.problem, data.train, data.evaluation, directory, prefix
    )


def make_job(
    fn_args: Any,
    settings: TrainerSettings,
    runtime: Runtime,
    strategy: tf.distribute.Strategy,
    data: TrainingData,
    prefix: str = "",
    watchers: Sequence[tf_keras.callbacks.Callback] = (),
    length: Length | None = None,
) -> TrainingJob:
    """The network in the state of its latest backup, or with the base model's weights, if any.

    Raises:
      TrainingError: if the model cannot be built, or the base model not be read.
    """
    train = settings.train
    epochs = choose_epochs(train, data.train.steps)
    execution = train.steps_per_execution or steps_per_execution(data.train.steps * epochs)
    examples = data.train.global_batch_size

    def compile_(model: tf_keras.Model, settings: TrainerSettings) -> None:
        steps = data.train.steps
        compile_model(model, data.problem, settings, strategy, steps, execution, examples)

    model = make_network(data.problem, settings, strategy)
    phases = None
    if settings.model.begins_frozen:
        phases = Phases(model, data.problem, settings, strategy, epochs, compile_)
    else:
        compile_(model, settings)
    base_model = getattr(fn_args, "base_model", None)
    notes = []
    if settings.model.transfer and not settings.model.weights and not base_model:
        begun = "the network is frozen with random weights"
        begun = begun if phases else "all of the network is trained from scratch"
        notes = [f"transfer: {begun}; give model.weights"]
    if base_model:
        tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
        with strategy.scope():
            notes += warm_start(model, data.problem, tft_output, base_model)
    pruning = None if phases else pruning_of(model)
    whole_from = pruning.steps.first_whole_epoch(data.train.steps) if pruning else 0
    notes += pruning.notes if pruning else []
    if settings.optimize.quantize:
        from trainer_module.training.quantization import describe_quantized

        notes += describe_quantized(model)
    backup_directory = _backup_directory(fn_args, runtime)
    *callbacks, backup = build_callbacks(
        train,
        strategy,
        data.train.steps,
        fn_args.model_run_dir,
        backup_directory,
        runtime.backup_steps,
        runtime.writes_backup,
        f"{prefix}epoch",
        [*make_callbacks(settings), *watchers],
        phases.patient_from if phases else whole_from,
        whole_from,
        chooses=length is None,
    )
    start = phases.begin(backup, data.train, data.evaluation) if phases else backup.restore(model)
    last_epoch = epochs
    if length is not None and length.epochs:
        last_epoch = min(epochs, max(length.epochs, whole_from + 1))
        notes.append(
            f"epoch {length.epochs} was the best for {length.held_out:,} examples of the train "
            f"split that were held out; then all {data.train.examples:,} were learnt from as long"
        )
    # What has ended an earlier run is no end for one that goes on from its last checkpoint.
    is_over = start.ended and start.epoch > runtime.continued_epochs
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        copy = build_model(data.problem, settings, tf.distribute.get_strategy(), data.train.steps)
        # After the clock of the epochs, before all that reads what it finds.
        callbacks.insert(1, CopyOnCoordinator(copy, data.evaluation))
    job = TrainingJob(
        loop=LOOPS[train.loop],
        model=model,
        strategy=strategy,
        train=data.train,
        evaluation=data.evaluation,
        epochs=epochs,
        last_epoch=start.epoch if is_over else last_epoch,
        steps_per_execution=execution,
        callbacks=[*callbacks, backup],
        backup=backup,
        base_model=base_model,
        notes=notes,
        chooses=length is None,
        pruning=pruning,
    )
    return TransferJob.of(job, phases) if phases else job
