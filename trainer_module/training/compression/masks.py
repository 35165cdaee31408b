"""Masks of ones and zeros, as tensorflow-model-optimization makes them, for a network's weights.

Its own wrappers, `prune_low_magnitude`, would put a layer around each layer of a clone of the
model. That takes Keras's own layers alone, gives layers other names than a warm start, layer-wise
rates and fine-tuning go by, needs a callback before each step, which several steps in one graph do
not have, and masks weights before a step alone, so that what is backed up is not what is kept. So
its schedules and its choice of weights are used, and the optimizer applies them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras
from tensorflow_model_optimization.python.core.sparsity.keras.pruning_impl import Pruning
from tensorflow_model_optimization.python.core.sparsity.keras.pruning_schedule import (
    ConstantSparsity,
    PolynomialDecay,
    PruningSchedule,
)

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.settings.optimize import BlockStructure, PruneSettings
from trainer_module.training.compression.schedule import PruningSteps, plan_steps
from trainer_module.training.compression.weights import PrunableWeight, find_weights

MATRIX = 2
RANKS_OF_2BY4 = (MATRIX, 4)
"""Dimensions of the weights that TFMOT knows the pattern for: dense layers, and convolutions."""


@dataclass(frozen=True)
class PruningPlan:
    """Which weights are pruned, when, and to what."""

    weights: Sequence[PrunableWeight]
    steps: PruningSteps
    schedule: PruningSchedule
    make_mask: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    """From a weight and the steps that are done to 1 where it stays and 0 where it goes."""
    notes: Sequence[str]
    """For people."""

    def is_due(self, step: tf.Tensor) -> tf.Tensor:
        """Whether the masks are made anew when so many steps are done."""
        return self.schedule(step)[0]

    @property
    def sparsity(self) -> dict[str, Any]:
        """The share of the pruned weights that are zero, in 4 digits: `overall`, and by layer."""
        zeros: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for weight in self.weights:
            values = weight.variable.numpy()
            zeros[weight.layer] += int((values == 0).sum())
            sizes[weight.layer] += values.size
        layers = {layer: round(zeros[layer] / size, 4) for layer, size in sizes.items()}
        return {"overall": round(zeros.total() / sizes.total(), 4), "layers": layers}


def plan_pruning(model: tf_keras.Model, prune: PruneSettings, steps: int) -> PruningPlan:
    """What is pruned of a model.

    Args:
      model: that is built.
      prune: how much of it, when, and in which structure.
      steps: of the training, as it is planned.

    Raises:
      TrainingError: none of its weights can be pruned so, or it is not known of a layer.
    """
    planned = plan_steps(prune, steps)
    schedule = _schedule(prune, planned)
    found = find_weights(model)
    able = [weight for weight in found if _fits(weight, prune)]
    whole = [weight.name for weight in found if weight not in able]
    if not able:
        raise TrainingError(_why_none(prune, whole))
    block = tuple(prune.structure.block) if isinstance(prune.structure, BlockStructure) else (1, 1)

    def make_mask(weight: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        pruning = Pruning(
            lambda: step, [], schedule, block, "AVG", (2, 4) if prune.is_2by4 else None
        )
        return pruning._maybe_update_block_mask(weight)[1]

    notes = [f"optimize.prune: {_sentence(prune, whole)}"] if whole else []
    return PruningPlan(able, planned, schedule, make_mask, notes)


def _schedule(prune: PruneSettings, steps: PruningSteps) -> PruningSchedule:
    if prune.is_constant:
        return ConstantSparsity(prune.sparsity, steps.begin, frequency=steps.every)
    return PolynomialDecay(0.0, prune.sparsity, steps.begin, steps.end, frequency=steps.every)


def _fits(weight: PrunableWeight, prune: PruneSettings) -> bool:
    """Whether TFMOT can give a weight the structure."""
    shape = weight.variable.shape
    if isinstance(prune.structure, BlockStructure):
        if shape.rank != MATRIX:
            return False
        # TFMOT loses a dimension in which there is one block alone.
        return all(size > block for size, block in zip(shape, prune.structure.block, strict=True))
    return not prune.is_2by4 or shape.rank in RANKS_OF_2BY4


def _why_none(prune: PruneSettings, whole: Sequence[str]) -> str:
    if not whole:
        return (
            "optimize.prune: the model has no weights that can be pruned, such as a dense layer's; "
            "leave it out."
        )
    return (
        f"optimize.prune.structure: {_sentence(prune, whole)}, and there are no others; leave the "
        "structure out."
    )


def _sentence(prune: PruneSettings, whole: Sequence[str]) -> str:
    if prune.is_2by4:
        reason = "2by4 is for weights of dense layers and convolutions of pictures"
    else:
        reason = "blocks are for weights of two dimensions, each of several blocks"
    verb = "stay" if len(whole) > 1 else "stays"
    return f"{reason}: {enumerate_names(whole, 'and')} {verb} whole"
