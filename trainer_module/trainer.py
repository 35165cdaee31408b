"""`run_fn`, what TFX Trainer runs: the data in, a trained network exported, a record of how."""

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
from trainer_module.record import describe, with_folds
from trainer_module.record_file import write_record
from trainer_module.strategies import hooks_of
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
from trainer_module.training.checkpoint import BestEpoch, CheckpointCallback
from trainer_module.training.folds import train_for_the_best_length
from trainer_module.training.loops import LOOPS
from trainer_module.training.phases import phases_left, phases_of
from trainer_module.training.plan import (
    Trained,
    TrainingInputs,
    TrainingPlan,
    open_inputs,
    open_strategy,
)
from trainer_module.training.pruning import pruning_of, strip_pruning
from trainer_module.training.warm_start import warm_start

__all__ = ["build_model", "load_data", "open_strategy", "run_fn", "train"]


def run_fn(fn_args: Any) -> None:
    """Trains under the configured strategy and exports the best epoch.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes. Its `custom_config` holds the
          settings; its attribute `runtime`, a `Runtime`, says what else this process has to know.

    Raises:
      TrainingError: if the model, the strategy or the data cannot be used, the model could not be
          exported, or training diverges.
    """
    inputs = open_inputs(fn_args)  # The settings, then the strategy, then the data.
    train_network = functools.partial(train_for_the_best_length, train)
    started = time.monotonic()
    trained = train_network(replace(inputs, tries_export=True))
    seconds = time.monotonic() - started
    problem, settings = inputs.data.problem, inputs.settings
    export_model(trained.model, inputs.tft_output, problem, settings, fn_args.serving_model_dir)
    record = describe(settings, inputs.runtime, trained, seconds)
    write_record(fn_args.model_run_dir, with_folds(record, train_network, inputs))


def train(inputs: TrainingInputs, plan: TrainingPlan) -> Trained:
    """Trains a network under a strategy, or goes on where that was interrupted.

    Args:
      inputs: the settings, the strategy and the data.
      plan: the epochs and steps.

    Raises:
      TrainingError: the model cannot be built, the base model not be read, or training diverges.
    """
    settings, strategy, data = inputs.settings, inputs.strategy, inputs.data
    checkpoint = open_checkpoint(inputs, plan)
    latest = checkpoint.start  # The epoch and step that an interrupted training had reached.
    plan = plan.going_on_from(latest, inputs.runtime.continued_epochs)
    with strategy.scope():
        model = make_network(data.problem, settings)
        notes = _begin_with_base_model(model, inputs)
        phases, told = phases_of(model, inputs, plan)
    # Under parameter servers the coordinator evaluates and exports a copy; otherwise it is None.
    copy = hooks_of(strategy).evaluate_with(
        lambda: build_model(data.problem, settings, tf.distribute.get_strategy(), plan.steps),
        lambda: data.evaluation.batches(tf.distribute.InputContext()),
    )
    callbacks = make_callbacks(inputs, plan, checkpoint, copy, patient_from=phases[-1].begins)
    for phase in phases_left(phases, latest):
        with strategy.scope():
            phase.enter()
            output = check_model(phase.model, data.problem, settings)
            if phase.model.optimizer is None:  # A builder of the user's may have compiled it.
                phase.model.compile(
                    optimizer=make_optimizer(
                        phase.model, phase.settings, plan.steps, plan.examples_per_step
                    ),
                    loss=make_training_loss(phase.model, data.problem, settings),
                    metrics=make_training_metrics(data.problem, settings),
                    steps_per_execution=plan.steps_per_execution,
                )
            create_variables(phase.model, output)
        start = checkpoint.restore(model, **phase.beside)
        # A model of the user's that cannot be exported fails before its first step.
        if inputs.tries_export and settings.model.is_custom and not plan.steps_until(start):
            exported = copy.copy if copy else model
            try_export(exported, inputs.tft_output, data.problem, settings)
        # The last phase ends with the best epoch restored, by the checkpoint's callback.
        part = replace(plan, last_epoch=min(phase.ends, plan.last_epoch))
        checkpoint.is_followed = part.last_epoch < plan.last_epoch
        taken = phase.take(data) if start.epoch < part.last_epoch else data
        LOOPS[settings.train.loop](phase.model, taken, part, start, callbacks)
        if phase.model.stop_training or not checkpoint.is_followed:
            break
    trained = _result_of(inputs, plan, model, callbacks, checkpoint)
    notes = [*told, *notes, *trained.notes]
    result = copy.fetch() if copy else model
    return replace(trained, model=result, start=latest, notes=notes)


def _begin_with_base_model(model: tf_keras.Model, inputs: TrainingInputs) -> list[str]:
    """Gives the model the weights of another one, if there is one; what was taken, for people."""
    if not inputs.base_model:
        return []
    # A model that is a class of the user's has no weights before it is called.
    check_model(model, inputs.data.problem, inputs.settings)
    return warm_start(model, inputs.data.problem, inputs.tft_output, inputs.base_model)


def _result_of(
    inputs: TrainingInputs,
    plan: TrainingPlan,
    model: tf_keras.Model,
    callbacks: Sequence[tf_keras.callbacks.Callback],
    checkpoint: CheckpointCallback,
) -> Trained:
    """What a training has come to, by its callbacks; takes the masks out of the optimizer."""
    history = checkpoint.history
    best = next(c.epoch for c in callbacks if isinstance(c, BestEpoch))
    # A callback may end training before any epoch could be the best.
    best = best or len(history.get("loss", ()))
    pruning = pruning_of(model)
    notes = [*pruning.notes] if pruning else []
    if pruning:
        strip_pruning(model)
    if inputs.settings.optimize.quantize:
        from trainer_module.training.quantization import describe_quantized

        notes += describe_quantized(model)
    measured = {
        name.removeprefix("val_"): values[best - 1]
        for name, values in history.items()
        if name.startswith("val_")
    }
    return Trained(
        model=model,
        train=inputs.data.train,
        evaluation=inputs.data.evaluation,
        history=history,
        best_epoch=best,
        epoch_seconds=next(c.seconds for c in callbacks if isinstance(c, EpochTimes)),
        plan=plan,
        base_model=inputs.base_model,
        measured=measured,
        notes=[*notes, *plan.notes],
        extras={"sparsity": pruning.sparsity} if pruning else {},
        pruning=pruning,
    )
