"""Optimizer steps of fewer operations, with the same results but for rounding.

A step over a small table costs what its operations cost to start, hardly what they compute, and a
graph what it takes to trace them. Keras's Adam makes some 40 of them for each variable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.insides import Known, is_known

_KNOWN: Known = {
    "tf_keras.src.optimizers.optimizer": {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._distributed_apply_gradients_fn": "986188cdff85",
        "_BaseOptimizer._deduplicate_sparse_grad": "db99677e74f4",
        "_BaseOptimizer._var_key": "d8061d80b610",
    },
    "tf_keras.src.optimizers.adam": {"Adam": "68ebf5935253"},
    "tf_keras.src.optimizers.adamw": {"AdamW": "3c2168283f07"},
}
"""The steps that those here come to the same as."""

MOST_DENSE = 1 << 18
"""Numbers of an embedding whose gradient is added up over all of its rows, at most: 1 MiB."""


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


class DenseGradients:
    """Turns the gradients of small embeddings into tensors before the step.

    Every optimizer of Keras updates all rows in any case, and takes several operations more to do
    so for the rows that came up.
    """

    def _deduplicate_sparse_grad(self, gradients: Iterable[Any]) -> list[Any]:
        """Keras's adds up the rows that came up; it has clipped the gradients before."""
        dense = [_dense(gradient) for gradient in gradients]
        return list(super()._deduplicate_sparse_grad(dense))  # type: ignore[misc]


class SharedFactors:
    """Computes once in a step what Adam and AdamW compute for each variable.

    Kingma and Ba, 2014, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980.
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
        """One step of one variable."""
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


def with_lean_steps(
    optimizer: type[tf_keras.optimizers.Optimizer], shares_factors: bool
) -> type[tf_keras.optimizers.Optimizer]:
    """The same optimizer; it keeps its name, by which Keras knows a saved one.

    Where Keras's steps are not those that the ones here replace, Keras's are taken.

    Args:
      optimizer: of Keras.
      shares_factors: whether it is Adam or AdamW with one learning rate for all variables.
    """
    if not _is_known():
        return optimizer
    parts = (DenseGradients, *((SharedFactors,) if shares_factors else ()))
    return type(optimizer.__name__, (*parts, optimizer), {})


@cache
def _is_known() -> bool:
    return is_known(_KNOWN, "by the steps of Keras's own optimizers")


def _dense(gradient: Any) -> Any:
    if not isinstance(gradient, tf.IndexedSlices) or not gradient.shape.is_fully_defined():
        return gradient
    is_small = gradient.shape.num_elements() <= MOST_DENSE
    return tf.convert_to_tensor(gradient) if is_small else gradient
