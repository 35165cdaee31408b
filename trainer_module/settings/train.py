"""The section `train` of a config, and the defaults that follow from the data."""

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
    field_validator,
    model_validator,
)

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.sections import DOCSTRING, Registered, Settings, named_or_mapping
from trainer_module.strategies import STRATEGIES, processes_of, strategies_of_several_processes
from trainer_module.strategies.base import BaseStrategy, Processes, Strategy
from trainer_module.strategies.synchronous import DefaultStrategy

FEWEST_EPOCHS = 10
"""The fewest epochs of `epochs: auto`, for data with thousands of steps per epoch."""

STEPS_OF_AN_EPOCH = 100
"""The approximate steps per epoch: each epoch ends with an evaluation and a checkpoint, whose cost
is about the same."""

PATIENCE_STEPS = 500
"""The steps without an improvement after which a further improvement is unlikely."""

FEWEST_PATIENT_EPOCHS = 5
"""The smallest patience in epochs, as the evaluation loss of a few epochs may be worse by chance.
"""

STEPS_OF_SMALL_DATA = 4 * STEPS_OF_AN_EPOCH // 3
"""The most steps per pass over the examples for data that counts as small.

It equals the steps of the longest epoch that repeats the examples."""

SMALLEST_BATCH = 8
"""The smallest automatic batch size; gradients of fewer examples are mostly noise."""

STEPS_OF_A_ROUND = 16
"""The fewest steps of one pass over all examples, as small tables learn better from small batches.
"""


def choose_batch_size(train: TrainSettings, examples: int, replicas: int) -> int:
    """Returns the examples per replica and step; an automatic batch size is a power of two.

    Args:
      train: the settings.
      examples: the number of examples in the train split.
      replicas: the number of replicas that share each step.

    Raises:
      TrainingError: the replicas cannot divide the given global batch evenly.
    """
    match train.batch_size:
        case int(given):
            return given
        case BatchSize(of_all_replicas=int(total)):
            return share_batch(total, replicas)
        case BatchSize(at_most=most):
            pass
        case _:
            most = BatchSize().at_most
    fitting = examples // (STEPS_OF_A_ROUND * replicas)
    return min(most, max(SMALLEST_BATCH, 2 ** (max(1, fitting).bit_length() - 1)))


def share_batch(total: int, replicas: int) -> int:
    """Returns the examples per replica of a global batch.

    Args:
      total: the examples of the global batch.
      replicas: the number of replicas.

    Raises:
      TrainingError: the replicas cannot divide the batch evenly.
    """
    share, left = divmod(total, replicas)
    if left:
        lower = share * replicas
        near = [str(size) for size in (lower, lower + replicas) if size]
        raise TrainingError(
            f"train.batch_size.global is {total}, which {replicas} replicas cannot share evenly; "
            f"right is a multiple of {replicas}, such as {' or '.join(near)}."
        )
    return share


def choose_rounds(train: TrainSettings, steps_per_round: int) -> int:
    """Returns the number of passes over the examples per epoch: one, unless the epochs are
    automatic.

    Args:
      train: the settings.
      steps_per_round: the steps of one pass.
    """
    if train.epochs != AUTO or train.steps_per_epoch:
        return 1
    return max(1, round(STEPS_OF_AN_EPOCH / steps_per_round))


