"""The record of a training, which becomes a part of `summary.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from trainer_module.data.input_pipeline import describe_imbalance
from trainer_module.errors import counted
from trainer_module.runtime import RECORD_FILE, WorkerContext, write_record
from trainer_module.settings import AUTO, TrainerSettings
from trainer_module.settings.train import choose_batch_size, choose_stopping
from trainer_module.training.folds import FOLDS_FOLDER, Train, cross_validate
from trainer_module.training.plan import TrainingInputs, TrainingPlan, TrainingResult

MAX_WORKER_RATIO = 2
"""The maximum ratio of the examples of two asynchronous workers without a note in the record."""


def describe(
    settings: TrainerSettings, runtime: WorkerContext, trained: TrainingResult, seconds: float
) -> dict[str, Any]:
    """Returns the record of a training as JSON; `history` has a value per epoch for each metric.

    Args:
      settings: the settings, with the strategy of the training.
      runtime: the runtime of this process.
      trained: the result of the training.
      seconds: the duration of the loop since the last interruption.
    """
    history, train = trained.history, trained.train
    epochs = len(history["loss"])
    steps = epochs * train.steps
    per_worker = settings.train.strategy.examples_per_worker(
        runtime.workers, steps * train.global_batch_size
    )
    record = make_record(
        settings,
        runtime,
        seconds,
        trained.step_seconds,
        train.global_batch_size,
        notes=trained.notes,
        replicas=train.replicas,
        global_batch_size=train.global_batch_size,
        epochs=epochs,
        best_epoch=trained.best_epoch,
        examples={"train": train.examples, "eval": trained.evaluation.examples},
        examples_per_worker=per_worker,
        source=train.source,
        steps=steps,
        warm_start=trained.base_model,
        resumed_at_step=trained.start_step,
        history=dict(history),
        **trained.extras,
    )
    if trained.plan is not None:
        record["notes"] += _notes_on_steps(settings, runtime, trained, trained.plan, per_worker)
    return record


def make_record(
    settings: TrainerSettings,
    runtime: WorkerContext,
    seconds: float,
    step_seconds: float,
    examples_per_step: int,
    notes: Sequence[str] = (),
    **more_keys: Any,
) -> dict[str, Any]:
    """Returns the record of a training of any family as JSON.

    Args:
      settings: the settings of the training.
      runtime: the runtime of this process.
      seconds: the duration of the training since the last interruption.
      step_seconds: the duration of a step.
      examples_per_step: the number of examples in a step.
      notes: notes for the reader of the summary.
      more_keys: further keys of the record, which override the keys from the settings.
    """
    auto = f"strategy auto: {settings.train.strategy.kind}, as {runtime.reason}"
    model_note = [settings.model_note] if settings.model_note else []
    return {
        "model": settings.model.kind,
        "strategy": settings.train.strategy.kind,
        "loop": settings.train.loop,
        "precision": settings.train.precision,
        "workers": runtime.workers,
        "restarts": list(runtime.restarts),
        "seconds": round(seconds, 3),
        "step_seconds": round(step_seconds, 6),
        "examples_per_second": round(examples_per_step / step_seconds if step_seconds else 0, 1),
        "notes": [*notes, *model_note, *([auto] if runtime.reason else [])],
        **more_keys,
    }


def remember_record(directory: str, record: dict[str, Any], writes: bool) -> dict[str, Any]:
    """Returns the record of the run that executed the last step.

    If this run resumed after the last step, the record is read from `directory`. Otherwise it is
    the record of this run, which is then stored in `directory`.

    Args:
      directory: the folder of the record, which exists as long as the checkpoints.
      record: the record of this run.
      writes: whether this process writes the record.
    """
    path = os.path.join(directory, RECORD_FILE)
    if record["resumed_at_step"] == record["steps"] and tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            earlier = json.load(file)
        return earlier | {key: record[key] for key in ("resumed_at_step", "restarts")}
    if writes:
        tf.io.gfile.makedirs(directory)
        write_record(directory, record)
    return record


def with_cross_validation(
    record: dict[str, Any], train: Train, inputs: TrainingInputs
) -> dict[str, Any]:
    """Returns the record of a training, with the cross-validation results if `evaluate.folds` is
    set.

    Args:
      record: the record of the training.
      train: the function that trained the model; it trains the model of each fold.
      inputs: the inputs of the training.

    Raises:
      TrainingError: there are fewer examples than folds, or training diverges.
    """
    count = inputs.settings.evaluate.folds
    if not count:
        return record
    backups = os.path.join(inputs.backup_directory, FOLDS_FOLDER)
    record = remember_record(backups, record, inputs.runtime.writes_backup)
    return record | {"folds": cross_validate(count, train, inputs)}


def add_restarts(model_run_dir: str, restarts: Sequence[str]) -> None:
    """Adds all restarts to an existing record, including restarts that the chief has not
    recorded.
    """
    path = os.path.join(model_run_dir, RECORD_FILE)
    if restarts and tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            record = json.load(file)
        write_record(model_run_dir, record | {"restarts": list(restarts)})


def _notes_on_steps(
    settings: TrainerSettings,
    runtime: WorkerContext,
    trained: TrainingResult,
    plan: TrainingPlan,
    per_worker: Sequence[int | None],
) -> Iterator[str]:
    """Yields notes on the length of a training and on the examples in its steps."""
    train = trained.train
    if trained.start.epoch >= runtime.continued_epochs > 0:
        yield (
            f"training continued from epoch {runtime.continued_epochs} of an earlier run, because "
            "the two runs differ only in the number of epochs"
        )
    if settings.train.epochs == AUTO:
        yield _note_on_epochs(settings, trained, plan)
    batch_size = choose_batch_size(settings.train, train.examples, train.replicas)
    if train.batch_size < batch_size:
        yield (
            f"the train split's {train.examples} examples are fewer than a global batch of "
            f"{batch_size * train.replicas}; a step uses {train.global_batch_size} examples"
        )
    elif (
        train.replicas > 1
        and not train.steps_per_epoch
        and train.examples % train.global_batch_size
    ):
        yield (
            f"the train split's {train.examples} examples are not a multiple of the global "
            f"batch of {train.global_batch_size}; the last step of an epoch repeats some examples"
        )
    problem = train.reader.problem
    if not settings.train.class_weights:
        counts = train.content.label_counts
        if note := describe_imbalance(problem.label, problem.classes, counts):
            yield note
    shares = train.examples_per_worker
    if train.source == "files" and len(set(shares)) > 1:
        yield (
            f"the workers read uneven shares of the examples, {', '.join(map(str, shares))}: "
            "training repeats the examples of a smaller share more often"
        )
    counts = [count or 0 for count in per_worker]
    if max(counts) > MAX_WORKER_RATIO * min(counts):
        yield (
            f"the workers ran uneven parts of the steps, with {', '.join(map(str, counts))} "
            "examples: some workers are slower or have been restarted"
        )


def _note_on_epochs(settings: TrainerSettings, trained: TrainingResult, plan: TrainingPlan) -> str:
    """Returns a note on the number of epochs that `epochs: auto` chose, and on the reason."""
    train, epochs = trained.train, len(trained.history["loss"])
    chosen = (
        f"epochs: auto trains up to {counted(plan.epochs, 'epoch')} of "
        f"{counted(train.steps, 'step')} with {counted(train.global_batch_size, 'example')}"
    )
    if train.rounds > 1:
        chosen += f"; each epoch repeats the train split {train.rounds} times"
    stopping = choose_stopping(settings.train, train.steps)
    if stopping is None or epochs == plan.epochs or not plan.chooses_epoch:
        return chosen
    return (
        f"{chosen}; training stopped after {counted(epochs, 'epoch')}, because the last "
        f"{counted(stopping.patience, 'epoch')} brought no improvement"
    )
