"""The insides of tf_keras 2.21's optimizers that ours come in between, override or replace.

Keras's public way to an optimizer of one's own is a subclass with `build`, `update_step` and
`get_config`. It has none to what is done between the gradients and the update of a variable, nor
after the updates of all of them. All of this is done by subclasses: Keras's own classes stay as
they are, and so do the names of what they save.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import tensorflow as tf
import tf_keras

from trainer_module.compat.insides import Known, is_known, require_known

_OPTIMIZER = "tf_keras.src.optimizers.optimizer"

_RATES: Known = {
    _OPTIMIZER: {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._apply_weight_decay": "b2843b5a5dc0",
        "_BaseOptimizer._update_step": "4c0770e33d85",
        "_BaseOptimizer._update_step_xla": "54562363a4c3",
    }
}
"""Where Keras reads the rate of a variable."""

_CURRENT_RATE: Known = {
    _OPTIMIZER: {
        "_BaseOptimizer._build_learning_rate": "3f6247bba8ac",
        "_BaseOptimizer._compute_current_learning_rate": "0682fe97e731",
        "_BaseOptimizer.learning_rate": "839634efa0d7",
    }
}
"""Where Keras makes the variable with the rate of a step, assigns it and reads it."""

_UPDATES: Known = {
    _OPTIMIZER: {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._internal_apply_gradients": "a498e8724c52",
        "Optimizer._distributed_apply_gradients_fn": "986188cdff85",
        "Optimizer._trackable_children": "d1e60f4cf033",
    }
}
"""How Keras comes to the updates, and what it keeps of an optimizer that it has saved."""

_FUSED: Known = {
    _OPTIMIZER: {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._distributed_apply_gradients_fn": "986188cdff85",
        "_BaseOptimizer._deduplicate_sparse_grad": "db99677e74f4",
        "_BaseOptimizer._var_key": "d8061d80b610",
    },
    "tf_keras.src.optimizers.adam": {"Adam": "68ebf5935253"},
    "tf_keras.src.optimizers.adamw": {"AdamW": "3c2168283f07"},
}
"""The updates that those here come to the same as."""

MOST_DENSE = 1 << 18
"""Numbers of an embedding whose gradient is added up over all of its rows, at most: 1 MiB."""


class RatesByVariable:
    """An optimizer that multiplies its rate, and so its weight decay, by a factor of each variable.

    Overrides `Optimizer._apply_weight_decay`, and counts on Keras's reading `learning_rate` anew
    for every variable. The public way is an optimizer for each group of variables, which would clip
    the gradients of each group by themselves. Refuses where Keras is another one: weights would be
    learnt at rates that nobody has given.
    """

    rates_used_for: ClassVar[str]
    """The key of the config that cannot be relied on with another Keras."""
    _factor = 1.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Takes what the optimizer takes.

        Raises:
          InternalError: Keras's optimizers are not those in which the rate is multiplied.
        """
        require_known(_RATES, self.rates_used_for)
        super().__init__(*arguments, **options)

    def rate_factor(self, variable: tf.Variable) -> float:
        """Returns what the rate of a variable is multiplied by; subclasses say so."""
        raise NotImplementedError

    @property
    def learning_rate(self) -> Any:
        """The rate; while a variable is updated, its own."""
        rate = super().learning_rate  # type: ignore[misc]
        return rate if self._factor == 1 else rate * self._factor

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        tf_keras.optimizers.Optimizer.learning_rate.fset(self, rate)

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Updates one variable, at its rate."""
        with self._at(self.rate_factor(variable)):
            super().update_step(gradient, variable)  # type: ignore[misc]

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        for factor, alike in itertools.groupby(
            sorted(variables, key=self.rate_factor), key=self.rate_factor
        ):
            with self._at(factor):
                super()._apply_weight_decay(list(alike))  # type: ignore[misc]

    @contextlib.contextmanager
    def _at(self, factor: float) -> Iterator[None]:
        self._factor = factor
        try:
            yield
        finally:
            self._factor = 1.0


class AfterUpdates:
    """An optimizer that does something in each step once all variables are updated.

    Overrides `Optimizer._distributed_apply_gradients_fn`. The public ways come too early, as
    `update_step` does, which averages of the weights follow, or run in Python after each call of
    the training function, as callbacks do, which may take several steps. Refuses where Keras is
    another one: `after_updates` might never be called.
    """

    updates_used_for: ClassVar[str]
    """The key of the config that cannot be relied on with another Keras."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Takes what the optimizer takes.

        Raises:
          InternalError: Keras's optimizers do not come to their updates as they are known to.
        """
        require_known(_UPDATES, self.updates_used_for)
        super().__init__(*arguments, **options)

    def after_updates(self, distribution: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Does what is to be done, outside of all replicas; subclasses say what.

        Args:
          distribution: the strategy, whose `extended.update` changes variables.
          step: how many steps are done with this one.
        """
        raise NotImplementedError

    def forget_saved(self, name: str) -> None:
        """Leaves an attribute out of all that is saved from now on.

        Keras remembers what it has once put into a checkpoint, for what is exported as well.
        """
        vars(self).get("_coalesced_children", {}).pop(name, None)

    def _distributed_apply_gradients_fn(
        self, distribution: tf.distribute.Strategy, grads_and_vars: Any, **options: Any
    ) -> Any:
        """Keras's, with its average over steps, where there is one; then what follows."""
        step = self.iterations + 1  # type: ignore[attr-defined]
        done = super()._distributed_apply_gradients_fn(  # type: ignore[misc]
            distribution, grads_and_vars, **options
        )
        self.after_updates(distribution, step)
        return done