def choose_epochs(train: TrainSettings, steps_per_epoch: int) -> int:
    """Returns the largest number of epochs to train.

    Args:
      train: the settings.
      steps_per_epoch: the steps of an epoch.
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
    """Returns the settings of early stopping; None for no early stopping.

    Args:
      train: the settings.
      steps_per_epoch: the steps of an epoch.
    """
    match train.early_stopping:
        case EarlyStoppingSettings() as given:
            return given
        case None | False:
            return None
        case True:
            return EarlyStoppingSettings()
    # Early stopping would end a training before a decaying learning rate has fallen.
    planned = (CosineSchedule, LinearSchedule, StepSchedule, str)
    is_planned = isinstance(train.learning_rate, planned)
    if train.epochs != AUTO or is_planned:
        return None
    return EarlyStoppingSettings(
        patience=max(FEWEST_PATIENT_EPOCHS, math.ceil(PATIENCE_STEPS / steps_per_epoch))
    )


def is_chosen(train: TrainSettings, steps_per_epoch: int) -> bool:
    """Returns whether a training needs held-out examples, for early stopping or the user's
    callbacks.

    Args:
      train: the settings.
      steps_per_epoch: the steps of an epoch.
    """
    return choose_stopping(train, steps_per_epoch) is not None or bool(train.callbacks)


_NAMES = "The tf.distribute strategies by name; `auto` picks one by the machine and TF_CONFIG."


def _any_of(strategies: dict[str, str]) -> Any:
    return named_or_mapping("Strategy", _NAMES, strategies)


StrategySettings: TypeAlias = Annotated[BaseStrategy, Registered(STRATEGIES, _any_of)]


def _describe_cluster(schema: dict[str, Any]) -> None:
    """Puts the names of the strategies that use several processes into the section's
    description.
    """
    several = [f"`{kind}`" for kind in strategies_of_several_processes()]
    schema["description"] = f"The processes that {enumerate_names(several, 'and')} train in."
    with_servers = [f"`{k}`" for k in STRATEGIES if processes_of(k) is Processes.SERVERS]
    servers = schema["properties"]["parameter_servers"]
    servers["description"] = f"{DOCSTRING} for {enumerate_names(with_servers, 'and')}."


class ClusterSettings(Settings):
    """The processes of strategies that train in several processes."""

    model_config = ConfigDict(json_schema_extra=_describe_cluster)

    workers: PositiveInt = 2
    """The number of processes that compute gradients."""
    parameter_servers: PositiveInt = 1
    """The number of processes that store the variables,"""
    launcher: Literal["local", "kubernetes"] = "local"
    """The launcher of the processes: `local` on this machine, `kubernetes` as pods of a pipeline on
    Kubeflow. If TF_CONFIG is set, training joins the cluster that it describes instead."""
    start_timeout: PositiveFloat = 300.0
    """The timeout in seconds for an unresponsive process, counted from the time when all processes
    run."""


def as_kind(value: Any) -> Any:
    """Returns a mapping without options for a name alone, any other value unchanged."""
    return {"kind": value} if isinstance(value, str) else value


class StepSchedule(Settings):
    """A piecewise constant learning rate: `values[i]` until epoch `boundaries[i]`."""

    schedule: Literal["steps"]
    values: list[PositiveFloat] = Field(min_length=1)
    """The learning rates, one more than there are boundaries."""
    boundaries: list[PositiveInt]
    """The epochs, counted from 0, at which the next value begins; ascending."""

    @field_validator("boundaries")
    @classmethod
    def _ascending(cls, boundaries: list[int]) -> list[int]:
        if any(a >= b for a, b in itertools.pairwise(boundaries)):
            raise ValueError("must be ascending epochs, such as [3, 7]")
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
    examples, scaled with the square root of the global batch size otherwise."""
    final_fraction: float = Field(default=0.0, ge=0, le=1)
    """The learning rate at the end, as a fraction of `initial`."""
    warmup_epochs: int = Field(default=0, ge=0)
    """The epochs in which the learning rate rises from 0 to `initial`."""


class LinearSchedule(Settings):
    """A linear warm-up, then a linear decay to 0 over all epochs, as for BERT."""

    schedule: Literal["linear"]
    initial: PositiveFloat
    """The learning rate at the end of the warm-up."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps in which the learning rate rises from 0 to `initial`."""


class ExponentialSchedule(Settings):
    """Exponential decay: the learning rate is multiplied by `decay` in every epoch, step by
    step.
    """

    schedule: Literal["exponential"]
    initial: PositiveFloat
    decay: float = Field(gt=0, lt=1)


_CONSTANT_RATE, _OWN_RATE = "a number", "the import path of a function"


