"""The section `train` of a config, and the values that are derived from the size of the data."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.sections import (
    DOCSTRING,
    NameOrPath,
    Registered,
    Settings,
    named_or_mapping,
    refuse_keys,
)
from trainer_module.strategies import STRATEGIES, processes_of, strategies_of_several_processes
from trainer_module.strategies.base import BaseStrategy, Processes, Strategy
from trainer_module.strategies.synchronous import DefaultStrategy

FEWEST_EPOCHS = 10
"""The minimum number of epochs of `epochs: auto`; it applies to data with thousands of steps per
epoch."""

STEPS_OF_AN_EPOCH = 100
"""The approximate number of steps per epoch of `epochs: auto`.

At the end of each epoch, the evaluation and the checkpoint take a roughly constant time, so shorter
epochs would be inefficient."""

PATIENCE_STEPS = 500
"""The number of steps without an improvement after which automatic early stopping ends training."""

FEWEST_PATIENT_EPOCHS = 5
"""The minimum patience in epochs, as the evaluation loss of a few epochs may be worse by chance."""

STEPS_OF_SMALL_DATA = 4 * STEPS_OF_AN_EPOCH // 3
"""The maximum number of steps per epoch for which `train.steps.small` applies.

An epoch that passes over the examples several times has at most this number of steps."""

SMALLEST_BATCH = 8
"""The minimum automatic batch size; the gradients of fewer examples vary too much."""

STEPS_OF_A_ROUND = 16
"""The minimum number of steps per pass over the examples, which limits the automatic batch size.

Models of small tables are better with small batches."""


def choose_batch_size(train: TrainSettings, examples: int, replicas: int) -> int:
    """Returns the number of examples per replica and step.

    Below its limit, an automatic batch size is a power of two.

    Args:
      train: the settings.
      examples: the number of examples in the train split.
      replicas: the number of replicas that share each step.

    Raises:
      TrainingError: the replicas cannot divide the global batch of the config evenly.
    """
    match train.batch_size:
        case int(size):
            return size
        case BatchSize(of_all_replicas=int(total)):
            return share_batch(total, replicas)
        case BatchSize(at_most=limit):
            pass
        case _:
            limit = BatchSize().at_most
    fitting = examples // (STEPS_OF_A_ROUND * replicas)
    return min(limit, max(SMALLEST_BATCH, 2 ** (max(1, fitting).bit_length() - 1)))


def share_batch(total: int, replicas: int) -> int:
    """Returns the number of examples per replica of a global batch.

    Args:
      total: the number of examples of the global batch.
      replicas: the number of replicas.

    Raises:
      TrainingError: the replicas cannot divide the batch evenly.
    """
    share, remainder = divmod(total, replicas)
    if remainder:
        lower = share * replicas
        suggestions = [str(size) for size in (lower, lower + replicas) if size]
        raise TrainingError(
            f"train.batch_size.global is {total}, which {replicas} replicas cannot share evenly; "
            f"give a multiple of {replicas}, such as {' or '.join(suggestions)}."
        )
    return share


def choose_rounds(train: TrainSettings, steps_per_round: int) -> int:
    """Returns the number of passes over the examples per epoch.

    The number is 1 if the config gives `epochs` or `steps_per_epoch`; otherwise an epoch has about
    STEPS_OF_AN_EPOCH steps.

    Args:
      train: the settings.
      steps_per_round: the number of steps per pass.
    """
    if train.epochs != AUTO or train.steps_per_epoch:
        return 1
    return max(1, round(STEPS_OF_AN_EPOCH / steps_per_round))


def choose_epochs(train: TrainSettings, steps_per_epoch: int) -> int:
    """Returns the maximum number of epochs of a training.

    Args:
      train: the settings.
      steps_per_epoch: the number of steps per epoch.
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
    """Returns the settings of early stopping, or None for no early stopping.

    Args:
      train: the settings.
      steps_per_epoch: the number of steps per epoch.
    """
    match train.early_stopping:
        case EarlyStoppingSettings() as settings:
            return settings
        case None | False:
            return None
        case True:
            return EarlyStoppingSettings()
    # Early stopping could end the training before the learning rate reaches the end of its decay.
    decaying = (CosineSchedule, LinearSchedule, StepSchedule, str)
    if train.epochs != AUTO or isinstance(train.learning_rate, decaying):
        return None
    return EarlyStoppingSettings(
        patience=max(FEWEST_PATIENT_EPOCHS, math.ceil(PATIENCE_STEPS / steps_per_epoch))
    )


