"""The rules of `train`: its keys have to fit each other and the other sections."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.issues import Issue, near_match_and, rules_of
from pipeline.config.sections.evaluate import EvaluateSettings
from pipeline.config.sections.schedule import ScheduleSettings
from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.settings import (
    EarlyStoppingSettings,
    Feature,
    ImageFeature,
    ModelSettings,
    Precision,
    Strategy,
    TrainerSettings,
    TrainSettings,
)
from trainer_module.settings.ensembles import grows_trees
from trainer_module.settings.model import ENSEMBLE, NETWORK_MEMBER, is_forest
from trainer_module.settings.tasks import BaseTask
from trainer_module.settings.train import (
    LOSSES,
    READ_WITHOUT_STEPS,
    BatchSize,
    is_usual,
    losses_for,
    share_batch,
)
from trainer_module.settings.tune import AnyTune
from trainer_module.strategies import strategies_of_several_processes
from trainer_module.strategies.base import Processes


def loss_fits_the_task(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that a built-in loss supports the task; losses of the user's are not checked."""
    loss, losses = train.loss, losses_for(label_task.kind)
    if loss is None or loss.is_custom or loss.kind in losses:
        return
    problem = f"does not support `task: {label_task.kind}`" if loss.kind in LOSSES else "is unknown"
    yield Issue(
        "train.loss",
        f"the loss {loss.kind!r} {problem}; "
        + near_match_and(
            loss.kind,
            losses,
            "To use a loss of your own, write its import path, such as my_losses.asymmetric",
        ),
    )


