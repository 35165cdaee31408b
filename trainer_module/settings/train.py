"""How the model is trained."""

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

    Raises:
      TrainingError: the replicas cannot share the given global batch evenly.
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
    """Examples per replica of a step that takes so many in all.

    Raises:
      TrainingError: they cannot be shared evenly.
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
    """Returns how often every example comes up in an epoch: once, unless the data decides.

    Args:
      train: the settings.
      steps_per_round: that take all examples once.
    """
    if train.epochs != AUTO or train.steps_per_epoch:
        return 1
    return max(1, round(STEPS_OF_AN_EPOCH / steps_per_round))


def choose_epochs(train: TrainSettings, steps_per_epoch: int) -> int:
    """Returns the epochs to train, at most.

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
    planned = (CosineSchedule, LinearSchedule, StepSchedule, str)
    is_planned = isinstance(train.learning_rate, planned)
    if train.epochs != AUTO or is_planned:
        return None
    return EarlyStoppingSettings(
        patience=max(FEWEST_PATIENT_EPOCHS, math.ceil(PATIENCE_STEPS / steps_per_epoch))
    )


def is_chosen(train: TrainSettings, steps_per_epoch: int) -> bool:
    """Returns whether a training chooses by examples that it does not learn from.

    Args:
      train: the settings.
      steps_per_epoch: of the training.
    """
    return choose_stopping(train, steps_per_epoch) is not None or bool(train.callbacks)


_NAMES = "The tf.distribute strategies by name; `auto` picks one by the machine and TF_CONFIG."


def _any_of(strategies: dict[str, str]) -> Any:
    return named_or_mapping("Strategy", _NAMES, strategies)


StrategySettings: TypeAlias = Annotated[BaseStrategy, Registered(STRATEGIES, _any_of)]


def _describe_cluster(schema: dict[str, Any]) -> None:
    """Names the strategies that the section is for, as they are registered."""
    several = [f"`{kind}`" for kind in strategies_of_several_processes()]
    schema["description"] = f"The processes that {enumerate_names(several, 'and')} train in."
    with_servers = [f"`{k}`" for k in STRATEGIES if processes_of(k) is Processes.SERVERS]
    servers = schema["properties"]["parameter_servers"]
    servers["description"] = f"{DOCSTRING} for {enumerate_names(with_servers, 'and')}."


class ClusterSettings(Settings):
    """The processes that strategies of several processes train in."""

    model_config = ConfigDict(json_schema_extra=_describe_cluster)

    workers: PositiveInt = 2
    """Processes that compute gradients."""
    parameter_servers: PositiveInt = 1
    """Processes that hold the variables,"""
    launcher: Literal["local", "kubernetes"] = "local"
    """Who starts them: `local` on this machine, `kubernetes` as pods of a pipeline on Kubeflow.
    Where TF_CONFIG is set, training joins the cluster that it describes instead."""
    start_timeout: PositiveFloat = 300.0
    """Seconds until a process that does not answer is given up, from when all run."""


def as_kind(value: Any) -> Any:
    """Returns the name alone stands for a mapping without options."""
    return {"kind": value} if isinstance(value, str) else value


class StepSchedule(Settings):
    """A constant learning rate between epochs: `values[i]` until epoch `boundaries[i]`."""

    schedule: Literal["steps"]
    values: list[PositiveFloat] = Field(min_length=1)
    """Learning rates, one more than there are boundaries."""
    boundaries: list[PositiveInt]
    """Epochs, counted from 0, at which the next value begins; ascending."""

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
    """The learning rate at the start of the decay. `auto`: 0.004 where a step of all replicas takes
    256 examples, and with the root of their number otherwise."""
    final_fraction: float = Field(default=0.0, ge=0, le=1)
    """The learning rate at the end, as a fraction of `initial`."""
    warmup_epochs: int = Field(default=0, ge=0)
    """Epochs in which the learning rate rises from 0 to `initial`."""