def needs_held_out(train: TrainSettings, steps_per_epoch: int) -> bool:
    """Returns whether training needs held-out examples, for early stopping or the user's callbacks.

    Args:
      train: the settings.
      steps_per_epoch: the number of steps per epoch.
    """
    return choose_stopping(train, steps_per_epoch) is not None or bool(train.callbacks)


_STRATEGIES_DOC = (
    "The tf.distribute strategies by name; `auto` selects a strategy by the machine and TF_CONFIG."
)


def _strategy_type(strategies: dict[str, str]) -> Any:
    return named_or_mapping("Strategy", _STRATEGIES_DOC, strategies)


StrategySettings: TypeAlias = Annotated[BaseStrategy, Registered(STRATEGIES, _strategy_type)]


def _describe_cluster(schema: dict[str, Any]) -> None:
    """Writes the descriptions of the section and of `parameter_servers`, which name strategies."""
    several = [f"`{kind}`" for kind in strategies_of_several_processes()]
    names = enumerate_names(several, "and")
    schema["description"] = f"The processes in which the strategies {names} train."
    with_servers = [f"`{k}`" for k in STRATEGIES if processes_of(k) is Processes.SERVERS]
    servers = schema["properties"]["parameter_servers"]
    servers["description"] = f"{DOCSTRING} for {enumerate_names(with_servers, 'and')}."


class ClusterSettings(Settings):
    """The processes of a strategy that trains in several processes."""

    model_config = ConfigDict(json_schema_extra=_describe_cluster)

    workers: PositiveInt = 2
    """The number of processes that compute gradients."""
    parameter_servers: PositiveInt = 1
    """The number of processes that store the variables,"""
    launcher: Literal["local", "kubernetes"] = "local"
    """`local` starts the processes on this machine; `kubernetes` starts them as pods of a pipeline
    on Kubeflow. If TF_CONFIG is set, nothing is started: training joins the cluster in TF_CONFIG.
    """
    start_timeout: PositiveFloat = 300.0
    """The maximum time in seconds from the start of all processes until each process responds."""


def as_kind(value: Any) -> Any:
    """Returns `{kind: value}` for a string, any other value unchanged."""
    return {"kind": value} if isinstance(value, str) else value


class StepSchedule(Settings):
    """A piecewise constant learning rate: `values[i]` until epoch `boundaries[i]`."""

    schedule: Literal["steps"]
    values: list[PositiveFloat] = Field(min_length=1)
    """The learning rates: one value more than `boundaries` has."""
    boundaries: list[PositiveInt]
    """The epochs, counted from 0, at which the next learning rate begins, in ascending order."""

    @field_validator("boundaries")
    @classmethod
    def _ascending(cls, boundaries: list[int]) -> list[int]:
        if any(a >= b for a, b in itertools.pairwise(boundaries)):
            raise ValueError("the epochs must be in ascending order, such as [3, 7]")
        return boundaries

    @field_validator("boundaries")
    @classmethod
    def _one_fewer(cls, boundaries: list[int], info: Any) -> list[int]:
        values = info.data.get("values")
        if values is not None and len(boundaries) != len(values) - 1:
            raise ValueError(
                f"{len(values)} values need {len(values) - 1} boundaries, found {len(boundaries)}"
            )
        return boundaries


class CosineSchedule(Settings):
    """Cosine decay over all epochs, after an optional linear warm-up (arXiv:1608.03983)."""

    schedule: Literal["cosine"]
    initial: PositiveFloat | Literal["auto"]
    """The learning rate at the start of the decay. `auto`: 0.004 for a global batch of 256
    examples, and proportional to the square root of the global batch size."""
    final_fraction: float = Field(default=0.0, ge=0, le=1)
    """The learning rate at the end, as a fraction of `initial`."""
    warmup_epochs: int = Field(default=0, ge=0)
    """The number of epochs in which the learning rate rises from 0 to `initial`."""


