"""Trainings of a network, whole, or up to the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tf_keras

from trainer_module.runtime import WorkerContext
from trainer_module.settings import Loop, TrainerSettings
from trainer_module.settings.model import load_trainer
from trainer_module.trainer import train
from trainer_module.training.plan import TrainingInputs, TrainingPlan, TrainingResult, open_inputs


def open_training(
    fn_args: Any, runtime: WorkerContext | None = None, **changes: Any
) -> TrainingInputs:
    """What a training is given; the examples that are looked at decide on its length."""
    return replace(open_inputs(fn_args, runtime=runtime or WorkerContext()), **changes)


def train_whole(
    inputs: TrainingInputs, extra_callbacks: Sequence[tf_keras.callbacks.Callback] = ()
) -> TrainingResult:
    """A training to its end."""
    return train(
        replace(inputs, extra_callbacks=extra_callbacks),
        TrainingPlan.of(inputs.settings, inputs.data),
    )


def begin(inputs: TrainingInputs) -> TrainingResult:
    """What there is before the first step: by the loop that may have no epoch."""
    settings = inputs.settings
    custom = settings.train.model_copy(update={"loop": Loop.CUSTOM})
    changed = settings.model_copy(update={"train": custom})
    plan = TrainingPlan.of(settings, inputs.data)
    return train(replace(inputs, settings=changed), replace(plan, last_epoch=0))


def run_fn(fn_args: Any) -> None:
    """The `run_fn` of the kind of model, as the graph names it."""
    kind = TrainerSettings.from_custom_config(fn_args.custom_config).model.kind
    load_trainer(kind).run_fn(fn_args)