class LinearSchedule(Settings):
    """A straight line down to 0 over all epochs, after a linear warm-up: BERT's."""

    schedule: Literal["linear"]
    initial: PositiveFloat
    """The learning rate at the end of the warm-up."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the learning rate rises from 0 to `initial`."""


class ExponentialSchedule(Settings):
    """The learning rate is multiplied by `decay` every epoch, smoothly."""

    schedule: Literal["exponential"]
    initial: PositiveFloat
    decay: float = Field(gt=0, lt=1)


_CONSTANT_RATE, _OWN_RATE = "a number", "the import path of a function"


def _learning_rate_kind(value: Any) -> str:
    """Which member of `LearningRate` a value of the config means to be."""
    if isinstance(value, Mapping):
        return f"schedule: {value.get('schedule')}"
    if isinstance(value, str) and not _is_number(value):
        return _OWN_RATE
    return f"schedule: {value.schedule}" if hasattr(value, "schedule") else _CONSTANT_RATE


def _is_number(text: str) -> bool:
    """Returns whether a text is a number: YAML reads 1e-3, which has no dot, as a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_no_schedule(path: str) -> str:
    """Returns the import path, if it is not the name of a schedule, which has options."""
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
    """What has to be known of a loss before TensorFlow is imported."""

    tasks: tuple[str, ...]
    """The names of those that it is for."""
    reads: tuple[str, ...] = ()
    """Keys that not every loss reads."""


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
"""The losses by name. The first of a task is its usual one."""


def losses_for(task: str) -> list[str]:
    """Returns the names of the losses for a task, by its name."""
    return [name for name, spec in LOSSES.items() if task in spec.tasks]


def is_usual(loss: str, task: str) -> bool:
    """Returns whether a loss is the usual one of a task, both by name; the empty name is."""
    return loss in ("", losses_for(task)[0])


def _name_losses(schema: dict[str, Any]) -> None:
    schema["description"] = f"{', '.join(f'`{name}`' for name in LOSSES)}, {DOCSTRING}"


class LossSettings(Settings):
    """A loss with its options."""

    kind: str = Field(json_schema_extra=_name_losses)
    """or the import path of one of yours: a function of labels and predictions that returns a loss
    per example, or a subclass of `tf_keras.losses.Loss`."""
    gamma: NonNegativeFloat = 2.0
    """focal: how much less the examples count that the model is sure of (arXiv:1708.02002)."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """cross_entropy, focal: the share of a label that is spread over all classes."""
    delta: PositiveFloat | None = None
    """huber: errors beyond it count linearly. Default: the standard deviation of the label."""
    options: dict[str, Any] = {}
    """For a class of yours: its arguments."""

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
"""The optimizers that read a key which not all of them do."""


class OptimizerSettings(Settings):
    """An optimizer with its options."""

    kind: OptimizerName = OptimizerName.ADAM
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """sgd, rmsprop: the share of the last step that the next one goes on with."""
    nesterov: bool = False
    """sgd: whether the gradient is that of where the momentum leads."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Share of the weights, times the learning rate, that each step takes off them; biases and the
    weights of normalisation stay. Default: 0.004 for adamw, otherwise none."""
    clip_norm: PositiveFloat | None = None
    """Gradients whose norm, over all variables together, is larger are scaled down to it."""
    layer_decay: float | None = Field(default=None, gt=0, le=1)
    """bert: the learning rate of each block is so many times that of the one above it; of the
    output it is `learning_rate`. Default with `model.weights`: 0.9."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """Such as 0.99: each epoch ends with the moving average of the weights, of which each step
    keeps so much."""

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
    """Random changes of pictures: new ones in every step of training, and none elsewhere."""

    flip: Literal["horizontal", "vertical", "both"] | None = None
    """Mirror every other picture: left and right, top and bottom, or each of them by itself."""
    rotate: float = Field(default=0.0, ge=0, le=0.5)
    """The share of a full turn that a picture is turned, at most, either way: 0.05 is 18 degrees.
    """
    shift: float = Field(default=0.0, ge=0, lt=1)
    """The share of its height and width that a picture is moved, at most, either way."""
    zoom: float = Field(default=0.0, ge=0, lt=1)
    """How much larger or smaller a picture becomes, at most: 0.1 is by a tenth."""
    contrast: float = Field(default=0.0, ge=0, lt=1)
    """How much further from its mean, or nearer to it, the pixels of a picture are, at most."""
    cutout: NonNegativeInt = 0
    """Pixels of a side of the square that the picture's mean covers (DeVries and Taylor, 2017,
    arXiv:1708.04552)."""
    mixup: float = Field(default=0.0, ge=0, le=10)
    """Mix each picture and its label with another one's, in shares drawn from Beta(mixup, mixup)
    (Zhang et al., 2018, arXiv:1710.09412); 0.2 is usual, 0 mixes none."""

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
        """Whether pixels change their places, other than by mirroring."""
        return bool(self.rotate or self.shift or self.zoom)


class CrossValidation(Settings):
    """Whether trainings on parts of the train split say how much the metrics vary."""

    folds: int | None = Field(default=None, ge=2)
    """Cross-validation: the train split in so many parts, each held out from a training of its
    own; what that takes comes on top of the training of the model."""


AUTO: Literal["auto"] = "auto"
"""What follows from the data."""

NOT_IN_CACHE_KEY: dict[str, Any] = {
    "retries": True,
    "backup_steps": True,
    "cluster": {"launcher": True, "start_timeout": True},
}
"""Keys of TrainSettings that say how a training is looked after, not what comes out of it."""

READ_WITHOUT_STEPS = ("class_weights", "early_stopping", "retries", "run_fn", "seed", "strategy")
"""Keys of TrainSettings that mean something where nothing is trained in steps, as with trees."""


class Loop(StrEnum):
    """Who runs the steps."""

    FIT = "fit"
    CUSTOM = "custom"


class Precision(StrEnum):
    """The numbers that layers compute with; variables are float32 in each case."""

    FLOAT32 = "float32"
    MIXED_FLOAT16 = "mixed_float16"
    MIXED_BFLOAT16 = "mixed_bfloat16"


class EarlyStoppingSettings(Settings):
    """Stop when the loss of a part of train that is held out has not improved for some epochs."""

    patience: PositiveInt = 3
    """Epochs without improvement before training stops."""
    min_delta: float = Field(default=0.0, ge=0)
    """An improvement smaller than this does not count."""


class BatchSize(Settings):
    """A batch size that follows from the data, or that of all replicas together."""

    at_most: PositiveInt = 64
    """Examples per replica and step, where the data is not small."""
    of_all_replicas: PositiveInt | None = Field(default=None, alias="global")
    """Examples per step of all replicas, which share them evenly; in place of `at_most`. Under
    `parameter_server` each worker's step has so many."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> BatchSize:
        # As it travels to Trainer, it has all keys.
        if self.of_all_replicas and self.at_most != type(self).model_fields["at_most"].default:
            raise ValueError("has both at_most and global; leave one of them out")
        return self