class LinearSchedule(Settings):
    """A linear warm-up and then a linear decay to 0 at the end of the last epoch, as for BERT."""

    schedule: Literal["linear"]
    initial: PositiveFloat
    """The learning rate at the end of the warm-up."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps in which the learning rate rises from 0 to `initial`."""


class ExponentialSchedule(Settings):
    """Exponential decay: each step lowers the learning rate, by the factor `decay` per epoch."""

    schedule: Literal["exponential"]
    initial: PositiveFloat
    """The learning rate of the first step."""
    decay: float = Field(gt=0, lt=1)
    """The learning rate after an epoch, as a fraction of the learning rate before it."""


_CONSTANT_RATE, _OWN_RATE = "a number", "the import path of a function"


def _learning_rate_kind(value: Any) -> str:
    """Returns the tag of the type in `LearningRate` that validates a value of the config."""
    if isinstance(value, Mapping):
        return f"schedule: {value.get('schedule')}"
    if isinstance(value, str) and not _is_number(value):
        return _OWN_RATE
    return f"schedule: {value.schedule}" if hasattr(value, "schedule") else _CONSTANT_RATE


def _is_number(text: str) -> bool:
    """Returns whether a string is a number, as in quotes."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_own_rate(path: str) -> str:
    """Returns the import path; raises ValueError if it is the name of a schedule."""
    if path in ("steps", "cosine", "linear", "exponential"):
        raise ValueError(
            f"give the schedule with its options, {{schedule: {path}, ...}}, or the import path "
            "of a schedule of yours, which has a dot"
        )
    return path


_IMPORT_PATH = WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z_][\w.]*\.\w+$"})

LearningRate = Annotated[
    Annotated[PositiveFloat, Tag(_CONSTANT_RATE)]
    | Annotated[str, AfterValidator(_check_own_rate), _IMPORT_PATH, Tag(_OWN_RATE)]
    | Annotated[StepSchedule, Tag("schedule: steps")]
    | Annotated[CosineSchedule, Tag("schedule: cosine")]
    | Annotated[LinearSchedule, Tag("schedule: linear")]
    | Annotated[ExponentialSchedule, Tag("schedule: exponential")],
    Discriminator(_learning_rate_kind),
]


@dataclass(frozen=True)
class LossSpec:
    """The properties of a loss by which a config is checked, without TensorFlow."""

    tasks: tuple[str, ...]
    """The names of the tasks that the loss supports."""
    reads: tuple[str, ...] = ()
    """The keys of LossSettings that the loss reads, besides `kind`."""
    description: str = ""
    """A sentence about the loss, which editors show."""


_CLASSES = ("binary", "multiclass", "ordinal")
_NUMBERS = ("regression", "count")
LOSSES = {
    "cross_entropy": LossSpec(
        _CLASSES,
        reads=("label_smoothing",),
        description="The cross-entropy, the default for classes.",
    ),
    "focal": LossSpec(
        _CLASSES,
        reads=("gamma", "label_smoothing"),
        description="The focal loss, for rare classes (arXiv:1708.02002).",
    ),
    "poisson": LossSpec(("count",), description="The Poisson loss, the default for counts."),
    "mse": LossSpec(_NUMBERS, description="The mean squared error, the default for numbers."),
    "mae": LossSpec(_NUMBERS, description="The mean absolute error."),
    "huber": LossSpec(
        _NUMBERS,
        reads=("delta",),
        description="The squared error for small errors, the absolute error for large ones.",
    ),
}
"""The losses by name; the first loss that supports a task is the task's default."""


def losses_for(task: str) -> list[str]:
    """Returns the names of the losses that support a task."""
    return [name for name, spec in LOSSES.items() if task in spec.tasks]


def is_usual(loss: str, task: str) -> bool:
    """Returns whether a loss is the default of a task; an empty name stands for the default."""
    return loss in ("", losses_for(task)[0])


LossName = Annotated[
    str, NameOrPath(lambda: {name: spec.description for name, spec in LOSSES.items()})
]
"""The name of a loss, or the import path of one."""


