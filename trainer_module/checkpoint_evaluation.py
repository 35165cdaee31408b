"""A checkpoint restored and evaluated, in one process, whatever strategy it was trained under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.runtime import Runtime, StrategyChoice
from trainer_module.settings import DefaultStrategy, Strategy
from trainer_module.training.building import build_model
from trainer_module.training.checkpoint import read_checkpoint, read_notes, without_optimizer
from trainer_module.training.plan import open_inputs


@dataclass(frozen=True)
class CheckpointEvaluation:
    """What a checkpoint comes to on the eval split."""

    epoch: int
    """Epochs that had ended when it was saved."""
    examples: int
    metrics: Mapping[str, float]
    """The loss and the metrics that training shows, by name."""


def evaluate_checkpoint(fn_args: Any, path: str) -> CheckpointEvaluation:
    """Builds the model of a training anew, restores its weights and evaluates it.

    Args:
      fn_args: as `run_fn` takes them; nothing is written.
      path: of the checkpoint, without the ending of a file.

    Raises:
      TrainingError: the model is not the one that was saved.
    """
    default = StrategyChoice(strategy=DefaultStrategy(kind=Strategy.DEFAULT))
    inputs = open_inputs(fn_args, runtime=Runtime(choice=default))
    settings, data = inputs.settings, inputs.data
    model = build_model(data.problem, settings, inputs.strategy, data.train.steps)
    try:
        with without_optimizer(model):  # It depends on the phase, or may be left out.
            status = read_checkpoint(path, model)
            status.assert_existing_objects_matched()
            status.expect_partial()
    except (AssertionError, ValueError) as error:
        raise TrainingError(
            f"{path} does not fit the model {settings.model.kind!r}, whose code may have changed "
            f"since: {str(error).splitlines()[0]}"
        ) from error
    batches = data.evaluation.batches(tf.distribute.InputContext())
    metrics = model.evaluate(batches, verbose=0, return_dict=True)
    return CheckpointEvaluation(read_notes(path)["epoch"], data.evaluation.examples, metrics)
