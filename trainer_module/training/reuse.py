"""A network that is built and traced once, and trained twice from the same initial values.

Tracing a network can take longer than training it on a small table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import learning_rate_of
from trainer_module.settings import TrainerSettings
from trainer_module.training.optimizers import build_schedule

Cosine = tf_keras.optimizers.schedules.CosineDecay

MAX_WEIGHTS = 5_000_000
"""The largest number of weights whose initial values are kept; three times as many are in memory.

The training of a larger network takes much longer than its tracing."""


class Reuse:
    """The network of a first training, which a second training resets instead of building its own.

    The two trainings may differ in their examples, and in the number of their epochs and steps.
    """

    def __init__(self, settings: TrainerSettings) -> None:
        """Stores the settings of both trainings."""
        self._settings = settings
        self._model: tf_keras.Model | None = None

    def keep(self, model: tf_keras.Model, batch: int, steps_per_execution: int) -> None:
        """Stores a compiled model and its initial values, if a second training can reuse it.

        Call the method before the first step.

        Args:
          model: the model, whose optimizer has its variables.
          batch: the number of examples in a step.
          steps_per_execution: the number of steps in a call of the graph.
        """
        if self._model is not None or not self._can_reset(model):
            return
        self._model, self._sizes = model, (batch, steps_per_execution)
        self._variables = [*model.variables, *model.optimizer.variables]
        self._values: list[np.ndarray] = [variable.numpy() for variable in self._variables]
        rate, _ = learning_rate_of(model)
        if callable(rate):
            self._decay_steps = tf.Variable(float(rate.decay_steps), trainable=False)
            rate.decay_steps = self._decay_steps  # The traced steps read the variable.

    def _can_reset(self, model: tf_keras.Model) -> bool:
        """Returns whether steps depend on the plan of a training only by the length of a cosine."""
        settings, (rate, _) = self._settings, learning_rate_of(model)
        return (
            not settings.model.is_custom
            and not (settings.train.optimizer.ema or settings.optimize.prune)
            and model.distribute_strategy.num_replicas_in_sync == 1
            and model.count_params() <= MAX_WEIGHTS
            and (not callable(rate) or (type(rate) is Cosine and rate.warmup_target is None))
        )

    def fits(self, batch: int, steps_per_execution: int) -> bool:
        """Returns whether a training with these sizes, as in `keep`, can reuse the stored model."""
        return self._model is not None and self._sizes == (batch, steps_per_execution)

    def restart(self, steps: int, batch: int) -> tf_keras.Model:
        """Returns the stored model with its initial values.

        Args:
          steps: the number of steps in an epoch of the second training.
          batch: the number of examples in a step.
        """
        model = self._model
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)
        rate, _ = learning_rate_of(model)
        if callable(rate):
            new: Any = build_schedule(self._settings.train, steps, examples_per_step=batch)
            self._decay_steps.assign(float(new.decay_steps))
            rate.decay_steps = new.decay_steps  # Keras saves a number, but no variable.
        return model
