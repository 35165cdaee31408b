"""The optimizer, with what makes it work under every strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from trainer_module.settings import OptimizerName, OptimizerSettings
from trainer_module.training.compression.optimizer import with_pruning
from trainer_module.training.optimizers.layer_decay import with_layer_decay
from trainer_module.training.optimizers.lean_steps import with_lean_steps
from trainer_module.training.optimizers.learning_rate import LearningRateSchedule

if TYPE_CHECKING:
    from trainer_module.training.compression.masks import PruningPlan

_CLASSES = {
    OptimizerName.ADAM: tf_keras.optimizers.Adam,
    OptimizerName.ADAMW: tf_keras.optimizers.AdamW,
    OptimizerName.SGD: tf_keras.optimizers.SGD,
    OptimizerName.RMSPROP: tf_keras.optimizers.RMSprop,
    OptimizerName.LION: tf_keras.optimizers.Lion,
}

WITHOUT_DECAY = [rf"(^|/){name}(:\d+)?$" for name in ("bias", "beta", "gamma")]
"""What Keras calls the variables that weight decay would only harm."""


def build_optimizer(
    settings: OptimizerSettings,
    rate: float | LearningRateSchedule,
    steps_per_epoch: int,
    pruning: PruningPlan | None = None,
) -> tf_keras.optimizers.Optimizer:
    """A new optimizer; call it in the scope of the strategy.

    Args:
      settings: which one.
      rate: the learning rate, or its schedule.
      steps_per_epoch: of the training.
      pruning: the weights that it makes zero, if any.
    """
    # What is not given is Keras's own choice, of a class that may not know the option.
    options = settings.model_dump(
        include={"momentum", "nesterov", "weight_decay"}, exclude_defaults=True
    )
    if settings.ema:
        # Otherwise what is evaluated and backed up would not be the average.
        options |= {
            "use_ema": True,
            "ema_momentum": settings.ema,
            "ema_overwrite_frequency": steps_per_epoch,
        }
    is_adam = settings.kind in (OptimizerName.ADAM, OptimizerName.ADAMW)
    kind = with_lean_steps(_CLASSES[settings.kind], is_adam and not settings.layer_decay)
    kind = with_layer_decay(kind) if settings.layer_decay else kind
    kind = with_pruning(kind) if pruning else kind
    optimizer = kind(rate, global_clipnorm=settings.clip_norm, **options)
    if settings.layer_decay:
        optimizer.decay_by_layer(settings.layer_decay)
    if pruning:
        optimizer.prune(pruning)
    optimizer.exclude_from_weight_decay(var_names=WITHOUT_DECAY)
    if callable(rate):
        # Keras's own variable for it has no aggregation, without which replicas that share
        # variables, those of CentralStorageStrategy, may not assign it.
        optimizer._current_learning_rate = tf.Variable(
            rate(0), trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
    return optimizer
