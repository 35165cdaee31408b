"""Several steps of a Keras model in one graph, with less to trace and to do than in Keras's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.insides import Known, is_known

_KNOWN: Known = {
    "tf_keras.src.engine.training": {
        "Model.make_train_function": "2c98267ffc1c",
        "Model.make_test_function": "c0d12feaac61",
        "Model.train_step": "ba57201087c8",
        "Model.test_step": "0835d1db23d0",
        "Model.compute_metrics": "9450ec55cc2a",
        "Model.get_metrics_result": "9c274348b9eb",
    }
}
"""What runs the steps of an execution in Keras."""

_USUAL = ("train_step", "test_step", "compute_metrics", "get_metrics_result")
_MAKERS = ("make_train_function", "make_test_function")


def use_several_steps(model: tf_keras.Model) -> None:
    """Makes what `fit` and `evaluate` call for the steps of an execution, where steps are usual.

    Keras asks the metrics for their values in every step, of which it returns the last ones. To
    know their shapes before the first step, it traces a step twice.

    Args:
      model: compiled for several steps at a time. Left as it is if a class of the user's has steps
          of its own, other processes or devices than this one order them, or Keras's functions
          are not those that the ones here replace.
    """
    strategy = model.distribute_strategy
    ordered_elsewhere = (tf.distribute.ParameterServerStrategy, tf.distribute.TPUStrategy)
    is_usual = all(
        getattr(type(model), name) is getattr(tf_keras.Model, name) for name in _USUAL + _MAKERS
    )
    if is_usual and not isinstance(strategy, ordered_elsewhere) and _is_known():
        model.train_function = _repeat(model, model.train_step, model._train_counter)
        model.test_function = _repeat(model, model.test_step, model._test_counter)


@cache
def _is_known() -> bool:
    return is_known(_KNOWN, "by Keras's own executions of steps")


def _repeat(
    model: tf_keras.Model, step: Callable[[Any], Any], counter: tf.Variable
) -> Callable[[Iterator[Any]], dict[str, tf.Tensor]]:
    strategy = model.distribute_strategy

    def counted(batch: Any) -> None:
        step(batch)
        counter.assign_add(1)

    @tf.function(reduce_retracing=True)
    def steps(batches: Iterator[Any]) -> dict[str, tf.Tensor]:
        for _ in tf.range(model._steps_per_execution):
            strategy.run(counted, (next(batches),))
        values: dict[str, tf.Tensor] = model.get_metrics_result()
        return values

    return steps
