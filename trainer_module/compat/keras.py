"""What training touches of the insides of tf_keras 2.21, each with what holds it in check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.insides import Known, is_known, require_known, unknown_inside

RESUMED_FIT: Known = {
    "tf_keras.src.engine.training": {
        "Model.fit": "f6cc972c81a0",
        "Model._maybe_load_initial_counters_from_ckpt": "fa3b05cb1c73",
    }
}
CALLBACK_HOOKS: Known = {
    "tf_keras.src.callbacks": {
        "Callback._implements_train_batch_hooks": "b7740c9db096",
        "CallbackList.__init__": "ed0c589494cd",
    }
}
TENSORBOARD: Known = {
    "tf_keras.src.callbacks": {
        "TensorBoard.set_model": "aeacbf020155",
        "TensorBoard._get_log_write_dir": "d733c51fcae9",
        "TensorBoard._collect_learning_rate": "e05d33e37b52",
        "TensorBoard._log_epoch_metrics": "0ea3ce0145ec",
    }
}
SEVERAL_STEPS: Known = {
    "tf_keras.src.engine.training": {
        "Model.make_train_function": "2c98267ffc1c",
        "Model.make_test_function": "c0d12feaac61",
        "Model.train_step": "ba57201087c8",
        "Model.test_step": "0835d1db23d0",
        "Model.compute_metrics": "9450ec55cc2a",
        "Model.get_metrics_result": "9c274348b9eb",
    }
}


def begin_fit_at(model: tf_keras.Model, state: Any) -> None:
    """Has `fit` begin where a state says.

    `fit` can begin with any epoch, but not within one: Keras's own BackupAndRestore sets this
    private attribute, too. Another Keras is refused by `require_resumed_fit`.

    Args:
      model: that `fit` is called of.
      state: its `maybe_load_initial_counters_from_ckpt` gives the epoch and the step.
    """
    model._training_state = state


def forget_start(model: tf_keras.Model) -> None:
    """Takes the state away again: Keras would save what it refers to with the model."""
    model._training_state = None


def require_resumed_fit() -> None:
    """Checks that `fit` asks the state of `begin_fit_at` for the step that it begins with.

    Raises:
      InternalError: the steps of an interrupted epoch that are done would be done again.
    """
    require_known(RESUMED_FIT, "going on within an epoch")


class StepCallback(tf_keras.callbacks.Callback):
    """A callback that says itself whether it hears of steps, and that it takes tensors there.

    Keras goes by which methods a class has, and waits for each step's results to make numbers of
    them; nothing public says otherwise. With another Keras it does so here, too, which is slower.
    """

    def __init__(self, hears_steps: bool, takes_tensors: bool) -> None:
        super().__init__()
        self._hears_steps = hears_steps
        self._is_known = _knows_hooks()
        if self._is_known:
            self._supports_tf_logs = takes_tensors

    def _implements_train_batch_hooks(self) -> bool:
        return self._hears_steps if self._is_known else super()._implements_train_batch_hooks()


@cache
def _knows_hooks() -> bool:
    return is_known(CALLBACK_HOOKS, "with all callbacks called in every step")


class TensorBoard(tf_keras.callbacks.TensorBoard):
    """Keras's, but all workers keep their logs, and the learning rate is that of the logs.

    Keras's own has the chief's logs alone, and the rate of the next step; no option changes that.
    Another Keras is refused, as the curves would be wrong.
    """

    def __init__(self, log_directory: str, **options: Any) -> None:
        require_known(TENSORBOARD, "TensorBoard's curves")
        super().__init__(log_directory, **options)

    def _get_log_write_dir(self) -> str:
        return self.log_dir

    def _collect_learning_rate(self, logs: dict[str, Any]) -> dict[str, Any]:
        return logs


def learning_rate_of(model: tf_keras.Model) -> tuple[Any, tf.Variable]:
    """A model's learning rate, or the schedule of it, and the steps that are done.

    The public property of Keras's present optimizers has evaluated a schedule, a step late; it is
    what is left with optimizers that lack the private attribute, as Keras's older ones do.
    """
    # Loss scaling wraps the optimizer, and does not hand on all that it has.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return getattr(optimizer, "_learning_rate", optimizer.learning_rate), optimizer.iterations


def layer_of(output: tf.Tensor) -> tf_keras.layers.Layer | None:
    """The layer that a model's symbolic output comes from; None if it comes from none.

    Keras has no public way from an output to its layer.

    Raises:
      InternalError: it keeps the layer elsewhere: a model without an activation would be taken.
    """
    if not tf_keras.backend.is_keras_tensor(output):
        return None
    try:
        return output._keras_history.layer
    except AttributeError as error:
        raise unknown_inside("the model's last layer", str(error)) from error


_USUAL = ("train_step", "test_step", "compute_metrics", "get_metrics_result")
_MAKERS = ("make_train_function", "make_test_function")


def use_several_steps(model: tf_keras.Model) -> None:
    """Makes what `fit` and `evaluate` call for the steps of an execution, where steps are usual.

    Keras asks the metrics for their values in every step, of which it returns the last ones. To
    know their shapes before the first step, it traces a step twice. `train_function` is where its
    own functions would be, of which none can be given in a public way.

    Args:
      model: compiled for several steps at a time. Left as it is if a class of the user's has steps
          of its own, or Keras's functions are not those that the ones here replace.
    """
    is_usual = all(
        getattr(type(model), name) is getattr(tf_keras.Model, name) for name in _USUAL + _MAKERS
    )
    if is_usual and _knows_steps():
        model.train_function = _repeat(model, model.train_step, model._train_counter)
        model.test_function = _repeat(model, model.test_step, model._test_counter)


@cache
def _knows_steps() -> bool:
    return is_known(SEVERAL_STEPS, "by Keras's own executions of steps")


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
