"""The rules of `train`: its keys have to fit together and to fit the rest of a config."""

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
    TrainSettings,
)
from trainer_module.settings.model import is_forest
from trainer_module.settings.tasks import BaseTask
from trainer_module.settings.train import (
    LOSSES,
    READ_WITHOUT_STEPS,
    BatchSize,
    losses_for,
    share_batch,
)
from trainer_module.settings.tune import AnyTune
from trainer_module.strategies import strategies_of_several_processes
from trainer_module.strategies.base import Processes


def loss_fits_the_task(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that a built-in loss is for the task; losses of the user's are not checked."""
    loss, known = train.loss, losses_for(label_task.kind)
    if loss is None or loss.is_custom or loss.kind in known:
        return
    kind_of_loss = f"for {label_task.kind}" if loss.kind in LOSSES else "of Scopeline"
    yield Issue(
        "train.loss",
        f"{loss.kind!r} is no loss {kind_of_loss}; "
        + near_match_and(
            loss.kind, known, "A loss of yours is an import path, such as my_losses.asymmetric"
        ),
    )


def own_losses_are_of_one_number(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that a loss of the user's is not given with quantiles."""
    loss, task = train.loss, label_task
    if loss is not None and loss.is_custom and not task.takes_own_loss:
        yield Issue(
            "train.loss",
            f"found {loss.kind!r}, but with task.quantiles a model gives several numbers; use "
            f"{enumerate_names(losses_for(task.kind), 'or')}, or leave task.quantiles out",
        )


def averages_have_steps_in_order(train: TrainSettings) -> Iterator[Issue]:
    """Checks that averaged weights are not used with parameter servers, which have no last step."""
    strategy, ema = train.strategy, train.optimizer.ema
    if strategy.processes is Processes.SERVERS and ema:
        yield Issue(
            "train.optimizer.ema",
            f"found {ema:g}, but the workers of {strategy.kind} train asynchronously; remove this key",
        )


def averages_have_all_steps(train: TrainSettings) -> Iterator[Issue]:
    """Checks that loss scaling does not skip steps, after which weights are averaged."""
    precision, ema = train.precision, train.optimizer.ema
    if precision is Precision.MIXED_FLOAT16 and ema:
        yield Issue(
            "train.optimizer.ema",
            f"found {ema:g}, but the loss scaling of {precision} skips steps, so that an epoch "
            f"could end without averaged weights; use precision {Precision.MIXED_BFLOAT16}, or "
            "remove this key",
        )


def losses_can_be_scaled(train: TrainSettings) -> Iterator[Issue]:
    """Checks that the strategy allows loss scaling: each replica needs its own variables."""
    precision, strategy = train.precision, train.strategy
    if precision is Precision.MIXED_FLOAT16 and not strategy.scales_losses:
        yield Issue(
            "train.precision",
            f"found {precision}, but its loss scaling does not work under strategy "
            f"{strategy.kind}; use {Precision.MIXED_BFLOAT16}, or strategy {Strategy.MIRRORED}",
        )


def class_weights_have_classes(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that class weights are given only for classification."""
    if train.class_weights and not label_task.label_kind.is_classification:
        yield Issue(
            "train.class_weights",
            f"{label_task.kind} has no classes; remove this key, or use data.weight",
        )


def unread_train_keys_are_absent(
    model: ModelSettings, train: TrainSettings, tune: AnyTune | None, evaluate: EvaluateSettings
) -> Iterator[Issue]:
    """Checks that a `run_fn` of the user's does not come with keys that only our training reads."""
    unused_keys = {
        "model.transfer": (model.transfer, "does not read this key"),
        "train.augment": (train.augment, "does not augment pictures"),
        "train.checkpoints": (train.checkpoints, "has checkpoints of its own"),
        "tune": (tune, "does not read this key"),
        "evaluate.folds": (evaluate.folds, "does not train folds"),
    }
    for key, (value, reason) in unused_keys.items():
        if train.run_fn and value:
            yield Issue(key, f"{train.run_fn} {reason}; remove this key")


def workers_have_a_strategy(train: TrainSettings) -> Iterator[Issue]:
    """Checks that several workers are given only for strategies with several processes."""
    strategy = train.strategy
    runs_alone = strategy.processes is Processes.ONE and strategy.kind != Strategy.AUTO
    if train.cluster is None or not runs_alone:
        return
    if train.cluster.workers > 1:
        yield Issue(
            "train.cluster.workers",
            f"found {train.cluster.workers}, but strategy {strategy.kind} trains in one process; "
            f"use {enumerate_names(strategies_of_several_processes(), 'or')}, or leave `cluster` "
            "out",
        )


def servers_are_backed_up_by_epoch(train: TrainSettings) -> Iterator[Issue]:
    """Checks that backups by step are not used with parameter servers, which back up by epoch."""
    strategy = train.strategy
    if strategy.processes is Processes.SERVERS and train.backup_steps:
        yield Issue(
            "train.backup_steps",
            f"found {train.backup_steps}, but {strategy.kind} is backed up at the end of "
            "each epoch; remove this key",
        )


def step_settings_are_applicable(train: TrainSettings) -> Iterator[Issue]:
    """Checks that TensorBoard by step is used where each step is reported on its own."""
    strategy, board, together = train.strategy, train.tensorboard, train.steps_per_execution or 1
    if not board.looks_at_steps:
        return
    key = "train.tensorboard.profile" if board.profile else "train.tensorboard.every"
    if strategy.processes is Processes.SERVERS:
        yield Issue(key, f"the workers of {strategy.kind} train asynchronously; remove this key")
    elif together > 1:
        yield Issue(
            key,
            f"train.steps_per_execution is {together}; leave that key out, as TensorBoard needs "
            "each step",
        )


def replicas_share_the_batch(train: TrainSettings) -> Iterator[Issue]:
    """Checks that replicas divide the batch evenly, if the config gives their number."""
    size = train.batch_size
    if not isinstance(size, BatchSize) or size.of_all_replicas is None:
        return
    devices = getattr(train.strategy, "devices", None)
    replicas = len(devices) if devices else 1
    if train.strategy.processes is Processes.IN_STEP and train.cluster is not None:
        # Each worker has as many replicas as the others.
        replicas = train.cluster.workers
    try:
        share_batch(size.of_all_replicas, replicas)
    except TrainingError as error:
        found, _, right = str(error).rstrip(".").partition(" is ")
        yield Issue(found, f"found {right}")


def l2_is_for_built_in_models(model: ModelSettings, train: TrainSettings) -> Iterator[Issue]:
    """Checks that `l2` is given for our models only: other builders set regularizers themselves."""
    if train.l2 and model.is_custom and train.run_fn is None:
        yield Issue(
            "train.l2",
            f"found {train.l2:g}, but {model.kind} builds its own layers; set their "
            "kernel_regularizer there, and remove this key",
        )


ONE_DEVICE = (Strategy.DEFAULT, Strategy.ONE_DEVICE, Strategy.AUTO)
"""The strategies under which trees can be grown."""


def _grows(model: ModelSettings, train: TrainSettings) -> bool:
    """Returns whether our own training grows trees, which takes no steps."""
    return is_forest(model.kind) and train.run_fn is None


def trees_are_grown_on_one_device(model: ModelSettings, train: TrainSettings) -> Iterator[Issue]:
    """Checks that trees are grown on one machine: YDF uses its cores and shares no gradients."""
    kind = train.strategy.kind
    if _grows(model, train) and kind not in ONE_DEVICE:
        yield Issue(
            "train.strategy",
            f"found {kind}, but {model.kind} are grown on all cores of one machine; use "
            f"{enumerate_names(ONE_DEVICE, 'or')}",
        )


def trees_take_no_steps(model: ModelSettings, train: TrainSettings) -> Iterator[Issue]:
    """Checks that keys about epochs, batches and gradients are not given for trees."""
    if not _grows(model, train):
        return
    for key, field in TrainSettings.model_fields.items():
        if key not in READ_WITHOUT_STEPS and getattr(train, key) != field.default:
            yield Issue(
                f"train.{key}",
                f"{model.kind} train without steps and do not read this key; remove this key. They "
                f"read {enumerate_names(READ_WITHOUT_STEPS, 'and')}",
            )
    stopping = train.early_stopping
    if isinstance(stopping, EarlyStoppingSettings) and stopping.min_delta:
        yield Issue(
            "train.early_stopping.min_delta",
            f"found {stopping.min_delta:g}, but {model.kind} stop only by patience; remove this key",
        )


def trees_begin_from_scratch(
    model: ModelSettings, train: TrainSettings, schedule_or_default: ScheduleSettings
) -> Iterator[Issue]:
    """Checks that trees begin from scratch: YDF does not add trees to earlier ones."""
    if _grows(model, train) and schedule_or_default.warm_start:
        yield Issue(
            "schedule.warm_start",
            f"found true, but {model.kind} are grown from scratch, which takes seconds; "
            "remove this key",
        )


TRAIN_RULES = rules_of(__name__)


def augmented_are_pictures(
    features: dict[str, Feature], preprocessing: str | None, train: TrainSettings
) -> Iterator[Issue]:
    """Checks that augmentation has an image feature, or a preprocessing function that may make
    one.
    """
    if train.augment is None or preprocessing is not None:
        return
    if not any(isinstance(f, ImageFeature) for f in features.values()):
        yield Issue(
            "train.augment",
            "it changes pictures, but no feature is an image; remove this key, or give a column "
            "{type: image}",
        )


def mixed_labels_are_classes(label_task: BaseTask, train: TrainSettings) -> Iterator[Issue]:
    """Checks that mixup is used for classification: a mixed picture has no mixed number."""
    augment, task = train.augment, label_task
    if augment is not None and augment.mixup and not label_task.label_kind.is_classification:
        yield Issue(
            "train.augment.mixup",
            f"found {augment.mixup:g}, but task {task.kind} has no classes to mix; remove this key",
        )


def cutouts_leave_something(features: dict[str, Feature], train: TrainSettings) -> Iterator[Issue]:
    """Checks that a cutout covers at most a part of each picture."""
    cutout = train.augment.cutout if train.augment is not None else 0
    for name, feature in features.items():
        size = feature.size if isinstance(feature, ImageFeature) else None
        if size is not None and cutout >= min(size):
            yield Issue(
                "train.augment.cutout",
                f"found {cutout}, but image {name!r} is {size[0]}x{size[1]} pixels; "
                f"use at most half of its side, {min(size) // 2}",
            )


AUGMENT_RULES = rules_of(__name__, *TRAIN_RULES)
