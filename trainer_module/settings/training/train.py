"""How the model is trained."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from trainer_module.errors import enumerate_names
from trainer_module.sections import DOCSTRING, Settings
from trainer_module.settings.strategy import ClusterSettings, StrategySettings
from trainer_module.settings.training.augment import AugmentSettings
from trainer_module.settings.training.learning_rate import CosineSchedule, LearningRate
from trainer_module.settings.training.loss import AnyLoss
from trainer_module.settings.training.optimizer import AnyOptimizer, OptimizerSettings
from trainer_module.strategies import strategies_of_several_processes
from trainer_module.strategies.base import Strategy
from trainer_module.strategies.one_replica import DefaultStrategy

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
    """A batch size that follows from the data."""

    at_most: PositiveInt = 64
    """Examples per replica and step, where the data is not small."""


class StepsBySize(Settings):
    """The steps of a training, which more data makes worth more."""

    small: PositiveInt
    """Where all examples come up in 133 steps."""
    large: PositiveInt
    """Where they take more: fewer steps would show each of them a few times only."""


class CheckpointSettings(Settings):
    """Which states of training stay when it is done."""

    keep: PositiveInt = 3
    """Those at the end of so many last epochs; the best epoch's stays as well."""


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
    """Examples per replica and step; the global batch is this times the replicas. `auto`: 64, and
    fewer for a small train split. Default of the model `tabular`: `{at_most: 256}`; of
    `convnet` 32."""
    learning_rate: LearningRate = 0.001
    """A constant for the optimizer, or a schedule over the epochs. Default of the model `tabular`,
    with an optimizer of the kind that it has by default: `{schedule: cosine, initial: auto}`;
    likewise of `convnet` with an `initial` of 0.002."""
    scale_learning_rate: bool = False
    """Multiply the learning rate by the number of replicas, as the global batch is
    (arXiv:1706.02677)."""
    optimizer: AnyOptimizer = OptimizerSettings()
    """A name, or a mapping with its options: `{kind: sgd, momentum: 0.9}`. Default of the models
    `tabular` and `convnet`: `{kind: adamw, weight_decay: 0.01}`."""
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
    """`fit` is Keras's own; `custom` is written out in `trainer_module/loops/custom.py`, to change.
    """
    precision: Precision = Precision.FLOAT32
    """`mixed_float16` (with loss scaling) for GPUs, `mixed_bfloat16` for TPUs and newer CPUs."""
    steps_per_execution: PositiveInt | None = None
    """Steps that run in the graph before Python looks again; default: by the length of training."""
    retries: NonNegativeInt = 3
    """How often training goes on from its backup after a process was killed or lost."""
    backup_steps: PositiveInt | None = None
    """Steps between backups; default: one at the end of each epoch."""
    checkpoints: CheckpointSettings | None = None
    """Keep checkpoints, with the optimizer's state, in the run of the model; raising `epochs` then
    goes on from the last one. Default: none is left when training is done."""
    callbacks: list[str] = []
    """Import paths of Keras callbacks of yours: classes, or functions that make one. What they see
    as `val_` is of a part of train that is held out."""
    run_fn: str | None = None
    """Import path of a `run_fn(fn_args)` of yours, as TFX's Trainer takes it; the other keys of the
    section are for it to read then. Default: the one that does what they say."""
    seed: int = 42
    """Seeds weights, shuffling and dropout: the same seed gives the same model on one machine."""
    early_stopping: EarlyStoppingSettings | Literal["auto"] | bool | None = AUTO
    """`false` or `null`: never. `auto`: where `epochs` is `auto`, with a patience that follows from
    the data, unless the learning rate is a plan, `cosine` or `steps`, that has an end."""

    @property
    def own_code(self) -> dict[str, str]:
        """Import paths of the user's code, by the key below `train` that names each."""
        loss = {"loss": self.loss.kind} if self.loss and self.loss.is_custom else {}
        run_fn = {"run_fn": self.run_fn} if self.run_fn else {}
        callbacks = {f"callbacks.{i}": path for i, path in enumerate(self.callbacks)}
        return loss | callbacks | run_fn

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
