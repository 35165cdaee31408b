"""Learning rates over the epochs, as tf_keras schedules over the optimizer's steps."""

from __future__ import annotations

from typing import TypeAlias

import tf_keras

from trainer_module.settings import (
    CosineSchedule,
    ExponentialSchedule,
    StepSchedule,
    TrainSettings,
)

LearningRateSchedule: TypeAlias = tf_keras.optimizers.schedules.LearningRateSchedule


def build_schedule(train: TrainSettings, steps_per_epoch: int) -> float | LearningRateSchedule:
    """What the optimizer takes as its learning rate: a constant, or a function of the step."""
    match train.learning_rate:
        case StepSchedule() as steps:
            # The value changes after its boundary, so this is the last step of the epoch before.
            boundaries = [epoch * steps_per_epoch - 1 for epoch in steps.boundaries]
            return tf_keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, steps.values)
        case CosineSchedule() as cosine:
            return _cosine(cosine, train.epochs, steps_per_epoch)
        case ExponentialSchedule() as exponential:
            return tf_keras.optimizers.schedules.ExponentialDecay(
                exponential.initial, steps_per_epoch, exponential.decay
            )
        case constant:
            return constant


def _cosine(cosine: CosineSchedule, epochs: int, steps_per_epoch: int) -> LearningRateSchedule:
    decay_steps = (epochs - cosine.warmup_epochs) * steps_per_epoch
    if not cosine.warmup_epochs:
        return tf_keras.optimizers.schedules.CosineDecay(
            cosine.initial, decay_steps, alpha=cosine.final_fraction
        )
    return tf_keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps,
        alpha=cosine.final_fraction,
        warmup_target=cosine.initial,
        warmup_steps=cosine.warmup_epochs * steps_per_epoch,
    )