def _learning_rate_kind(value: Any) -> str:
    """Returns the tag of the member of `LearningRate` that a value of the config is meant for."""
    if isinstance(value, Mapping):
        return f"schedule: {value.get('schedule')}"
    if isinstance(value, str) and not _is_number(value):
        return _OWN_RATE
    return f"schedule: {value.schedule}" if hasattr(value, "schedule") else _CONSTANT_RATE


def _is_number(text: str) -> bool:
    """Returns whether a text is a number, as YAML reads 1e-3, which has no dot, as a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_no_schedule(path: str) -> str:
    """Returns the import path; raises ValueError if it is the name of a schedule, which needs
    options.
    """
    if path in ("steps", "cosine", "linear", "exponential"):
        raise ValueError(
            f"must be a mapping with the options of the schedule: {{schedule: {path}, ...}}; the "
            "import path of one of yours has a dot"
        )
    return path


LearningRate = Annotated[
    Annotated[PositiveFloat, Tag(_CONSTANT_RATE)]
    | Annotated[str, AfterValidator(_is_no_schedule), Tag(_OWN_RATE)]
    | Annotated[StepSchedule, Tag("schedule: steps")]
    | Annotated[CosineSchedule, Tag("schedule: cosine")]
    | Annotated[LinearSchedule, Tag("schedule: linear")]
    | Annotated[ExponentialSchedule, Tag("schedule: exponential")],
    Discriminator(_learning_rate_kind),
]


@dataclass(frozen=True)
class LossSpec:
    """The properties of a loss that are needed before TensorFlow is imported."""

    tasks: tuple[str, ...]
    """The names of the tasks that the loss is for."""
    reads: tuple[str, ...] = ()
    """The keys that this loss reads and others ignore."""


_CLASSES = ("binary", "multiclass", "ordinal")
_NUMBERS = ("regression", "count")
LOSSES = {
    "cross_entropy": LossSpec(_CLASSES, reads=("label_smoothing",)),
    "focal": LossSpec(_CLASSES, reads=("gamma", "label_smoothing")),
    "poisson": LossSpec(("count",)),
    "mse": LossSpec(_NUMBERS),
    "mae": LossSpec(_NUMBERS),
    "huber": LossSpec(_NUMBERS, reads=("delta",)),
}
"""The losses by name; the first one that supports a task is the task's default."""


def losses_for(task: str) -> list[str]:
    """Returns the names of the losses that support a task."""
    return [name for name, spec in LOSSES.items() if task in spec.tasks]


def is_usual(loss: str, task: str) -> bool:
    """Returns whether a loss is the default of a task; an empty name stands for the default."""
    return loss in ("", losses_for(task)[0])


def _name_losses(schema: dict[str, Any]) -> None:
    schema["description"] = f"{', '.join(f'`{name}`' for name in LOSSES)}, {DOCSTRING}"


