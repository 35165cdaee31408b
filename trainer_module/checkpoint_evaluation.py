"""Restores and evaluates a checkpoint in one process, independent of the training's strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.runtime import StrategyChoice, WorkerContext
from trainer_module.settings import DefaultStrategy, Strategy
from trainer_module.training.building import BIAS_FACTOR, build_model
from trainer_module.training.checkpoint import read_checkpoint, read_notes, without_optimizer
from trainer_module.training.plan import open_inputs


@dataclass(frozen=True)
class CheckpointEvaluation:
    """The result of evaluating a checkpoint on the eval split."""

    epoch: int
    """The number of epochs that had ended when the checkpoint was saved."""
    examples: int
    metrics: Mapping[str, float]
    """The loss and the metrics that training measures, by name."""


def evaluate_checkpoint(fn_args: Any, path: str) -> CheckpointEvaluation:
    """Rebuilds the model of a training, restores the weights of a checkpoint and evaluates the
    model.

    Args:
      fn_args: the arguments of `run_fn`; the function writes no files.
      path: the path of the checkpoint, without a file extension.

    Raises:
      TrainingError: the checkpoint does not fit the model.
    """
    default = StrategyChoice(strategy=DefaultStrategy(kind=Strategy.DEFAULT))
    inputs = open_inputs(fn_args, runtime=WorkerContext(choice=default))
    settings, data = inputs.settings, inputs.data
    model = build_model(data.problem, settings, inputs.strategy, data.train.steps)
    try:
        with without_optimizer(model):  # Some checkpoints hold weights alone.
            status = read_checkpoint(path, model)
            status.assert_existing_objects_matched()
            status.expect_partial()
    except (AssertionError, ValueError) as error:
        raise TrainingError(
            f"checkpoint {path} does not fit the model {settings.model.kind!r}; the code of the "
            f"model may have changed after the checkpoint was saved: {str(error).splitlines()[0]}"
        ) from error
    batches = data.evaluation.batches(tf.distribute.InputContext())
    metrics = model.evaluate(batches, verbose=0, return_dict=True)
    metrics.pop(BIAS_FACTOR, None)
    return CheckpointEvaluation(read_notes(path)["epoch"], data.evaluation.examples, metrics)