class StepsBySize(Settings):
    """The steps of a training, which more data makes worth more."""

    small: PositiveInt
    """Where all examples come up in 133 steps."""
    large: PositiveInt
    """Where they take more: fewer steps would show each of them a few times only."""


def _fits_epochs(name: str) -> str:
    """Returns the name, if each epoch's is another one, and a file's."""
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
    """Which states of training stay when it is done."""

    keep: PositiveInt = 3
    """Those at the end of so many last epochs; the best epoch's stays as well."""
    every: PositiveInt | Literal["best"] | None = None
    """In place of `keep`: those at the end of every so many epochs, of the best and of the last
    one; `best`: that of the best epoch alone."""
    weights_only: bool = False
    """Without the optimizer's state, which more `epochs` would go on from."""
    name: Annotated[str, AfterValidator(_fits_epochs)] | None = None
    """What they are called: `ckpt_{epoch}`, `cp-{epoch:04d}`. Default: `ckpt-`, and the number of
    steps."""

    @model_validator(mode="after")
    def _keeps_in_one_way(self) -> CheckpointSettings:
        # As it travels to Trainer, it has all keys.
        if self.every and self.keep != type(self).model_fields["keep"].default:
            raise ValueError("has both keep and every; leave one of them out")
        return self

    def epochs(self, ended: int, best: int) -> set[int]:
        """Returns the epochs, counted from 1, whose checkpoints are kept.

        Args:
          ended: how many have.
          best: the best one; 0 if none may be.
        """
        if self.every == "best":
            return {best}
        if self.every:
            return {best, ended, *range(self.every, ended + 1, self.every)}
        return {best, *range(max(1, ended - self.keep + 1), ended + 1)}


