"""How long a training is: what `auto` means for `epochs`, `early_stopping` and `batch_size`.

All of it follows from the settings and the number of examples alone, so that every worker, and a
training that goes on after an interruption, comes to the same.
"""

from __future__ import annotations

import math

from trainer_module.settings import (
    AUTO,
    BatchSize,
    CosineSchedule,
    EarlyStoppingSettings,
    LinearSchedule,
    StepsBySize,
    StepSchedule,
    TrainSettings,
)

FEWEST_EPOCHS = 10
"""For data of which one epoch has thousands of steps."""

STEPS_OF_AN_EPOCH = 100
"""About so many: each epoch is evaluated and backed up, which takes as long."""

PATIENCE_STEPS = 500
"""Steps without an improvement after which there hardly ever is another."""

FEWEST_PATIENT_EPOCHS = 5
"""The evaluation loss of a few epochs may be worse by chance."""

STEPS_OF_SMALL_DATA = 4 * STEPS_OF_AN_EPOCH // 3
"""At most so many take all examples once: as many as an epoch has that shows them several times."""

SMALLEST_BATCH = 8
"""Gradients of fewer examples are mostly noise."""

STEPS_OF_A_ROUND = 16
"""So many at least take all examples once: small tables learn better from small batches."""


def choose_batch_size(train: TrainSettings, examples: int, replicas: int) -> int:
    """Examples per replica and step: a power of two where it follows from the data.

    Args:
      train: the settings.
      examples: of the train split.
      replicas: that share each step.
    """
    match train.batch_size:
        case int(given):
            return given
        case BatchSize(at_most=most):
            pass
        case _:
            most = BatchSize().at_most
    fitting = examples // (STEPS_OF_A_ROUND * replicas)
    return min(most, max(SMALLEST_BATCH, 2 ** (max(1, fitting).bit_length() - 1)))


def choose_rounds(train: TrainSettings, steps_per_round: int) -> int:
    """How often every example comes up in an epoch: once, unless the data decides.

    Args:
      train: the settings.
      steps_per_round: that take all examples once.
    """
    return max(1, round(STEPS_OF_AN_EPOCH / steps_per_round)) if train.epochs == AUTO else 1


def choose_epochs(train: TrainSettings, steps_per_epoch: int) -> int:
    """The epochs to train, at most.

    Args:
      train: the settings.
      steps_per_epoch: of the training.
    """
    if train.epochs != AUTO:
        return train.epochs
    match train.steps:
        case StepsBySize(small=small, large=large):
            steps = small if steps_per_epoch <= STEPS_OF_SMALL_DATA else large
        case steps:
            pass
    enough = max(FEWEST_EPOCHS, math.ceil(steps / steps_per_epoch))
    match train.learning_rate:
        case CosineSchedule(warmup_epochs=warmup):
            return max(enough, 2 * warmup)
        case StepSchedule(boundaries=[*_, last]):
            return max(enough, last + 1)
    return enough


def choose_stopping(train: TrainSettings, steps_per_epoch: int) -> EarlyStoppingSettings | None:
    """When to stop earlier; None for never.

    Args:
      train: the settings.
      steps_per_epoch: of the training.
    """
    match train.early_stopping:
        case EarlyStoppingSettings() as given:
            return given
        case None | False:
            return None
        case True:
            return EarlyStoppingSettings()
    # A rate that is planned to fall later on would not get there.
    is_planned = isinstance(train.learning_rate, (CosineSchedule, LinearSchedule, StepSchedule))
    if train.epochs != AUTO or is_planned:
        return None
    return EarlyStoppingSettings(
        patience=max(FEWEST_PATIENT_EPOCHS, math.ceil(PATIENCE_STEPS / steps_per_epoch))
    )


def is_chosen(train: TrainSettings, steps_per_epoch: int) -> bool:
    """Whether a training chooses by examples that it does not learn from.

    Args:
      train: the settings.
      steps_per_epoch: of the training.
    """
    return choose_stopping(train, steps_per_epoch) is not None or bool(train.callbacks)