class LossSettings(Settings):
    """A loss with its options."""

    kind: str = Field(json_schema_extra=_name_losses)
    """or the import path of one of yours: a function of labels and predictions that returns a loss
    per example, or a subclass of `tf_keras.losses.Loss`."""
    gamma: NonNegativeFloat = 2.0
    """focal: the focusing parameter, which reduces the weight of examples that the model predicts
    with confidence (arXiv:1708.02002)."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """cross_entropy, focal: the share of a label that is distributed over all classes."""
    delta: PositiveFloat | None = None
    """huber: the error above which the loss is linear. Default: the standard deviation of the
    label."""
    options: dict[str, Any] = {}
    """The arguments of a class of yours."""

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
            raise ValueError(f"{key} is for {enumerate_names(readers, 'and')}, not {self.kind}")
        if self.options and not self.is_custom:
            raise ValueError(f"options are for a class of yours, not {self.kind}")
        return self


AnyLoss = Annotated[
    LossSettings, BeforeValidator(as_kind, json_schema_input_type=str | LossSettings)
]


class OptimizerName(StrEnum):
    """The optimizers by name; the learning rate is `train.learning_rate`."""

    ADAM = "adam"
    ADAMW = "adamw"
    SGD = "sgd"
    RMSPROP = "rmsprop"
    LION = "lion"


READERS = {
    "momentum": (OptimizerName.SGD, OptimizerName.RMSPROP),
    "nesterov": (OptimizerName.SGD,),
}
"""The optimizers that read a key which others ignore."""


class OptimizerSettings(Settings):
    """An optimizer with its options."""

    kind: OptimizerName = OptimizerName.ADAM
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """sgd, rmsprop: the momentum, the share of the last step that is added to the next one."""
    nesterov: bool = False
    """sgd: whether to use Nesterov momentum, with the gradient at the position after the momentum
    step."""
    weight_decay: float | None = Field(default=None, ge=0)
    """The share of the weights, times the learning rate, that each step subtracts from them; biases
    and weights of normalisation layers are exempt. Default: 0.004 for adamw, otherwise none."""
    clip_norm: PositiveFloat | None = None
    """The largest global norm of the gradients; larger gradients are scaled down to it."""
    layer_decay: float | None = Field(default=None, gt=0, le=1)
    """bert: the ratio of the learning rate of each block to the one above it; the output layer has
    `learning_rate`. Default with `model.weights`: 0.9."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """The decay of an exponential moving average of the weights, such as 0.99; each epoch ends with
    the average as the weights. Default: none."""

    @model_validator(mode="after")
    def _options_are_read(self) -> OptimizerSettings:
        for key, readers in READERS.items():
            if getattr(self, key) and self.kind not in readers:
                raise ValueError(f"{key} is for {enumerate_names(readers, 'and')}, not {self.kind}")
        return self


AnyOptimizer = Annotated[
    OptimizerSettings,
    BeforeValidator(as_kind, json_schema_input_type=OptimizerName | OptimizerSettings),
]


class AugmentSettings(Settings):
    """Random changes of pictures, different in every training step; evaluation and serving do not
    apply them.
    """

    flip: Literal["horizontal", "vertical", "both"] | None = None
    """The axes along which every other picture is mirrored: left and right, top and bottom, or both
    independently."""
    rotate: float = Field(default=0.0, ge=0, le=0.5)
    """The largest rotation, as a share of a full turn, in both directions: 0.05 is 18 degrees."""
    shift: float = Field(default=0.0, ge=0, lt=1)
    """The largest shift, as a share of the picture's height and width, in both directions."""
    zoom: float = Field(default=0.0, ge=0, lt=1)
    """The largest change of scale, in both directions: 0.1 is 10 percent."""
    contrast: float = Field(default=0.0, ge=0, lt=1)
    """The largest change of contrast: the share by which the differences from the mean grow or
    shrink."""
    cutout: NonNegativeInt = 0
    """The side in pixels of the square that is covered with the picture's mean (DeVries and Taylor,
    2017, arXiv:1708.04552)."""
    mixup: float = Field(default=0.0, ge=0, le=10)
    """The parameter of mixup, which mixes each picture and its label with another one in shares
    drawn from Beta(mixup, mixup) (Zhang et al., 2018, arXiv:1710.09412); 0.2 is usual, 0 disables
    it."""

    @model_validator(mode="after")
    def _changes_something(self) -> AugmentSettings:
        if not any(dict(self).values()):
            raise ValueError(
                "changes nothing; give one of flip, rotate, shift, zoom, contrast, cutout and "
                "mixup, or leave augment out"
            )
        return self

    @property
    def moves(self) -> bool:
        """Whether the changes move pixels, other than by mirroring."""
        return bool(self.rotate or self.shift or self.zoom)


class CrossValidation(Settings):
    """Cross-validation on the train split, which measures how much the metrics vary."""

    folds: int | None = Field(default=None, ge=2)
    """The number of folds of cross-validation: each fold of the train split is held out from a
    training of its own. These trainings are in addition to the training of the model. Default: no
    cross-validation."""


