"""Learning rates that fall from the top of a network to its bottom.

What the lower layers have learnt from other data serves any task; those next to the output have
more to learn anew (Howard and Ruder, 2018, arXiv:1801.06146; ELECTRA, arXiv:2003.10555).
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.insides import Known, require_known

_KNOWN: Known = {
    "tf_keras.src.optimizers.optimizer": {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._apply_weight_decay": "b2843b5a5dc0",
        "_BaseOptimizer._update_step": "4c0770e33d85",
        "_BaseOptimizer._update_step_xla": "54562363a4c3",
    }
}
"""Where Keras reads the rate of a variable."""

BLOCK = re.compile(r"(?:^|/)bert_layer_(\d+)_")
"""The number of the block that a variable belongs to, as names in the zoo have it."""
BOTTOM = re.compile(r"(?:^|/)bert_(words|positions|types|embeddings)")
"""Variables below the first block."""


def depth_of(name: str) -> int | None:
    """How many layers are below a variable; None of one above all blocks."""
    if block := BLOCK.search(name):
        return int(block[1]) + 1
    return 0 if BOTTOM.search(name) else None


class LayerDecay:
    """Makes the rate of an optimizer, and so its weight decay, smaller layer by layer downwards."""

    def decay_by_layer(self, decay: float) -> None:
        """Multiplies the rate by `decay` for each layer that a variable is away from the top.

        Raises:
          InternalError: Keras's optimizers are not those in which the rate is multiplied.
        """
        require_known(_KNOWN, "train.optimizer.layer_decay")
        self._layer_decay, self._factor, self._top = decay, 1.0, 0

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Counts the layers."""
        depths = (depth_of(variable.name) for variable in var_list)
        self._top = 1 + max((depth for depth in depths if depth is not None), default=-1)
        super().build(var_list)  # type: ignore[misc]

    def factor_of(self, name: str) -> float:
        """What the rate of a variable is multiplied by."""
        depth = depth_of(name)
        return 1.0 if depth is None else float(self._layer_decay ** (self._top - depth))

    @property
    def learning_rate(self) -> Any:
        """The rate; while a variable is updated, its own."""
        rate = super().learning_rate  # type: ignore[misc]
        return rate if self._factor == 1 else rate * self._factor

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        tf_keras.optimizers.Optimizer.learning_rate.fset(self, rate)

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """One step of one variable."""
        with self._at(self.factor_of(variable.name)):
            super().update_step(gradient, variable)  # type: ignore[misc]

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        for factor, alike in itertools.groupby(
            sorted(variables, key=self._factor_of_variable), key=self._factor_of_variable
        ):
            with self._at(factor):
                super()._apply_weight_decay(list(alike))  # type: ignore[misc]

    def _factor_of_variable(self, variable: tf.Variable) -> float:
        return self.factor_of(variable.name)

    @contextlib.contextmanager
    def _at(self, factor: float) -> Iterator[None]:
        self._factor = factor
        try:
            yield
        finally:
            self._factor = 1.0


def with_layer_decay(
    optimizer: type[tf_keras.optimizers.Optimizer],
) -> type[tf_keras.optimizers.Optimizer]:
    """The same optimizer with `decay_by_layer`.

    It keeps its name: the step that a saved model goes on with is one that Keras knows.
    """
    return type(optimizer.__name__, (LayerDecay, optimizer), {})
