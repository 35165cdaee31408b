"""Builds optimizers and learning rate schedules from the settings of training."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import (
    RatesByVariable,
    let_replicas_share_rate,
    with_fused_updates,
)
from trainer_module.errors import TrainingError
from trainer_module.sections import call_own, count_needed, load_own
from trainer_module.settings import (
    AUTO,
    CosineSchedule,
    LinearSchedule,
    OptimizerName,
    StepSchedule,
    TrainSettings,
)
from trainer_module.settings.train import ExponentialSchedule, OptimizerSettings, choose_epochs
from trainer_module.training.compression import PruningPlan, with_pruning

LearningRateSchedule: TypeAlias = tf_keras.optimizers.schedules.LearningRateSchedule

_CLASSES = {
    OptimizerName.ADAM: tf_keras.optimizers.Adam,
    OptimizerName.ADAMW: tf_keras.optimizers.AdamW,
    OptimizerName.SGD: tf_keras.optimizers.SGD,
    OptimizerName.RMSPROP: tf_keras.optimizers.RMSprop,
    OptimizerName.LION: tf_keras.optimizers.Lion,
}

WITHOUT_DECAY = [rf"(^|/){name}(:\d+)?$" for name in ("bias", "beta", "gamma")]
"""The patterns of the names of variables without weight decay."""

BLOCK = re.compile(r"(?:^|/)bert_layer_(\d+)_")
"""The pattern that finds the number of the Transformer block in a variable's name."""
EMBEDDINGS = re.compile(r"(?:^|/)bert_(words|positions|types|embeddings)")
"""The pattern of the names of variables below the first block."""

RATE_KEY = "train.learning_rate"
"""The config key of a user's schedule, for messages."""

BASE_RATE, BASE_EXAMPLES = 0.004, 256
"""A learning rate of Adam for tables, and the number of examples per step in its measurement."""


def build_optimizer(
    settings: OptimizerSettings,
    rate: float | LearningRateSchedule,
    steps_per_epoch: int,
    pruning: PruningPlan | None = None,
) -> tf_keras.optimizers.Optimizer:
    """Returns a new optimizer; call the function in the scope of the strategy.

    Args:
      settings: the kind of the optimizer, and its options.
      rate: the learning rate, or its schedule.
      steps_per_epoch: the number of steps in an epoch.
      pruning: the pruning plan, or None without pruning.
    """
    # Not every class has every option, so only options that differ from the default are passed.
    options = settings.model_dump(
        include={"momentum", "nesterov", "weight_decay"}, exclude_defaults=True
    )
    if settings.ema:
        # Overwriting the weights makes evaluation and checkpoints use the average.
        options |= {
            "use_ema": True,
            "ema_momentum": settings.ema,
            "ema_overwrite_frequency": steps_per_epoch,
        }
    kind = with_fused_updates(_CLASSES[settings.kind])
    kind = with_layer_decay(kind) if settings.layer_decay else kind
    kind = with_pruning(kind) if pruning else kind
    optimizer = kind(rate, global_clipnorm=settings.clip_norm, **options)
    if settings.layer_decay:
        optimizer.decay_by_layer(settings.layer_decay)
    if pruning:
        optimizer.prune(pruning)
    optimizer.exclude_from_weight_decay(var_names=WITHOUT_DECAY)
    if callable(rate):
        let_replicas_share_rate(optimizer, rate)
    return optimizer


class LayerDecay(RatesByVariable):
    """Reduces the learning rate, and therefore the weight decay, from layer to layer downwards.

    The lower layers of a pretrained network suit any task, but the layers near the output must
    change more (Howard and Ruder, 2018, arXiv:1801.06146; ELECTRA, arXiv:2003.10555).
    """

    rates_used_for = "train.optimizer.layer_decay"

    def decay_by_layer(self, decay: float) -> None:
        """Multiplies the rate by `decay` for each layer between a variable and the top."""
        self._layer_decay, self._top = decay, 0

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Counts the layers and creates the optimizer's variables."""
        depths = (depth_of(variable.name) for variable in var_list)
        self._top = 1 + max((depth for depth in depths if depth is not None), default=-1)
        super().build(var_list)  # type: ignore[misc]

    def rate_factor(self, variable: tf.Variable) -> float:
        """Returns the factor of a variable's learning rate."""
        depth = depth_of(variable.name)
        return 1.0 if depth is None else float(self._layer_decay ** (self._top - depth))


def with_layer_decay(
    optimizer: type[tf_keras.optimizers.Optimizer],
) -> type[tf_keras.optimizers.Optimizer]:
    """Returns a subclass of an optimizer with `decay_by_layer`.

    The subclass keeps the optimizer's name, because Keras loads a saved optimizer by its name.
    """
    return type(optimizer.__name__, (LayerDecay, optimizer), {})


def depth_of(name: str) -> int | None:
    """Returns the number of layers below a variable, or None if the variable is above all
    blocks.
    """
    if block := BLOCK.search(name):
        return int(block[1]) + 1
    return 0 if EMBEDDINGS.search(name) else None


def rate_for(examples: int) -> float:
    """Returns the learning rate for a number of examples per step.

    The rate is proportional to the square root of the batch size, which keeps the noise of Adam's
    steps constant (Malladi et al., 2022, arXiv:2205.10287).
    """
    return BASE_RATE * math.sqrt(examples / BASE_EXAMPLES)