AUTO: Literal["auto"] = "auto"
"""The value of keys that are chosen by the data."""

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
    """The training loop: Keras's `fit`, or a custom one."""

    FIT = "fit"
    CUSTOM = "custom"


class Precision(StrEnum):
    """The data type of the layers' computations; variables are always float32."""

    FLOAT32 = "float32"
    MIXED_FLOAT16 = "mixed_float16"
    MIXED_BFLOAT16 = "mixed_bfloat16"


class EarlyStoppingSettings(Settings):
    """Early stopping by the loss on a held-out part of the train split."""

    patience: PositiveInt = 3
    """The epochs without improvement before training stops."""
    min_delta: float = Field(default=0.0, ge=0)
    """The smallest decrease of the loss that counts as an improvement."""


class BatchSize(Settings):
    """A batch size that is chosen by the data up to a limit, or the global batch size."""

    at_most: PositiveInt = 64
    """The largest number of examples per replica and step; small data gets fewer."""
    of_all_replicas: PositiveInt | None = Field(default=None, alias="global")
    """The global batch size, which the replicas divide evenly; in place of `at_most`. Under
    `parameter_server` it is the batch size of each worker's step."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> BatchSize:
        # Serialised settings contain all keys, so default values count as absent.
        if self.of_all_replicas and self.at_most != type(self).model_fields["at_most"].default:
            raise ValueError("has both at_most and global; leave one of them out")
        return self


class StepsBySize(Settings):
    """The steps of a training, by the size of the data."""

    small: PositiveInt
    """The steps for data whose examples take at most 133 steps per pass."""
    large: PositiveInt
    """The steps for larger data; with fewer, each example would be seen only a few times."""


def _fits_epochs(name: str) -> str:
    """Returns the name; raises ValueError if it is no file name, or not different for every
    epoch.
    """
    try:
        names = {name.format(epoch=epoch) for epoch in range(1, 101)}
    except (IndexError, KeyError, ValueError):
        names = set()
    if len(names) < 100 or not all(re.fullmatch(r"[\w.=-]*\w", name) for name in names):
        raise ValueError(
            "must be a file's name with the epoch's number, such as ckpt_{epoch} or cp-{epoch:04d}"
        )
    return name


class CheckpointSettings(Settings):
    """The checkpoints that are kept after training."""

    keep: PositiveInt = 3
    """The number of last epochs whose checkpoints are kept, besides the best epoch's."""
    every: PositiveInt | Literal["best"] | None = None
    """The interval in epochs between kept checkpoints, in place of `keep`; the best and the last
    epoch's are kept as well. `best`: only the best epoch's."""
    weights_only: bool = False
    """Whether to omit the optimizer's state, without which a training with more `epochs` cannot
    resume."""
    name: Annotated[str, AfterValidator(_fits_epochs)] | None = None
    """The pattern of the names: `ckpt_{epoch}`, `cp-{epoch:04d}`. Default: `ckpt-` and the number
    of steps."""

    @model_validator(mode="after")
    def _keeps_in_one_way(self) -> CheckpointSettings:
        # Serialised settings contain all keys, so default values count as absent.
        if self.every and self.keep != type(self).model_fields["keep"].default:
            raise ValueError("has both keep and every; leave one of them out")
        return self

    def epochs(self, ended: int, best: int) -> set[int]:
        """Returns the epochs, counted from 1, whose checkpoints are kept.

        Args:
          ended: the number of finished epochs.
          best: the best epoch; 0 if there is none.
        """
        if self.every == "best":
            return {best}
        if self.every:
            return {best, ended, *range(self.every, ended + 1, self.every)}
        return {best, *range(max(1, ended - self.keep + 1), ended + 1)}