def _refuse_unread_keys(schema: dict[str, Any]) -> None:
    defaults = {key: value.get("default") for key, value in schema["properties"].items()}
    for name, spec in LOSSES.items():
        unread = set(defaults) - {"kind", *spec.reads}
        refuse_keys(schema, [name], {key: defaults[key] for key in sorted(unread)})


class LossSettings(Settings):
    """A loss with its options."""

    model_config = ConfigDict(json_schema_extra=_refuse_unread_keys)

    kind: LossName
    """The name of a loss, or the import path of a loss of yours: a function of labels and
    predictions that returns a loss per example, or a subclass of `tf_keras.losses.Loss`."""
    gamma: NonNegativeFloat = 2.0
    """focal: the focusing parameter; the larger it is, the less count examples that the model
    predicts with confidence (arXiv:1708.02002)."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """cross_entropy, focal: the share of the label's probability that is distributed evenly over
    all classes."""
    delta: PositiveFloat | None = None
    """huber: the error above which the loss grows linearly. Default: the standard deviation of the
    label."""
    options: dict[str, Any] = {}
    """The arguments of your subclass of `tf_keras.losses.Loss`."""

    @property
    def is_custom(self) -> bool:
        """Whether `kind` is an import path."""
        return "." in self.kind

    @model_validator(mode="after")
    def _options_are_read(self) -> LossSettings:
        reads = LOSSES[self.kind].reads if self.kind in LOSSES else ()
        for key, field in LossSettings.model_fields.items():
            if key in ("kind", "options") or getattr(self, key) == field.default or key in reads:
                continue
            readers = [name for name, spec in LOSSES.items() if key in spec.reads]
            raise ValueError(
                f"{key} is a key of {enumerate_names(readers, 'and')}; the loss is {self.kind}"
            )
        if self.options and not self.is_custom:
            raise ValueError(
                f"options are the arguments of a loss class of yours; the loss is {self.kind}"
            )
        return self


AnyLoss = Annotated[
    LossSettings, BeforeValidator(as_kind, json_schema_input_type=LossName | LossSettings)
]


class OptimizerName(StrEnum):
    """The names of the optimizers."""

    ADAM = "adam"
    """Steps by running means of the gradient and of its square (arXiv:1412.6980)."""
    ADAMW = "adamw"
    """Adam with a weight decay that is separate from the gradient (arXiv:1711.05101)."""
    SGD = "sgd"
    """Steps in the direction of the gradient, with optional momentum."""
    RMSPROP = "rmsprop"
    """Steps divided by a running mean of the gradient's size."""
    LION = "lion"
    """Steps by the sign of the momentum (arXiv:2302.06675)."""


READERS = {
    "momentum": (OptimizerName.SGD, OptimizerName.RMSPROP),
    "nesterov": (OptimizerName.SGD,),
}
"""The keys of OptimizerSettings that not every optimizer reads, with the optimizers that read them.
"""


def _refuse_unread_options(schema: dict[str, Any]) -> None:
    for key, readers in READERS.items():
        others = [name.value for name in OptimizerName if name not in readers]
        refuse_keys(schema, others, {key: schema["properties"][key]["default"]})


