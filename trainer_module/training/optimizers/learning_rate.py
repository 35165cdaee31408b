"""Learning rates over the epochs, as tf_keras schedules over the optimizer's steps."""

from __future__ import annotations

import math
from typing import TypeAlias

import tensorflow as tf
import tf_keras

from trainer_module.settings import (
    AUTO,
    CosineSchedule,
    ExponentialSchedule,
    LinearSchedule,
    StepSchedule,
    TrainSettings,
)
from trainer_module.settings.length import choose_epochs

LearningRateSchedule: TypeAlias = tf_keras.optimizers.schedules.LearningRateSchedule

USUAL_RATE, USUAL_EXAMPLES = 0.004, 256
"""A rate that Adam learns tables well by, and the examples of a step for which it was measured."""


def rate_for(examples: int) -> float:
    """The rate for steps of so many examples.

    The noise of Adam's steps stays the same where it grows with the root of the batch size
    (Malladi et al., 2022, arXiv:2205.10287).
    """
    return USUAL_RATE * math.sqrt(examples / USUAL_EXAMPLES)


def build_schedule(
    train: TrainSettings,
    steps_per_epoch: int,
    replicas: int = 1,
    examples_per_step: int = USUAL_EXAMPLES,
) -> float | LearningRateSchedule:
    """What the optimizer takes as its learning rate: a constant, or a function of the step.

    Args:
      train: the settings.
      steps_per_epoch: of the training.
      replicas: the rate is multiplied by them where `train.scale_learning_rate` asks for it.
      examples_per_step: of all replicas, which a rate of `auto` goes by.
    """
    factor = replicas if train.scale_learning_rate else 1
    match train.learning_rate:
        case StepSchedule() as steps:
            # The value changes after its boundary, so this is the last step of the epoch before.
            boundaries = [epoch * steps_per_epoch - 1 for epoch in steps.boundaries]
            values = [factor * value for value in steps.values]
            return tf_keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)
        case CosineSchedule() as cosine:
            epochs = choose_epochs(train, steps_per_epoch)
            initial = _initial(cosine, factor, examples_per_step)
            return _cosine(cosine, initial, epochs, steps_per_epoch)
        case LinearSchedule() as linear:
            total = choose_epochs(train, steps_per_epoch) * steps_per_epoch
            return WarmUpAndDown(factor * linear.initial, linear.warmup * total, total)
        case ExponentialSchedule() as exponential:
            return tf_keras.optimizers.schedules.ExponentialDecay(
                factor * exponential.initial, steps_per_epoch, exponential.decay
            )
        case constant:
            return factor * constant


@tf_keras.saving.register_keras_serializable("scopeline")
class WarmUpAndDown(LearningRateSchedule):
    """A straight line from 0 up to a rate, and another one down to 0 at the last step."""

    def __init__(self, highest: float, warmup_steps: float, steps: int) -> None:
        """Takes the highest rate, and the steps after which it and the end are reached."""
        self._config = {"highest": highest, "warmup_steps": warmup_steps, "steps": steps}

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of a step."""
        step = tf.cast(step, tf.float32)
        up, steps = self._config["warmup_steps"], self._config["steps"]
        # The first step has a rate as well: its gradient is as good as any.
        share = tf.minimum((step + 1) / max(up, 1.0), (steps - step) / max(steps - up, 1.0))
        return self._config["highest"] * tf.clip_by_value(share, 0.0, 1.0)

    def get_config(self) -> dict[str, float]:
        """What Keras makes it of again."""
        return self._config


def _initial(cosine: CosineSchedule, factor: float, examples_per_step: int) -> float:
    if cosine.initial == AUTO:
        return rate_for(examples_per_step)
    return factor * cosine.initial


def _cosine(
    cosine: CosineSchedule, initial: float, epochs: int, steps_per_epoch: int
) -> LearningRateSchedule:
    decay_steps = (epochs - cosine.warmup_epochs) * steps_per_epoch
    if not cosine.warmup_epochs:
        return tf_keras.optimizers.schedules.CosineDecay(
            initial, decay_steps, alpha=cosine.final_fraction
        )
    return tf_keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps,
        alpha=cosine.final_fraction,
        warmup_target=initial,
        warmup_steps=cosine.warmup_epochs * steps_per_epoch,
    )