class TensorBoardSettings(Settings):
    """The contents of TensorBoard besides the curves of losses, metrics and the learning rate."""

    graph: bool = False
    """Whether to show the graph of the model: its layers and their operations."""
    every: Literal["epoch", "batch"] = "epoch"
    """The interval of the points: `batch` adds a point per step with the epoch's running loss and
    metrics; under `loop: custom` it is the loss of the single step."""
    profile: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)] | None = None
    """The first and the last step to profile, counted from 1 at the start or the resumption of
    training: `[10, 20]`. Default: none."""

    @field_validator("profile")
    @classmethod
    def _in_order(cls, profile: list[int] | None) -> list[int] | None:
        if profile and profile[0] > profile[1]:
            raise ValueError("must be the first and the last step, such as [10, 20]")
        return profile

    @property
    def looks_at_steps(self) -> bool:
        """Whether the callback has to be called after each step."""
        return self.every == "batch" or self.profile is not None


def _name_strategies(schema: dict[str, Any]) -> None:
    """Puts the names of the strategies that use a cluster before the description of the key."""
    several = enumerate_names([f"`{kind}`" for kind in strategies_of_several_processes()], "and")
    schema["description"] = f"For {several}; {DOCSTRING}"


def _by_name(value: Any) -> Any:
    """Returns class weights by the names of the classes; raises ValueError for a class true or
    false.

    YAML reads `yes` and `no` without quotes as booleans.
    """
    if not isinstance(value, dict):
        return value
    for name in value:
        if isinstance(name, bool):
            raise ValueError(f'found the class {name}; quote its name, as in `"yes": 2`')
    return {str(name): weight for name, weight in value.items()}


ClassWeights = Annotated[
    Literal["balanced"] | dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]],
    BeforeValidator(_by_name),
]