def let_replicas_share_rate(
    optimizer: tf_keras.optimizers.Optimizer,
    schedule: tf_keras.optimizers.schedules.LearningRateSchedule,
) -> None:
    """Lets replicas that share variables, those of CentralStorageStrategy, assign the current rate.

    Replaces the variable `_current_learning_rate`, as Keras's own has no aggregation, without which
    such replicas may not assign it. There is no public way but a rate that a callback assigns,
    which would be one rate for all steps of an execution. Refuses where Keras is another one: the
    rate would not be the schedule's.

    Args:
      optimizer: with this schedule, before its first step.
      schedule: by the number of the step.

    Raises:
      InternalError: Keras keeps the current rate in another way.
    """
    require_known(_CURRENT_RATE, "a schedule of train.learning_rate")
    optimizer._current_learning_rate = tf.Variable(
        schedule(0), trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
    )


def with_fused_updates(
    optimizer: type[tf_keras.optimizers.Optimizer], shares_factors: bool
) -> type[tf_keras.optimizers.Optimizer]:
    """Returns the same optimizer with updates of fewer operations, which differ by rounding alone.

    A step over a small table costs what its operations cost to start, hardly what they compute, and
    a graph what it takes to trace them. Keras's Adam makes some 40 of them for each variable. Where
    Keras is another one, its own updates are taken, and the log says so once.

    Args:
      optimizer: of Keras; it keeps its name, by which Keras knows a saved one.
      shares_factors: whether it is Adam or AdamW with one learning rate for all variables.
    """
    if not _is_fused_known():
        return optimizer
    parts = (DenseGradients, *((SharedFactors,) if shares_factors else ()))
    return type(optimizer.__name__, (*parts, optimizer), {})


@cache
def _is_fused_known() -> bool:
    return is_known(_FUSED, "by the steps of Keras's own optimizers")


class DenseGradients:
    """Turns the gradients of small embeddings into tensors before the update.

    Overrides `_BaseOptimizer._deduplicate_sparse_grad`: every optimizer of Keras updates all rows
    in any case, and takes several operations more to do so for the rows that came up. The public
    place, `aggregate_gradients`, is before gradients are clipped, which goes by the rows that came
    up.
    """

    def _deduplicate_sparse_grad(self, gradients: Iterable[Any]) -> list[Any]:
        dense = [_dense(gradient) for gradient in gradients]
        return list(super()._deduplicate_sparse_grad(dense))  # type: ignore[misc]


@dataclass(frozen=True)
class _Factors:
    """What the updates of all variables in a step have in common."""

    rate: tf.Tensor
    """The learning rate with both corrections for the first steps."""
    new_mean: tf.Tensor
    """How much of a gradient goes into the mean of the gradients."""
    new_square: tf.Tensor
    """Likewise for the mean of their squares."""
    epsilon: tf.Tensor


class SharedFactors:
    """Computes once in a step what Adam and AdamW compute for each variable.

    Overrides `Optimizer._distributed_apply_gradients_fn`, and replaces `update_step`, which reads
    Keras's `_momentums`, `_velocities` and `_index_dict`. In the public `update_step` alone, which
    sees one variable, nothing can be shared. Kingma and Ba, 2014, "Adam: A Method for Stochastic
    Optimization", arXiv:1412.6980.
    """

    _factors: _Factors | None = None

    def _distributed_apply_gradients_fn(self, *arguments: Any, **options: Any) -> Any:
        """Keras's, with the factors at hand."""
        # What XLA compiles is a graph of its own, which is kept for other steps.
        self._factors = None if self.jit_compile else self._make_factors()  # type: ignore[attr-defined]
        try:
            return super()._distributed_apply_gradients_fn(  # type: ignore[misc]
                *arguments, **options
            )
        finally:
            self._factors = None

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Updates one variable."""
        factors, place = self._factors, self._place(variable)
        if factors is None or variable.dtype != tf.float32 or not isinstance(gradient, tf.Tensor):
            super().update_step(gradient, variable)  # type: ignore[misc]
            return
        mean, square = self._momentums[place], self._velocities[place]  # type: ignore[attr-defined]
        new_mean = mean + (gradient - mean) * factors.new_mean
        new_square = square + (tf.square(gradient) - square) * factors.new_square
        mean.assign(new_mean)
        square.assign(new_square)
        variable.assign_sub(new_mean * factors.rate / (tf.sqrt(new_square) + factors.epsilon))

    def _place(self, variable: tf.Variable) -> int:
        place: int = self._index_dict[self._var_key(variable)]  # type: ignore[attr-defined]
        return place

    def _make_factors(self) -> _Factors:
        optimizer: Any = self
        step = tf.cast(optimizer.iterations + 1, tf.float32)
        mean, square = (tf.constant(b, tf.float32) for b in (optimizer.beta_1, optimizer.beta_2))
        rate = tf.cast(optimizer.learning_rate, tf.float32)
        return _Factors(
            rate * tf.sqrt(1 - tf.pow(square, step)) / (1 - tf.pow(mean, step)),
            tf.constant(1 - optimizer.beta_1, tf.float32),
            tf.constant(1 - optimizer.beta_2, tf.float32),
            tf.constant(optimizer.epsilon, tf.float32),
        )


def _dense(gradient: Any) -> Any:
    if not isinstance(gradient, tf.IndexedSlices) or not gradient.shape.is_fully_defined():
        return gradient
    is_small = gradient.shape.num_elements() <= MOST_DENSE
    return tf.convert_to_tensor(gradient) if is_small else gradient
