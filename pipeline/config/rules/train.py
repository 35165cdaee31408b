"""What has to hold between the keys of `train`, and between them and the rest of a config."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.issues import Issue, near_match
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import enumerate_names
from trainer_module.settings import EarlyStoppingSettings, Precision, Strategy, TrainSettings
from trainer_module.settings.model import is_grown
from trainer_module.settings.train import LOSSES, READ_WITHOUT_STEPS, losses_for
from trainer_module.strategies import strategies_of_several_processes
from trainer_module.strategies.base import Processes


def loss_fits_the_task(config: PipelineConfig) -> Iterator[Issue]:
    """A loss of ours is for some tasks; one of the user's is their affair."""
    loss, known = config.train.loss, losses_for(config.target.kind)
    if loss is None or loss.is_custom or loss.kind in known:
        return
    what = f"for {config.target.kind}" if loss.kind in LOSSES else "of ours"
    yield Issue(
        "train.loss",
        f"{loss.kind!r} is no loss {what}; {near_match(loss.kind, known)} "
        "A loss of yours is an import path, such as my_losses.asymmetric",
    )


def own_losses_are_of_one_number(config: PipelineConfig) -> Iterator[Issue]:
    """A loss of the user's knows nothing of quantiles."""
    loss, task = config.train.loss, config.target
    if loss is not None and loss.is_custom and not task.takes_own_loss:
        yield Issue(
            "train.loss",
            f"found {loss.kind!r}, but with task.quantiles a model gives several numbers; use "
            f"{enumerate_names(losses_for(task.kind), 'or')}, or leave task.quantiles out",
        )


def averages_have_steps_in_order(config: PipelineConfig) -> Iterator[Issue]:
    """The workers of parameter servers have no common last step of an epoch."""
    strategy, ema = config.train.strategy, config.train.optimizer.ema
    if strategy.processes is Processes.SERVERS and ema:
        yield Issue(
            "train.optimizer.ema",
            f"found {ema:g}, but the workers of {strategy.kind} take their steps in no order; "
            "leave it out",
        )


def averages_have_all_steps(config: PipelineConfig) -> Iterator[Issue]:
    """Steps that loss scaling skips do not count: averages would come after an epoch's end."""
    precision, ema = config.train.precision, config.train.optimizer.ema
    if precision is Precision.MIXED_FLOAT16 and ema:
        yield Issue(
            "train.optimizer.ema",
            f"found {ema:g}, but the loss scaling of {precision} skips steps, so that epochs would "
            f"not end with the average; use precision {Precision.MIXED_BFLOAT16}, or leave it out",
        )


def losses_can_be_scaled(config: PipelineConfig) -> Iterator[Issue]:
    """Keras scales a loss only where each replica has variables of its own."""
    precision, strategy = config.train.precision, config.train.strategy
    if precision is Precision.MIXED_FLOAT16 and not strategy.scales_losses:
        yield Issue(
            "train.precision",
            f"found {precision}, but its loss scaling does not work under strategy "
            f"{strategy.kind}; use {Precision.MIXED_BFLOAT16}, or strategy {Strategy.MIRRORED}",
        )


def class_weights_have_classes(config: PipelineConfig) -> Iterator[Issue]:
    """A number to predict has no classes."""
    if config.train.class_weights and not config.task.is_classification:
        yield Issue(
            "train.class_weights",
            f"{config.target.kind} has no classes; leave it out, or use data.weight",
        )


def checkpoints_are_of_our_training(config: PipelineConfig) -> Iterator[Issue]:
    """Whoever trains otherwise keeps checkpoints as they like."""
    if config.train.run_fn and config.train.checkpoints:
        yield Issue("train.checkpoints", f"{config.train.run_fn} keeps its own; leave it out")


def folds_are_of_our_training(config: PipelineConfig) -> Iterator[Issue]:
    """Whoever trains otherwise trains once: nobody would deal out the folds."""
    if config.train.run_fn and config.evaluate.folds:
        yield Issue(
            "evaluate.folds",
            f"found {config.evaluate.folds}, but {config.train.run_fn} trains in its own way, "
            "without folds; leave it out",
        )


def workers_have_a_strategy(config: PipelineConfig) -> Iterator[Issue]:
    """Only some strategies train in several processes."""
    train = config.train
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


def servers_are_backed_up_by_epoch(config: PipelineConfig) -> Iterator[Issue]:
    """The workers of parameter servers have no step in common but an epoch's last."""
    strategy = config.train.strategy
    if strategy.processes is Processes.SERVERS and config.train.backup_steps:
        yield Issue(
            "train.backup_steps",
            f"found {config.train.backup_steps}, but {strategy.kind} is backed up at the end of "
            "each epoch; leave it out",
        )


ONE_DEVICE = (Strategy.DEFAULT, Strategy.ONE_DEVICE, Strategy.AUTO)
"""What trees are grown under."""


def _grows(config: PipelineConfig) -> bool:
    """Whether our own training grows trees, and takes no steps."""
    return is_grown(config.model.kind) and config.train.run_fn is None


def trees_are_grown_on_one_device(config: PipelineConfig) -> Iterator[Issue]:
    """YDF grows them on the cores of this machine: there are no gradients to share."""
    kind = config.train.strategy.kind
    if _grows(config) and kind not in ONE_DEVICE:
        yield Issue(
            "train.strategy",
            f"found {kind}, but {config.model.kind} are grown on one machine, by all its cores; "
            f"use {enumerate_names(ONE_DEVICE, 'or')}",
        )


def trees_take_no_steps(config: PipelineConfig) -> Iterator[Issue]:
    """What is said of epochs, batches and gradients would be said in vain."""
    if not _grows(config):
        return
    for key, field in TrainSettings.model_fields.items():
        if key not in READ_WITHOUT_STEPS and getattr(config.train, key) != field.default:
            yield Issue(
                f"train.{key}",
                f"{config.model.kind} are not trained in steps, and do not read it; leave it out. "
                f"They read {enumerate_names(READ_WITHOUT_STEPS, 'and')}",
            )
    stopping = config.train.early_stopping
    if isinstance(stopping, EarlyStoppingSettings) and stopping.min_delta:
        yield Issue(
            "train.early_stopping.min_delta",
            f"found {stopping.min_delta:g}, but {config.model.kind} stop by patience alone; leave "
            "it out",
        )


def trees_begin_from_scratch(config: PipelineConfig) -> Iterator[Issue]:
    """YDF adds no trees to those of another training."""
    if _grows(config) and config.schedule_or_default.warm_start:
        yield Issue(
            "schedule.warm_start",
            f"found true, but {config.model.kind} are grown from scratch, which takes seconds; "
            "leave it out",
        )


TRAIN_RULES = (
    loss_fits_the_task,
    own_losses_are_of_one_number,
    averages_have_steps_in_order,
    averages_have_all_steps,
    losses_can_be_scaled,
    class_weights_have_classes,
    checkpoints_are_of_our_training,
    folds_are_of_our_training,
    workers_have_a_strategy,
    servers_are_backed_up_by_epoch,
    trees_are_grown_on_one_device,
    trees_take_no_steps,
    trees_begin_from_scratch,
)
"""All rules of this module."""