def build_schedule(
    train: TrainSettings,
    steps_per_epoch: int,
    replicas: int = 1,
    examples_per_step: int = BASE_EXAMPLES,
) -> float | LearningRateSchedule:
    """Returns the learning rate of the optimizer: a constant, or a function of the step.

    Args:
      train: the settings of the training.
      steps_per_epoch: the number of steps in an epoch.
      replicas: the number of replicas, which is the factor of the rate if
        `train.scale_learning_rate` is set.
      examples_per_step: the number of examples in a step of all replicas, for the rate `auto`.

    Raises:
      TrainingError: the user's function or schedule does not return rates.
    """
    factor = replicas if train.scale_learning_rate else 1
    match train.learning_rate:
        case str() as path:
            return _own_schedule(
                path, factor, choose_epochs(train, steps_per_epoch), steps_per_epoch
            )
        case StepSchedule() as steps:
            # In Keras the rate changes after the boundary, which is therefore the last step of the
            # previous epoch.
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


def _own_schedule(
    path: str, factor: int, epochs: int, steps_per_epoch: int
) -> LearningRateSchedule:
    """Returns the user's schedule as a function of the step.

    Args:
      path: the import path of a Keras schedule, of a function without arguments that returns such a
        schedule, or of a function from the epoch to a rate.
      factor: the factor of each rate.
      epochs: the number of epochs.
      steps_per_epoch: the number of steps in an epoch.

    Raises:
      TrainingError: the object cannot be called, or does not return a schedule or a rate.
    """
    loaded = load_own(RATE_KEY, path)
    if not isinstance(loaded, tf_keras.optimizers.schedules.LearningRateSchedule):
        required = 0 if isinstance(loaded, type) else count_needed(loaded)
        if required:
            rates = [factor * _rate_of_epoch(path, loaded, epoch) for epoch in range(epochs)]
            return RatesByEpoch(rates, steps_per_epoch)
        loaded = call_own(RATE_KEY, path, loaded)
    if not isinstance(loaded, tf_keras.optimizers.schedules.LearningRateSchedule):
        raise TrainingError(
            f"{RATE_KEY} {path!r} returns {_type_name(loaded)} without an argument; expected a "
            "tf_keras LearningRateSchedule, or a function of the epoch that returns a rate."
        )
    return loaded if factor == 1 else ScaledSchedule(loaded, factor)


def _rate_of_epoch(path: str, function: Callable[[int], Any], epoch: int) -> float:
    """Returns the rate of a user's function for an epoch, counted from 0."""
    rate = call_own(RATE_KEY, path, function, epoch)
    try:
        value = float(rate)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        shown = repr(rate) if isinstance(rate, (int, float, str, type(None))) else _type_name(rate)
        raise TrainingError(
            f"{RATE_KEY} {path!r} returns {shown} for epoch {epoch}; expected a number that is not "
            "negative."
        )
    return value


def _type_name(loaded: Any) -> str:
    kind = type(loaded)
    return f"a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")


@tf_keras.saving.register_keras_serializable("scopeline")
class RatesByEpoch(LearningRateSchedule):
    """A constant rate in each epoch; the last rate applies to all later epochs."""

    def __init__(self, rates: Sequence[float], steps_per_epoch: int) -> None:
        """Stores the rate of each epoch and the number of steps in an epoch."""
        self._config: dict[str, Any] = {"rates": [*rates], "steps_per_epoch": steps_per_epoch}

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the rate of a step as a float32 scalar."""
        rates = tf.constant(self._config["rates"], tf.float32)
        epoch = tf.cast(step, tf.int64) // self._config["steps_per_epoch"]
        return tf.gather(rates, tf.minimum(epoch, len(self._config["rates"]) - 1))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return self._config


@tf_keras.saving.register_keras_serializable("scopeline")
class ScaledSchedule(LearningRateSchedule):
    """A schedule that multiplies the rates of another schedule by a factor."""

    def __init__(self, schedule: LearningRateSchedule, factor: float) -> None:
        """Stores the schedule and the factor."""
        self._schedule, self._factor = schedule, factor

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the scaled rate of a step."""
        return self._factor * self._schedule(step)

    def get_config(self) -> dict[str, Any]:
        """Returns the serialized schedule and the factor."""
        schedule = tf_keras.optimizers.schedules.serialize(self._schedule)
        return {"schedule": schedule, "factor": self._factor}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ScaledSchedule:
        """Creates a schedule from the result of `get_config`."""
        return cls(tf_keras.optimizers.schedules.deserialize(config["schedule"]), config["factor"])


@tf_keras.saving.register_keras_serializable("scopeline")
class WarmUpAndDown(LearningRateSchedule):
    """A linear warm-up from 0 to a rate, followed by a linear decay to 0 at the last step."""

    def __init__(self, highest: float, warmup_steps: float, steps: int) -> None:
        """Stores the highest rate, the number of warm-up steps and the number of all steps."""
        self._config = {"highest": highest, "warmup_steps": warmup_steps, "steps": steps}

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the rate of a step."""
        step = tf.cast(step, tf.float32)
        warmup, steps = self._config["warmup_steps"], self._config["steps"]
        # The rate of the first step is above 0, because its gradient is as useful as later ones.
        share = tf.minimum((step + 1) / max(warmup, 1.0), (steps - step) / max(steps - warmup, 1.0))
        return self._config["highest"] * tf.clip_by_value(share, 0.0, 1.0)

    def get_config(self) -> dict[str, float]:
        """Returns the arguments of the constructor."""
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