class OptimizerSettings(Settings):
    """An optimizer with its options."""

    model_config = ConfigDict(json_schema_extra=_refuse_unread_options)

    kind: OptimizerName = OptimizerName.ADAM
    """The name of the optimizer."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """sgd, rmsprop: the momentum, the share of each step that is added to the next step."""
    nesterov: bool = False
    """sgd: whether to use Nesterov momentum, which computes the gradient after the momentum step.
    """
    weight_decay: float | None = Field(default=None, ge=0)
    """The weight decay: each step multiplies the weights by 1 - `weight_decay` times the learning
    rate. Biases and the weights of normalisation layers do not decay. Default: 0.004 for adamw,
    otherwise no decay."""
    clip_norm: PositiveFloat | None = None
    """The maximum global norm of the gradients; larger gradients are scaled down to this norm.
    Default: no limit."""
    layer_decay: float | None = Field(default=None, gt=0, le=1)
    """bert: the factor by which the learning rate falls from each block to the block below; the
    output layer has `learning_rate`. Default: 0.9 if `model.weights` is set, otherwise 1."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """The decay of an exponential moving average of the weights, such as 0.99. At the end of each
    epoch, the average replaces the weights. Default: no average."""

    @model_validator(mode="after")
    def _options_are_read(self) -> OptimizerSettings:
        for key, readers in READERS.items():
            if getattr(self, key) and self.kind not in readers:
                raise ValueError(
                    f"{key} is a key of {enumerate_names(readers, 'and')}; the optimizer is "
                    f"{self.kind}"
                )
        return self


AnyOptimizer = Annotated[
    OptimizerSettings,
    BeforeValidator(as_kind, json_schema_input_type=OptimizerName | OptimizerSettings),
]


class AugmentSettings(Settings):
    """Random changes of pictures. They differ in every training step; evaluation and the exported
    model do not apply them.
    """

    flip: Literal["horizontal", "vertical", "both"] | None = None
    """The mirroring of pictures, with a probability of one half: `horizontal` swaps left and right,
    `vertical` swaps top and bottom, `both` swaps them independently. Default: no mirroring."""
    rotate: float = Field(default=0.0, ge=0, le=0.5)
    """The maximum rotation, as a share of a full turn, in both directions: 0.05 is 18 degrees."""
    shift: float = Field(default=0.0, ge=0, lt=1)
    """The maximum shift, as a share of the picture's height and width, in both directions."""
    zoom: float = Field(default=0.0, ge=0, lt=1)
    """The maximum change of scale, in both directions: 0.1 is 10 percent."""
    contrast: float = Field(default=0.0, ge=0, lt=1)
    """The maximum change of contrast, in both directions: with 0.1, differences from the picture's
    mean grow or shrink by up to 10 percent."""
    cutout: NonNegativeInt = 0
    """The side in pixels of a square that is filled with the picture's mean (DeVries and Taylor,
    2017, arXiv:1708.04552). 0: no square."""
    mixup: float = Field(default=0.0, ge=0, le=10)
    """The parameter of mixup, which mixes each picture and its label with another picture and its
    label in shares drawn from Beta(mixup, mixup) (Zhang et al., 2018, arXiv:1710.09412). A common
    value is 0.2. 0: no mixup."""

    @model_validator(mode="after")
    def _changes_something(self) -> AugmentSettings:
        if not any(dict(self).values()):
            raise ValueError(
                "all values are 0, which changes nothing; give at least one of flip, rotate, "
                "shift, zoom, contrast, cutout and mixup, or leave augment out"
            )
        return self

    @property
    def moves(self) -> bool:
        """Whether rotations, shifts or zooms are set."""
        return bool(self.rotate or self.shift or self.zoom)


class CrossValidation(Settings):
    """Cross-validation on the train split, which measures how much the metrics vary."""

    folds: int | None = Field(default=None, ge=2)
    """The number of folds of cross-validation. For each fold of the train split, an additional
    model is trained without the fold and measured on it. Default: no cross-validation."""


AUTO: Literal["auto"] = "auto"
"""The value of keys whose setting is derived from the data."""

NOT_IN_CACHE_KEY: dict[str, Any] = {
    "retries": True,
    "backup_steps": True,
    "cluster": {"launcher": True, "start_timeout": True},
}
"""The keys of TrainSettings that do not affect the trained model and stay out of TFX's cache key.
"""

READ_WITHOUT_STEPS = ("class_weights", "early_stopping", "retries", "run_fn", "seed", "strategy")
"""The keys of TrainSettings that also apply to models without steps, such as trees."""


class Loop(StrEnum):
    """The training loop: Keras's `fit`, or the explicit loop in `trainer_module/training/`."""

    FIT = "fit"
    """Keras's own loop."""
    CUSTOM = "custom"
    """An explicit loop in `trainer_module/training/`, which you can change."""


class Precision(StrEnum):
    """The data type of the layers' computations; variables are always float32."""

    FLOAT32 = "float32"
    """32 bits, on every device."""
    MIXED_FLOAT16 = "mixed_float16"
    """16 bits with loss scaling, for GPUs."""
    MIXED_BFLOAT16 = "mixed_bfloat16"
    """16 bits with the range of 32 bits, for TPUs and newer CPUs and GPUs."""


