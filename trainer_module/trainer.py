"""The `run_fn` that TFX Trainer calls for networks: it trains and exports a model, and writes a
record of the training.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.data.loading import load_data
from trainer_module.export.saving import export_model, try_export
from trainer_module.record import describe, with_cross_validation
from trainer_module.runtime import write_record
from trainer_module.strategies import hooks_of
from trainer_module.strategies.coordinator import CopyOnCoordinator
from trainer_module.training.building import (
    build_model,
    check_model,
    create_variables,
    make_network,
    make_optimizer,
    make_training_loss,
    make_training_metrics,
)
from trainer_module.training.callbacks import EpochTimes, make_callbacks, open_checkpoint
from trainer_module.training.checkpoint import BestEpoch, CheckpointCallback, Position
from trainer_module.training.compression import describe_quantized, pruning_of, strip_pruning
from trainer_module.training.folds import Train, limit_evaluation, train_best_length
from trainer_module.training.loops import LOOPS
from trainer_module.training.phases import phases_of, remaining_phases, use_published_network
from trainer_module.training.plan import (
    TrainingInputs,
    TrainingPlan,
    TrainingResult,
    open_inputs,
    open_strategy,
)
from trainer_module.training.warm_start import warm_start

__all__ = ["build_model", "load_data", "open_strategy", "run_fn", "train"]


def run_fn(fn_args: Any) -> None:
    """Trains a network under the configured strategy and exports the best epoch.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes. Its `custom_config` holds the
        settings; its attribute `runtime` is a `WorkerContext`.

    Raises:
      TrainingError: the model, the strategy or the data cannot be used, the model cannot be
        exported, or training diverges.
    """
    inputs = open_inputs(fn_args)  # Opens the settings, then the strategy, then the data.
    train_network: Train = functools.partial(train_best_length, train)
    if inputs.settings.model.has_published_head:
        train_network = use_published_network  # A published classifier needs no training.
    started = time.monotonic()
    trained = train_network(replace(inputs, checks_export=True)).with_notes(inputs.notes)
    seconds = time.monotonic() - started
    problem, settings = inputs.data.problem, inputs.settings
    export_model(trained.model, inputs.tft_output, problem, settings, fn_args.serving_model_dir)
    record = describe(settings, inputs.runtime, trained, seconds)
    write_record(fn_args.model_run_dir, with_cross_validation(record, train_network, inputs))


def train(inputs: TrainingInputs, plan: TrainingPlan) -> TrainingResult:
    """Trains a network under a strategy, or resumes an interrupted training.

    Args:
      inputs: the settings, the strategy and the data.
      plan: the epochs and steps.

    Raises:
      TrainingError: the model cannot be built, the base model cannot be read, or training diverges.
    """
    settings, strategy, data = inputs.settings, inputs.strategy, limit_evaluation(inputs)
    checkpoint = open_checkpoint(inputs, plan)
    resumed_at = checkpoint.start  # The epoch and step that an interrupted training had reached.
    plan = plan.resumed_at(resumed_at, inputs.runtime.continued_epochs)
    # Under parameter servers, the coordinator evaluates and exports a copy of the model. Under
    # other strategies the copy is None.
    coordinator_copy = hooks_of(strategy).evaluate_with(
        lambda: build_model(data.problem, settings, tf.distribute.get_strategy(), plan.steps),
        lambda: data.evaluation.batches(tf.distribute.InputContext()),
    )
    with strategy.scope():
        model = _restart(inputs, plan) or make_network(data.problem, settings)
        notes = _set_initial_weights(model, inputs, coordinator_copy)
        phases, phase_notes = phases_of(model, inputs, plan)
    callbacks = make_callbacks(
        inputs, plan, checkpoint, coordinator_copy, stopping_start=phases[-1].first_epoch
    )
    for phase in remaining_phases(phases, resumed_at):
        with strategy.scope():
            phase.set_trainable()
            output = check_model(phase.model, data.problem, settings)
            if phase.model.optimizer is None:  # A user's builder may have compiled the model.
                phase.model.compile(
                    optimizer=make_optimizer(
                        phase.model, phase.settings, plan.steps, plan.examples_per_step
                    ),
                    loss=make_training_loss(phase.model, data.problem, settings),
                    metrics=make_training_metrics(data.problem, settings),
                    steps_per_execution=plan.steps_per_execution,
                )
            create_variables(phase.model, output)
        # A phase with a frozen network trains another model.
        if inputs.reuse and [p.model for p in phases] == [model] and not coordinator_copy:
            inputs.reuse.keep(model, plan.examples_per_step, plan.steps_per_execution)
        start = checkpoint.restore(model, **phase.other_models)
        # A user's model that cannot be exported fails before its first step.
        if inputs.checks_export and settings.model.is_custom and not plan.steps_until(start):
            exported = coordinator_copy.copy if coordinator_copy else model
            try_export(exported, inputs.tft_output, data.problem, settings)
        # The checkpoint callback restores the best epoch only at the end of the last phase.
        phase_plan = replace(plan, last_epoch=min(phase.end_epoch, plan.last_epoch))
        checkpoint.has_next_phase = phase_plan.last_epoch < plan.last_epoch
        phase_data = phase.prepare_data(data) if start.epoch < phase_plan.last_epoch else data
        LOOPS[settings.train.loop](phase.model, phase_data, phase_plan, start, callbacks)
        if phase.model.stop_training or not checkpoint.has_next_phase:
            break
    return _result_of(
        inputs,
        plan,
        resumed_at,
        model,
        coordinator_copy,
        callbacks,
        checkpoint,
        [*phase_notes, *notes],
    )


def _restart(inputs: TrainingInputs, plan: TrainingPlan) -> tf_keras.Model | None:
    """Returns the network of a first training with its initial values, if it can be reused."""
    reuse, batch = inputs.reuse, plan.examples_per_step
    if reuse is None or not reuse.fits(batch, plan.steps_per_execution):
        return None
    return reuse.restart(plan.steps, batch)


def _set_initial_weights(
    model: tf_keras.Model, inputs: TrainingInputs, coordinator_copy: CopyOnCoordinator | None
) -> list[str]:
    """Assigns the weights of the coordinator's copy, if there is one, and then those of the base
    model, if there is one; returns notes on the base model.
    """
    problem = inputs.data.problem
    if coordinator_copy or inputs.base_model:
        # A user's subclassed model has no weights before its first call.
        check_model(model, problem, inputs.settings)
    if coordinator_copy:
        coordinator_copy.initialize(model)
    if not inputs.base_model:
        return []
    return warm_start(model, problem, inputs.tft_output, inputs.base_model)


def _result_of(
    inputs: TrainingInputs,
    plan: TrainingPlan,
    resumed_at: Position,
    model: tf_keras.Model,
    coordinator_copy: CopyOnCoordinator | None,
    callbacks: Sequence[tf_keras.callbacks.Callback],
    checkpoint: CheckpointCallback,
    notes: Sequence[str],
) -> TrainingResult:
    """Removes the pruning masks from the model, and returns the result of the training."""
    history = checkpoint.history
    best = next(c.epoch for c in callbacks if isinstance(c, BestEpoch))
    # A callback may end training before any epoch could be the best.
    best = best or len(history.get("loss", ()))
    if pruning := pruning_of(model):
        notes = [*notes, *pruning.notes]
        strip_pruning(model)
    if inputs.settings.optimize.quantize:
        notes = [*notes, *describe_quantized(model)]
    # Metrics on a part of the eval split differ from metrics on the whole split.
    metrics = (
        {}
        if inputs.settings.train.validation_steps
        else {
            name.removeprefix("val_"): values[best - 1]
            for name, values in history.items()
            if name.startswith("val_")
        }
    )
    return TrainingResult(
        model=coordinator_copy.fetch() if coordinator_copy else model,
        train=inputs.data.train,
        evaluation=inputs.data.evaluation,
        history=history,
        best_epoch=best,
        epoch_seconds=next(c.seconds for c in callbacks if isinstance(c, EpochTimes)),
        plan=plan,
        start=resumed_at,
        base_model=inputs.base_model,
        measured=metrics,
        notes=[*notes, *plan.notes],
        extras={"sparsity": pruning.sparsity} if pruning else {},
        pruning=pruning,
    )