def own_losses_are_of_one_number(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that a loss of the user's is not set together with quantiles or logarithms."""
    loss, task = train.loss, label_task
    if loss is not None and loss.is_custom and not task.takes_own_loss:
        yield Issue(
            "train.loss",
            f"found {loss.kind!r}, but a loss of your own cannot be combined with task.quantiles "
            f"or task.target: log; use {enumerate_names(losses_for(task.kind), 'or')}, or remove "
            "the key of task",
        )


def averages_have_steps_in_order(train: TrainSettings) -> Iterator[Issue]:
    """Checks that weights are not averaged with parameter servers, which have no last step."""
    strategy, ema = train.strategy, train.optimizer.ema
    if strategy.processes is Processes.SERVERS and ema:
        yield Issue(
            "train.optimizer.ema",
            f"found {ema:g}, but the workers of {strategy.kind} train asynchronously; remove this "
            "key",
        )


def averages_have_all_steps(train: TrainSettings) -> Iterator[Issue]:
    """Checks that weights are not averaged with loss scaling, which skips steps."""
    precision, ema = train.precision, train.optimizer.ema
    if precision is Precision.MIXED_FLOAT16 and ema:
        yield Issue(
            "train.optimizer.ema",
            f"found {ema:g}, but the loss scaling of {precision} skips steps, so that an epoch "
            "could end without averaged weights; use train.precision: "
            f"{Precision.MIXED_BFLOAT16}, or remove this key",
        )


def losses_can_be_scaled(train: TrainSettings) -> Iterator[Issue]:
    """Checks that the strategy supports loss scaling, which keeps variables in each replica."""
    precision, strategy = train.precision, train.strategy
    if precision is Precision.MIXED_FLOAT16 and not strategy.scales_losses:
        yield Issue(
            "train.precision",
            f"found {precision}, but its loss scaling does not work with train.strategy "
            f"{strategy.kind}; use {Precision.MIXED_BFLOAT16}, or train.strategy: "
            f"{Strategy.MIRRORED}",
        )


def class_weights_have_classes(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that class weights are set only for classification."""
    if train.class_weights and not label_task.label_kind.is_classification:
        yield Issue(
            "train.class_weights",
            f"`task: {label_task.kind}` has no classes; remove this key, or use data.weight",
        )


def unread_train_keys_are_absent(
    model: ModelSettings, train: TrainSettings, tune: AnyTune | None, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that keys of Scopeline's own training are not set with a `run_fn` of the user's."""
    unused_keys = {
        "model.transfer": (model.transfer, "does no transfer learning"),
        "train.augment": (train.augment, "does not augment pictures"),
        "train.checkpoints": (train.checkpoints, "has checkpoints of its own"),
        "tune": (tune, "does not search"),
        "evaluate.folds": (evaluate.folds, "does not train folds"),
    }
    for key, (value, reason) in unused_keys.items():
        if train.run_fn and value:
            yield Issue(key, f"train.run_fn ({train.run_fn}) {reason}; remove this key")


def workers_have_a_strategy(train: TrainSettings) -> Iterator[Issue]:
    """Checks that several workers are set only for strategies with several processes."""
    strategy = train.strategy
    has_one_process = strategy.processes is Processes.ONE and strategy.kind != Strategy.AUTO
    if train.cluster is None or not has_one_process:
        return
    if train.cluster.workers > 1:
        yield Issue(
            "train.cluster.workers",
            f"found {train.cluster.workers}, but train.strategy {strategy.kind} uses one process; "
            f"use {enumerate_names(strategies_of_several_processes(), 'or')}, or remove "
            "train.cluster",
        )


def servers_are_backed_up_by_epoch(train: TrainSettings) -> Iterator[Issue]:
    """Checks that `backup_steps` is not set with parameter servers, which back up each epoch."""
    strategy = train.strategy
    if strategy.processes is Processes.SERVERS and train.backup_steps:
        yield Issue(
            "train.backup_steps",
            f"found {train.backup_steps}, but train.strategy {strategy.kind} writes backups only "
            "at the end of each epoch; remove this key",
        )


def step_settings_are_applicable(train: TrainSettings) -> Iterator[Issue]:
    """Checks that TensorBoard records single steps only if training reports single steps."""
    strategy, board, steps = train.strategy, train.tensorboard, train.steps_per_execution or 1
    if not board.looks_at_steps:
        return
    key = "train.tensorboard.profile" if board.profile else "train.tensorboard.every"
    if strategy.processes is Processes.SERVERS:
        yield Issue(key, f"the workers of {strategy.kind} train asynchronously; remove this key")
    elif steps > 1:
        yield Issue(
            key,
            f"train.steps_per_execution is {steps}, but TensorBoard needs each step; remove one of "
            "the two keys",
        )


def replicas_share_the_batch(train: TrainSettings) -> Iterator[Issue]:
    """Checks that all replicas get the same part of a batch, if the config sets their number."""
    size = train.batch_size
    if not isinstance(size, BatchSize) or size.of_all_replicas is None:
        return
    devices = getattr(train.strategy, "devices", None)
    replicas = len(devices) if devices else 1
    if train.strategy.processes is Processes.IN_STEP and train.cluster is not None:
        # The number of replicas is a multiple of the number of workers.
        replicas = train.cluster.workers
    try:
        share_batch(size.of_all_replicas, replicas)
    except TrainingError as error:
        key, _, problem = str(error).rstrip(".").partition(" is ")
        yield Issue(key, f"found {problem}")


def l2_is_for_built_in_models(model: ModelSettings, train: TrainSettings) -> Iterator[Issue]:
    """Checks that `l2` is set for built-in models only; builders of the user's set regularizers."""
    if train.l2 and model.is_custom and train.run_fn is None:
        yield Issue(
            "train.l2",
            f"found {train.l2:g}, but {model.kind} builds its own layers; set kernel_regularizer "
            f"in {model.kind}, and remove this key",
        )


ONE_DEVICE = (Strategy.DEFAULT, Strategy.ONE_DEVICE, Strategy.AUTO)
"""The strategies under which trees can be grown."""


def trees_are_grown_on_one_device(model: ModelSettings, train: TrainSettings) -> Iterator[Issue]:
    """Checks that the strategy of trees has one device, as YDF uses the cores of one machine."""
    kind = train.strategy.kind
    if is_forest(model.kind) and train.run_fn is None and kind not in ONE_DEVICE:
        yield Issue(
            "train.strategy",
            f"found {kind}, but `model: {model.kind}` is trained on all cores of one machine; use "
            f"{enumerate_names(ONE_DEVICE, 'or')}",
        )


def _without_network(model: ModelSettings, train: TrainSettings) -> str:
    """Returns the name of a model that Scopeline trains without a network; empty for others."""
    if train.run_fn:
        return ""
    if model.kind == ENSEMBLE and NETWORK_MEMBER not in model.ensemble_members:
        return f"an ensemble without {NETWORK_MEMBER}"
    return f"`model: {model.kind}`" if is_forest(model.kind) else ""


def steps_need_a_network(
    train: TrainSettings, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that keys about epochs, batches and gradients are not set without a network."""
    name = _without_network(trainer_settings.model, train)
    if not name:
        return
    for key, field in TrainSettings.model_fields.items():
        if key not in READ_WITHOUT_STEPS and getattr(train, key) != field.default:
            yield Issue(
                f"train.{key}",
                f"{name} does not read this key; remove it. Of `train`, this model reads only "
                f"{enumerate_names(READ_WITHOUT_STEPS, 'and')}",
            )
    stopping = train.early_stopping
    if isinstance(stopping, EarlyStoppingSettings) and stopping.min_delta:
        yield Issue(
            "train.early_stopping.min_delta",
            f"found {stopping.min_delta:g}, but {name} reads only patience; remove this key",
        )


def warm_start_needs_a_network(
    train: TrainSettings,
    trainer_settings: TrainerSettings,
    schedule_or_default: ScheduleSettings,
) -> Iterator[Issue]:
    """Checks that `warm_start` is not set without a network, as other models start from scratch."""
    name = _without_network(trainer_settings.model, train)
    if name and schedule_or_default.warm_start:
        yield Issue(
            "schedule.warm_start",
            f"found true, but {name} is always trained from scratch; remove this key",
        )


def ensembles_train_in_one_process(model: ModelSettings, train: TrainSettings) -> Iterator[Issue]:
    """Checks that an ensemble is trained in one process, in which its trees are grown."""
    if _is_ensemble(model, train) and not grows_trees(train.strategy):
        yield Issue(
            "train.strategy",
            f"found {train.strategy.kind}, but the trees of an ensemble are grown in one process; "
            "use default, one_device, mirrored or auto, or `model: tabular`",
        )


def ensembles_have_the_usual_loss(
    model: ModelSettings, train: TrainSettings, label_task: BaseTask
) -> Iterator[Issue]:
    """Checks that an ensemble has the task's default loss, which all its members learn."""
    loss = train.loss
    if _is_ensemble(model, train) and loss and not is_usual(loss.kind, label_task.kind):
        yield Issue(
            "train.loss",
            f"found {loss.kind}, but the trees of an ensemble learn the default loss of "
            f"{label_task.kind}; remove this key, or use `model: tabular`",
        )


def _is_ensemble(model: ModelSettings, train: TrainSettings) -> bool:
    return model.kind == ENSEMBLE and train.run_fn is None


TRAIN_RULES = rules_of(__name__)


def augmented_are_pictures(
    features: dict[str, Feature], preprocessing: str | None, train: TrainSettings
) -> Iterator[Issue]:
    """Checks that `augment` is set only if there may be an image feature."""
    if train.augment is None or preprocessing is not None:
        return
    if not any(isinstance(f, ImageFeature) for f in features.values()):
        yield Issue(
            "train.augment",
            "no feature is an image; remove this key, or declare a column as {type: image} in "
            "`features`",
        )


def mixed_labels_are_classes(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that `mixup` is set only for classification, as it mixes classes."""
    augment, task = train.augment, label_task
    if augment is not None and augment.mixup and not label_task.label_kind.is_classification:
        yield Issue(
            "train.augment.mixup",
            f"found {augment.mixup:g}, but `task: {task.kind}` has no classes; remove this key",
        )


def cutouts_leave_something(features: dict[str, Feature], train: TrainSettings) -> Iterator[Issue]:
    """Checks that a cutout is smaller than each picture."""
    cutout = train.augment.cutout if train.augment is not None else 0
    for name, feature in features.items():
        size = feature.size if isinstance(feature, ImageFeature) else None
        if size is not None and cutout >= min(size):
            yield Issue(
                "train.augment.cutout",
                f"found {cutout}, but the image {name!r} has {size[0]}x{size[1]} pixels; use at "
                f"most half of its shorter side, {min(size) // 2}",
            )


AUGMENT_RULES = rules_of(__name__, *TRAIN_RULES)
