"""An optimizer that leaves pruned weights at zero, under every strategy and in both loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.insides import Known, require_known

if TYPE_CHECKING:  # It imports TFMOT, which trainings that do not prune do without.
    from trainer_module.training.compression.masks import PruningPlan


_KNOWN: Known = {
    "tf_keras.src.optimizers.optimizer": {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._internal_apply_gradients": "a498e8724c52",
        "Optimizer._distributed_apply_gradients_fn": "986188cdff85",
        "Optimizer._trackable_children": "d1e60f4cf033",
    }
}
"""How Keras comes to the step that masks follow, and what it keeps of an optimizer."""


class PruningOptimizer:
    """Multiplies weights by masks after each step; the masks are part of what is backed up."""

    _plan: PruningPlan | None = None

    def prune(self, plan: PruningPlan) -> None:
        """Takes what is to be pruned, before it is built.

        Raises:
          InternalError: Keras's optimizers are not those that masks would be applied in.
        """
        require_known(_KNOWN, "optimize.prune")
        self._plan = plan

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Makes the masks, of ones."""
        super().build(var_list)  # type: ignore[misc]
        if self._plan is None or hasattr(self, "_masks"):
            return
        self._masks = []
        for weight in self._plan.weights:
            strategy = tf.distribute.get_strategy()
            with strategy.extended.colocate_vars_with(weight.variable):
                name = f"mask/{weight.name}"
                ones = tf.ones(weight.variable.shape)
                self._masks.append(tf.Variable(ones, trainable=False, name=name))

    def strip(self) -> None:
        """Forgets the masks, when training is over: the weights are zero by themselves."""
        if self._plan is not None:
            self._plan = None
            del self._masks
            # Keras remembers what it has put into a checkpoint, for what is exported as well.
            vars(self).get("_coalesced_children", {}).pop("_masks", None)

    def _distributed_apply_gradients_fn(
        self, distribution: tf.distribute.Strategy, grads_and_vars: Any, **options: Any
    ) -> Any:
        """After the step of Keras's, and its average over steps, where there is one."""
        step = self.iterations + 1  # type: ignore[attr-defined]
        done = super()._distributed_apply_gradients_fn(  # type: ignore[misc]
            distribution, grads_and_vars, **options
        )
        if self._plan is None:
            return done
        is_due = self._plan.is_due(step)
        for weight, mask in zip(self._plan.weights, self._masks, strict=True):
            distribution.extended.update(
                weight.variable, self._apply_mask, args=(mask, step, is_due), group=False
            )
        return done

    def _apply_mask(
        self, weight: tf.Variable, mask: tf.Variable, step: tf.Tensor, is_due: tf.Tensor
    ) -> None:
        """On one replica; all of them come to the same, as their weights are the same."""
        plan = self._plan
        assert plan is not None  # noqa: S101 - else nobody calls it
        values = tf.convert_to_tensor(weight)
        tf.cond(
            is_due,
            lambda: tf.group(mask.assign(plan.make_mask(values, step))),
            lambda: tf.no_op(),
        )
        weight.assign(values * mask)


def pruning_of(model: tf_keras.Model) -> PruningPlan | None:
    """What training makes zero in a compiled model; None if nothing."""
    optimizer = _inner_optimizer(model)
    return optimizer._plan if isinstance(optimizer, PruningOptimizer) else None


def strip_pruning(model: tf_keras.Model) -> None:
    """Has the optimizer of a model that was pruned forget its masks."""
    _inner_optimizer(model).strip()


def _inner_optimizer(model: tf_keras.Model) -> tf_keras.optimizers.Optimizer:
    # Loss scaling wraps the optimizer, and does not hand on what it does not know.
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def with_pruning(
    optimizer: type[tf_keras.optimizers.Optimizer],
) -> type[tf_keras.optimizers.Optimizer]:
    """The same optimizer with `prune`; it keeps its name, by which Keras knows a saved one."""
    return type(optimizer.__name__, (PruningOptimizer, optimizer), {})