class TensorBoardSettings(Settings):
    """What TensorBoard shows besides the curves of losses, metrics and the learning rate."""

    graph: bool = False
    """The model: its layers, and the operations that they are."""
    every: Literal["epoch", "batch"] = "epoch"
    """How often there is a point: `batch` also has one of the loss and the metrics so far for each
    step; under `loop: custom` it is of the loss of the step alone."""
    profile: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)] | None = None
    """The first and the last step, counted from 1 where training begins or goes on, whose
    operations are timed: `[10, 20]`."""

    @field_validator("profile")
    @classmethod
    def _in_order(cls, profile: list[int] | None) -> list[int] | None:
        if profile and profile[0] > profile[1]:
            raise ValueError("must be the first and the last step, such as [10, 20]")
        return profile

    @property
    def looks_at_steps(self) -> bool:
        """Whether it has to be called after each step."""
        return self.every == "batch" or self.profile is not None


def _name_strategies(schema: dict[str, Any]) -> None:
    """Names the strategies that a cluster is for, as they are registered."""
    several = enumerate_names([f"`{kind}`" for kind in strategies_of_several_processes()], "and")
    schema["description"] = f"For {several}; {DOCSTRING}"


def _by_name(value: Any) -> Any:
    """Classes may be numbers; true and false may be what YAML has made of yes and no."""
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
    """How the model is trained."""

    epochs: PositiveInt | Literal["auto"] = AUTO
    """`auto`: so many that the data, however small, gets enough steps."""
    steps: PositiveInt | StepsBySize = 8000
    """With `epochs: auto`, what a training may take; data of which 10 epochs are more gets those.
    Default of the model `tabular`: `{small: 2000, large: 8000}`, where large are those whose
    examples take more than 133 steps to come up once; of `convnet` 1000."""
    batch_size: PositiveInt | BatchSize | Literal["auto"] = AUTO
    """Examples per replica and step; the global batch is this times the replicas, or what
    `{global: 200}` says. `auto`: 64, and fewer for a small train split. Default of the model
    `tabular`: `{at_most: 256}`; of `convnet` 32."""
    steps_per_epoch: PositiveInt | None = None
    """Steps of an epoch, of examples that come up again and again; the next epoch goes on with
    those that come next. Default: so many that every example comes up."""
    validation_steps: PositiveInt | None = None
    """Global batches of what is held out that each epoch is evaluated by, the same ones each time;
    the Evaluator looks at all of the eval split. Default: all."""
    learning_rate: LearningRate = 0.001
    """A constant for the optimizer, a schedule over the epochs, or the import path of yours: a
    function of the epoch, counted from 0, that returns a rate, or a `LearningRateSchedule` of
    tf_keras: an object, a class, or a function without arguments. Default of the model `tabular`,
    with an optimizer of the kind that it has by default: `{schedule: cosine, initial: auto}`;
    likewise of `convnet` with an `initial` of 0.002."""
    scale_learning_rate: bool = False
    """Multiply the learning rate by the number of replicas, as the global batch is
    (arXiv:1706.02677)."""
    optimizer: AnyOptimizer = OptimizerSettings()
    """A name, or a mapping with its options: `{kind: sgd, momentum: 0.9}`. Default of the models
    `tabular` and `convnet`: `{kind: adamw, weight_decay: 0.01}`."""
    l2: NonNegativeFloat = 0.0
    """So many times the sum of the squares of all kernels is added to the loss (1e-5 in
    TensorFlow's TPU guide), of models of ours. `optimizer.weight_decay` is apart from the loss."""
    loss: AnyLoss | None = None
    """A name, or a mapping with its options: `{kind: focal, gamma: 2}`. Default: cross-entropy for
    classes, `mse` for regression."""
    class_weights: ClassWeights | None = None
    """How much each class counts in the loss: a mapping from the classes' names, or `balanced`:
    those with few examples in the train split as much as the others."""
    augment: AugmentSettings | None = None
    """Random changes of pictures, new ones in every step; evaluation and the model that is exported
    see them as they are. Default of the model `convnet`: `{shift: 0.1, zoom: 0.1}`; `null` for
    none."""
    strategy: StrategySettings = DefaultStrategy(kind=Strategy.DEFAULT)
    """A name, or a mapping with the strategy's options: `{kind: mirrored, reduction: nccl}`."""
    cluster: ClusterSettings | None = Field(default=None, json_schema_extra=_name_strategies)
    """default: 2 workers, 1 parameter server.
    """
    loop: Loop = Loop.FIT
    """`fit` is Keras's own; `custom` is written out in `trainer_module/training/`, to change."""
    precision: Precision = Precision.FLOAT32
    """`mixed_float16` (with loss scaling) for GPUs, `mixed_bfloat16` for TPUs and newer CPUs."""
    steps_per_execution: PositiveInt | None = None
    """Steps that run in the graph before Python looks again; default: by the length of training."""
    retries: NonNegativeInt = 3
    """How often training goes on from its backup after a process was killed or lost."""
    backup_steps: PositiveInt | None = None
    """Steps between backups; default: one at the end of each epoch."""
    checkpoints: CheckpointSettings | None = None
    """Keep checkpoints, with the optimizer's state, in the run of the model, where `load_weights`
    of tf_keras reads them; raising `epochs` then goes on from the last one. Default: none is left
    when training is done."""
    tensorboard: TensorBoardSettings = TensorBoardSettings()
    """What TensorBoard shows besides the curves of the epochs, which it always has."""
    callbacks: list[str] = []
    """Import paths of Keras callbacks of yours: classes, or functions that make one. What they see
    as `val_` is of a part of train that is held out."""
    run_fn: str | None = None
    """Import path of a `run_fn(fn_args)` of yours, as TFX's Trainer takes it; the other keys of the
    section are for it to read then. Default: the one that does what they say."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """Seeds weights, shuffling and dropout: the same seed gives the same model on one machine."""
    early_stopping: EarlyStoppingSettings | Literal["auto"] | bool | None = AUTO
    """`false` or `null`: never. `auto`: where `epochs` is `auto`, with a patience that follows from
    the data, unless the learning rate is a plan, such as `cosine` or one of yours, that may have an
    end."""

    @property
    def global_seed(self) -> int:
        """TensorFlow's seed; not 0, beside which tf.data takes no seed that is a tensor."""
        return self.seed or 2**32 - 1

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's code, by the key below `train` that names each."""
        loss = {"loss": self.loss.kind} if self.loss and self.loss.is_custom else {}
        run_fn = {"run_fn": self.run_fn} if self.run_fn else {}
        own_rate = self.learning_rate if isinstance(self.learning_rate, str) else ""
        rate = {"learning_rate": own_rate} if own_rate else {}
        callbacks = {f"callbacks.{i}": path for i, path in enumerate(self.callbacks)}
        return loss | rate | callbacks | run_fn

    @property
    def cluster_or_default(self) -> ClusterSettings:
        """The processes of a strategy that needs several."""
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
