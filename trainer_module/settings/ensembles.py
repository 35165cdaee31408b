"""The settings under which an ensemble can be trained."""

from __future__ import annotations

from trainer_module.settings.model import ENSEMBLE, NETWORK_MEMBER, TEXT_NETWORK, ZOO
from trainer_module.settings.optimize import WhileTraining
from trainer_module.settings.tasks import LearningTask
from trainer_module.settings.train import TrainSettings, is_usual
from trainer_module.strategies.base import BaseStrategy, Processes, Strategy


def ensemble_obstacle(target: LearningTask, train: TrainSettings, optimize: WhileTraining) -> str:
    """Returns a key with its value that excludes an ensemble; empty if an ensemble can be trained.

    The trees of an ensemble are grown in one process and learn the default loss of their tasks.
    """
    if target.kind not in ZOO[ENSEMBLE].tasks:
        return f"task: {target.kind}"
    if target.has_options:
        return f"`task: {target.kind}` with options"
    if train.run_fn:
        return f"train.run_fn: {train.run_fn}"
    if not grows_trees(train.strategy):
        return f"train.strategy: {train.strategy.kind}"
    if train.strategy.kind is Strategy.AUTO and train.cluster and train.cluster.workers > 1:
        return f"train.cluster.workers: {train.cluster.workers}"
    if train.loss and not is_usual(train.loss.kind, target.kind):
        return f"train.loss: {train.loss.kind}"
    return "optimize.prune or optimize.quantize" if optimize.changes_training else ""


def describe_default(kind: str, obstacle: str) -> str:
    """Returns a note on the default model if an obstacle has excluded an ensemble; else empty."""
    if kind not in (NETWORK_MEMBER, TEXT_NETWORK):
        return ""
    return f"model: {kind}, as {obstacle} excludes an {ENSEMBLE}"


def grows_trees(strategy: BaseStrategy) -> bool:
    """Returns whether the trees of an ensemble can be grown where a strategy trains the network."""
    return strategy.processes is Processes.ONE and strategy.kind is not Strategy.TPU