class TrainSettings(Settings):
    """The training of the model."""

    epochs: PositiveInt | Literal["auto"] = AUTO
    """The number of epochs. `auto`: as many as the data needs for enough `steps`."""
    steps: PositiveInt | StepsBySize = 8000
    """The steps of a training with `epochs: auto`; it always has at least 10 epochs. Default of the
    model `tabular`: `{small: 2000, large: 8000}`, where `large` applies to data whose examples take
    more than 133 steps per pass; of `convnet` 1000."""
    batch_size: PositiveInt | BatchSize | Literal["auto"] = AUTO
    """The examples per replica and step; the global batch size is this times the number of
    replicas, or is given by `{global: 200}`. `auto`: 64, and fewer for a small train split. Default
    of the model `tabular`: `{at_most: 256}`; of `convnet` 32."""
    steps_per_epoch: PositiveInt | None = None
    """The steps of an epoch; examples are repeated, and each epoch continues where the last one
    ended. Default: enough steps for every example."""
    validation_steps: PositiveInt | None = None
    """The global batches of the held-out part that evaluate each epoch, the same in every epoch;
    the Evaluator always uses the whole eval split. Default: all."""
    learning_rate: LearningRate = 0.001
    """A constant, a schedule over the epochs, or the import path of yours: a function of the epoch,
    counted from 0, that returns a rate, or a `LearningRateSchedule` of tf_keras: an object, a
    class, or a function without arguments. Default of the model `tabular`, if the optimizer is of
    its default kind: `{schedule: cosine, initial: auto}`; of `convnet`, under the same condition,
    with an `initial` of 0.002."""
    scale_learning_rate: bool = False
    """Multiply the learning rate by the number of replicas, in proportion to the global batch size
    (arXiv:1706.02677)."""
    optimizer: AnyOptimizer = OptimizerSettings()
    """A name, or a mapping with its options: `{kind: sgd, momentum: 0.9}`. Default of the models
    `tabular` and `convnet`: `{kind: adamw, weight_decay: 0.01}`."""
    l2: NonNegativeFloat = 0.0
    """The factor of L2 regularization: the sum of the squares of all kernels, times this factor, is
    added to the loss (1e-5 in TensorFlow's TPU guide); only for models of the zoo.
    `optimizer.weight_decay` is separate from the loss."""
    loss: AnyLoss | None = None
    """A name, or a mapping with its options: `{kind: focal, gamma: 2}`. Default: cross-entropy for
    classes, `mse` for regression."""
    class_weights: ClassWeights | None = None
    """The weight of each class in the loss: a mapping from the classes' names, or `balanced`, which
    gives all classes the same total weight on the train split. Default: all examples count alike.
    """
    augment: AugmentSettings | None = None
    """Random changes of pictures, different in every training step; evaluation and the exported
    model do not apply them. Default of the model `convnet`: `{shift: 0.1, zoom: 0.1}`; `null` for
    none."""
    strategy: StrategySettings = DefaultStrategy(kind=Strategy.DEFAULT)
    """A name, or a mapping with the strategy's options: `{kind: mirrored, reduction: nccl}`."""
    cluster: ClusterSettings | None = Field(default=None, json_schema_extra=_name_strategies)
    """default: 2 workers, 1 parameter server.
    """
    loop: Loop = Loop.FIT
    """The training loop: `fit` is Keras's own; `custom` is an explicit loop in
    `trainer_module/training/` for you to change."""
    precision: Precision = Precision.FLOAT32
    """The data type of computations: `mixed_float16` (with loss scaling) for GPUs, `mixed_bfloat16`
    for TPUs and newer CPUs."""
    steps_per_execution: PositiveInt | None = None
    """The steps that run in the graph before control returns to Python; default: chosen by the
    number of steps."""
    retries: NonNegativeInt = 3
    """How often training resumes from its checkpoint after a process was killed or lost."""
    backup_steps: PositiveInt | None = None
    """The steps between the checkpoints for resuming; default: one checkpoint at the end of each
    epoch."""
    checkpoints: CheckpointSettings | None = None
    """Keep checkpoints, with the optimizer's state, in the model's run folder, where `load_weights`
    of tf_keras reads them; a training with more `epochs` then resumes from the last one. Default:
    none are kept after training."""
    tensorboard: TensorBoardSettings = TensorBoardSettings()
    """The contents of TensorBoard besides the curves of the epochs, which are always written."""
    callbacks: list[str] = []
    """Import paths of Keras callbacks of yours: classes, or functions that return one. Their `val_`
    metrics are measured on a held-out part of the train split."""
    run_fn: str | None = None
    """Import path of a `run_fn(fn_args)` of yours, as for TFX's Trainer; the other keys of the
    section are then yours to read. Default: the one of Scopeline, which implements the section."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """The seed of weights, shuffling and dropout: the same seed gives the same model on one
    machine."""
    early_stopping: EarlyStoppingSettings | Literal["auto"] | bool | None = AUTO
    """Early stopping by the loss on a held-out part of the train split. `false` or `null`: never.
    `auto`: if `epochs` is `auto`, with a patience that is chosen by the data, unless the learning
    rate follows a schedule that may have a fixed end, such as `cosine` or one of yours."""

    @property
    def global_seed(self) -> int:
        """TensorFlow's global seed; not 0, as tf.data then rejects a per-operation seed that is a
        tensor.
        """
        return self.seed or 2**32 - 1

    @property
    def own_code(self) -> dict[str, str]:
        """The import paths of the user's code, by their key below `train`."""
        loss = {"loss": self.loss.kind} if self.loss and self.loss.is_custom else {}
        run_fn = {"run_fn": self.run_fn} if self.run_fn else {}
        own_rate = self.learning_rate if isinstance(self.learning_rate, str) else ""
        rate = {"learning_rate": own_rate} if own_rate else {}
        callbacks = {f"callbacks.{i}": path for i, path in enumerate(self.callbacks)}
        return loss | rate | callbacks | run_fn

    @property
    def cluster_or_default(self) -> ClusterSettings:
        """The processes of the cluster, for a strategy that needs several."""
        return self.cluster or ClusterSettings()

    @model_validator(mode="after")
    def _warmup_ends(self) -> TrainSettings:
        rate = self.learning_rate
        if self.epochs == AUTO or not isinstance(rate, CosineSchedule):
            return self
        if rate.warmup_epochs >= self.epochs:
            raise ValueError(
                f"learning_rate.warmup_epochs is {rate.warmup_epochs}; "
                f"it must be less than epochs, {self.epochs}"
            )
        return self