class EarlyStoppingSettings(Settings):
    """Early stopping by the loss on a held-out part of the train split."""

    patience: PositiveInt = 3
    """The number of epochs without an improvement after which training stops."""
    min_delta: float = Field(default=0.0, ge=0)
    """The smallest decrease of the loss that counts as an improvement."""


class BatchSize(Settings):
    """The upper limit of an automatic batch size, or the global batch size."""

    at_most: PositiveInt = 64
    """The maximum number of examples per replica and step; a small train split gets fewer."""
    of_all_replicas: PositiveInt | None = Field(default=None, alias="global")
    """The global batch size, which is divided evenly among the replicas and cannot be given with
    `at_most`. For the strategy `parameter_server`, `global` is the batch size of each worker."""

    @model_validator(mode="after")
    def _has_one_key(self) -> BatchSize:
        # Serialised settings contain all keys, so a default value counts as absent.
        if self.of_all_replicas and self.at_most != type(self).model_fields["at_most"].default:
            raise ValueError("found both at_most and global; remove one of the two keys")
        return self


class StepsBySize(Settings):
    """The number of training steps for small and for large data."""

    small: PositiveInt
    """The number of steps if a pass over the examples takes at most 133 steps."""
    large: PositiveInt
    """The number of steps if a pass over the examples takes more than 133 steps."""


def _check_name_pattern(name: str) -> str:
    """Returns the pattern; raises ValueError unless it gives each epoch a different file name."""
    try:
        names = {name.format(epoch=epoch) for epoch in range(1, 101)}
    except (IndexError, KeyError, ValueError):
        names = set()
    if len(names) < 100 or not all(re.fullmatch(r"[\w.=-]*\w", name) for name in names):
        raise ValueError(
            "give a file name that contains the epoch, such as ckpt_{epoch} or cp-{epoch:04d}"
        )
    return name


class CheckpointSettings(Settings):
    """The checkpoints that are kept after training."""

    keep: PositiveInt = 3
    """The number of last epochs whose checkpoints are kept, in addition to the best epoch."""
    every: PositiveInt | Literal["best"] | None = None
    """The interval in epochs between kept checkpoints; cannot be given with `keep`. The best and
    the last epoch are also kept. `best`: only the best epoch is kept."""
    weights_only: bool = False
    """Whether to omit the optimizer's state. Without this state, a training with more `epochs`
    cannot resume."""
    name: Annotated[str, AfterValidator(_check_name_pattern)] | None = None
    """The pattern of the checkpoints' names, such as `ckpt_{epoch}` and `cp-{epoch:04d}`. Default:
    `ckpt-` and the number of steps."""

    @model_validator(mode="after")
    def _has_one_key(self) -> CheckpointSettings:
        # Serialised settings contain all keys, so a default value counts as absent.
        if self.every and self.keep != type(self).model_fields["keep"].default:
            raise ValueError("found both keep and every; remove one of the two keys")
        return self

    def epochs(self, ended: int, best: int) -> set[int]:
        """Returns the epochs, counted from 1, whose checkpoints are kept.

        Args:
          ended: the number of finished epochs.
          best: the number of the best epoch, or 0 if no epoch has been evaluated.
        """
        if self.every == "best":
            return {best}
        if self.every:
            return {best, ended, *range(self.every, ended + 1, self.every)}
        return {best, *range(max(1, ended - self.keep + 1), ended + 1)}


class TensorBoardSettings(Settings):
    """The contents of TensorBoard besides the curves of losses, metrics and the learning rate."""

    graph: bool = False
    """Whether to show the model's graph of layers and operations."""
    every: Literal["epoch", "batch"] = "epoch"
    """`epoch`: the curves have a point per epoch. `batch`: they also have a point per step, with
    the mean loss and metrics since the start of the epoch, or with `loop: custom` the loss of the
    step."""
    profile: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)] | None = None
    """The first and the last step to profile, counted from 1 at the start or the resumption of
    training: `[10, 20]`. Default: none."""

    @field_validator("profile")
    @classmethod
    def _in_order(cls, profile: list[int] | None) -> list[int] | None:
        if profile and profile[0] > profile[1]:
            raise ValueError("give the first and the last step in this order, such as [10, 20]")
        return profile

    @property
    def looks_at_steps(self) -> bool:
        """Whether the TensorBoard callback has to be called after each step."""
        return self.every == "batch" or self.profile is not None


def _name_strategies(schema: dict[str, Any]) -> None:
    """Writes the description of `cluster`, which names the strategies that use a cluster."""
    several = enumerate_names([f"`{kind}`" for kind in strategies_of_several_processes()], "and")
    schema["description"] = f"For {several}; {DOCSTRING}"


def _weights_by_name(value: Any) -> Any:
    """Returns class weights whose keys are strings, any other value unchanged.

    Raises:
      ValueError: a key is a boolean, as YAML reads `yes` and `no` without quotes.
    """
    if not isinstance(value, dict):
        return value
    for name in value:
        if isinstance(name, bool):
            raise ValueError(
                f"found the class {name}, a boolean; write the name of the class in quotes, as in "
                '`"yes": 2`'
            )
    return {str(name): weight for name, weight in value.items()}


ClassWeights = Annotated[
    Literal["balanced"] | dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]],
    BeforeValidator(_weights_by_name),
]


class TrainSettings(Settings):
    """The training of the model."""

    epochs: PositiveInt | Literal["auto"] = AUTO
    """The number of epochs. `auto`: the number that results from `steps`."""
    steps: PositiveInt | StepsBySize = 8000
    """The number of training steps with `epochs: auto`, which trains for at least 10 epochs.
    Default of the model `tabular`: `{small: 2000, large: 8000}`, where `large` applies if a pass
    over the examples takes more than 133 steps. Default of the model `convnet`: 1000."""
    batch_size: PositiveInt | BatchSize | Literal["auto"] = AUTO
    """The number of examples per replica and step. The global batch size is this number times the
    number of replicas; `{global: 200}` sets the global batch size itself. `auto`: 64, and fewer for
    a small train split. Default of the model `tabular`: `{at_most: 256}`. Default of the model
    `convnet`: 32."""
    steps_per_epoch: PositiveInt | None = None
    """The number of steps per epoch. The examples repeat, and each epoch continues where the
    previous epoch ended. Default: as many steps as a pass over the examples takes."""
    validation_steps: PositiveInt | None = None
    """The number of global batches of the held-out part that evaluate each epoch; they are the same
    in every epoch. The Evaluator always uses the whole eval split. Default: all batches."""
    learning_rate: LearningRate = 0.001
    """A constant, a schedule over the epochs, or an import path of yours. The import path names a
    function of the epoch, counted from 0, that returns a rate; or a `LearningRateSchedule` of
    tf_keras: an object, a class, or a function without arguments. The models `tabular` and
    `convnet` have other defaults, which apply if the optimizer has its default kind: `{schedule:
    cosine, initial: auto}` for `tabular`, `{schedule: cosine, initial: 0.002}` for `convnet`."""
    scale_learning_rate: bool = False
    """Whether to multiply the learning rate by the number of replicas, as the global batch size
    grows with it (arXiv:1706.02677)."""
    optimizer: AnyOptimizer = OptimizerSettings()
    """A name, or a mapping with the optimizer's options: `{kind: sgd, momentum: 0.9}`. Default of
    the models `tabular` and `convnet`: `{kind: adamw, weight_decay: 0.01}`."""
    l2: NonNegativeFloat = 0.0
    """The factor of L2 regularization: the sum of the squares of all kernels, times this factor, is
    added to the loss. TensorFlow's TPU guide uses 1e-5. Only built-in models support this key.
    `optimizer.weight_decay` does not change the loss."""
    loss: AnyLoss | None = None
    """A name, or a mapping with the loss's options: `{kind: focal, gamma: 2}`. Default:
    `cross_entropy` for classes, `mse` for `regression`, `poisson` for `count`."""
    class_weights: ClassWeights | None = None
    """The weight of each class in the loss: a mapping from the classes' names, or `balanced`, which
    gives all classes the same total weight on the train split. Default: all examples count alike.
    """
    augment: AugmentSettings | None = None
    """Random changes of pictures. They differ in every training step; evaluation and the exported
    model do not apply them. Default of the model `convnet`: `{shift: 0.1, zoom: 0.1}`. `null`: no
    changes."""
    strategy: StrategySettings = DefaultStrategy(kind=Strategy.DEFAULT)
    """A name, or a mapping with the strategy's options: `{kind: mirrored, reduction: nccl}`."""
    cluster: ClusterSettings | None = Field(default=None, json_schema_extra=_name_strategies)
    """the processes of the cluster. Default: 2 workers, 1 parameter server."""
    loop: Loop = Loop.FIT
    """The training loop: `fit` is Keras's own loop; `custom` is an explicit loop in
    `trainer_module/training/`, which you can change."""
    precision: Precision = Precision.FLOAT32
    """The data type of computations: `mixed_float16` (with loss scaling) for GPUs, `mixed_bfloat16`
    for TPUs and newer CPUs."""
    steps_per_execution: PositiveInt | None = None
    """The number of steps that run in the graph before control returns to Python. Default: derived
    from the number of steps."""
    retries: NonNegativeInt = 3
    """How many times training resumes from its last backup after a process was killed or lost."""
    backup_steps: PositiveInt | None = None
    """The number of steps between two backups, from which an interrupted training resumes. Default:
    a backup at the end of each epoch."""
    checkpoints: CheckpointSettings | None = None
    """The checkpoints that are kept in the model's run folder, where `load_weights` of tf_keras
    reads them. A later training with more `epochs` resumes from the last checkpoint. Default: no
    checkpoint is kept after training."""
    tensorboard: TensorBoardSettings = TensorBoardSettings()
    """The contents of TensorBoard besides the curves per epoch, which are always written."""
    callbacks: list[str] = []
    """Import paths of Keras callbacks of yours: classes, or functions that return a callback. Their
    `val_` metrics are measured on a held-out part of the train split."""
    run_fn: str | None = None
    """The import path of a `run_fn(fn_args)` of yours, as for TFX's Trainer. Your function then
    replaces Scopeline's training, and only your function reads the other keys of `train`. Default:
    Scopeline's `run_fn`."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """The seed of weights, shuffling and dropout: the same seed gives the same model on the same
    machine."""
    early_stopping: EarlyStoppingSettings | Literal["auto"] | bool | None = AUTO
    """Early stopping by the loss on a held-out part of the train split. `true`: with a patience of
    3 epochs. `false` or `null`: no early stopping. `auto`: early stopping if `epochs` is `auto` and
    `learning_rate` is a constant or `exponential`, with a patience that depends on the size of the
    data."""

    @property
    def global_seed(self) -> int:
        """TensorFlow's global seed, which must not be 0: tf.data would reject tensors as seeds of
        its operations.
        """
        return self.seed or 2**32 - 1

    @property
    def own_code(self) -> dict[str, str]:
        """The import paths of the user's code, by their key in `train`."""
        loss = {"loss": self.loss.kind} if self.loss and self.loss.is_custom else {}
        run_fn = {"run_fn": self.run_fn} if self.run_fn else {}
        own_rate = self.learning_rate if isinstance(self.learning_rate, str) else ""
        rate = {"learning_rate": own_rate} if own_rate else {}
        callbacks = {f"callbacks.{i}": path for i, path in enumerate(self.callbacks)}
        return loss | rate | callbacks | run_fn

    @property
    def cluster_or_default(self) -> ClusterSettings:
        """The value of `cluster`, or its default."""
        return self.cluster or ClusterSettings()

    @model_validator(mode="after")
    def _check_warmup(self) -> TrainSettings:
        rate = self.learning_rate
        if self.epochs == AUTO or not isinstance(rate, CosineSchedule):
            return self
        if rate.warmup_epochs >= self.epochs:
            raise ValueError(
                f"learning_rate.warmup_epochs is {rate.warmup_epochs}; "
                f"it must be less than epochs ({self.epochs})"
            )
        return self
