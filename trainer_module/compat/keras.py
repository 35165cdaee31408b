"""The internals of tf_keras 2.21 and of its checkpoints that training uses.

Each function and class checks its internals before it uses them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from trainer_module.compat.insides import Known, is_known, require_known, unknown_inside

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NOT_THE_MODEL = {"optimizer", "keras_api", "signatures", "tft_layer"}
"""The names under which a SavedModel stores objects other than the model's weights."""


def read_values(path: str) -> dict[str, np.ndarray]:
    """Returns the weights of a SavedModel by name, except weights whose name is not unique.

    Args:
      path: the folder of a SavedModel that was trained under any strategy.

    Raises:
      tf.errors.OpError: the folder has no checkpoint, or the checkpoint has no object graph.
      ValueError: the checkpoint is damaged.
    """
    reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    graph = TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH))
    found = list(_variables(graph))
    counts = Counter(name for name, _ in found)
    return {name: reader.get_tensor(key) for name, key in found if counts[name] == 1}


def _variables(graph: TrackableObjectGraph) -> Iterator[tuple[str, str]]:
    """Yields the names and checkpoint keys of all variables that belong to the model itself."""
    waiting, seen = deque([0]), {0}
    while waiting:
        node = graph.nodes[waiting.popleft()]
        for attribute in node.attributes:
            if attribute.full_name:
                yield attribute.full_name, attribute.checkpoint_key
        for child in node.children:
            if child.local_name not in _NOT_THE_MODEL and child.node_id not in seen:
                seen.add(child.node_id)
                waiting.append(child.node_id)


_OPTIMIZER = "tf_keras.src.optimizers.optimizer"

_RATES: Known = {
    _OPTIMIZER: {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._apply_weight_decay": "b2843b5a5dc0",
        "_BaseOptimizer._update_step": "4c0770e33d85",
        "_BaseOptimizer._update_step_xla": "54562363a4c3",
    }
}
"""The functions in which Keras reads the learning rate of a variable."""

_CURRENT_RATE: Known = {
    _OPTIMIZER: {
        "_BaseOptimizer._build_learning_rate": "3f6247bba8ac",
        "_BaseOptimizer._compute_current_learning_rate": "0682fe97e731",
        "_BaseOptimizer.learning_rate": "839634efa0d7",
    }
}
"""The functions in which Keras creates, assigns and reads the variable of the current learning
rate."""

_UPDATES: Known = {
    _OPTIMIZER: {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._internal_apply_gradients": "a498e8724c52",
        "Optimizer._distributed_apply_gradients_fn": "986188cdff85",
        "Optimizer._trackable_children": "d1e60f4cf033",
    }
}
"""The functions in which Keras applies updates, and collects an optimizer's objects to save."""

_FUSED: Known = {
    _OPTIMIZER: {
        "Optimizer.apply_gradients": "f2bdbc4526fc",
        "Optimizer._distributed_apply_gradients_fn": "986188cdff85",
        "_BaseOptimizer._deduplicate_sparse_grad": "db99677e74f4",
        "_BaseOptimizer._var_key": "d8061d80b610",
    },
    "tf_keras.src.optimizers.adam": {"Adam": "68ebf5935253"},
    "tf_keras.src.optimizers.adamw": {"AdamW": "3c2168283f07"},
    "tf_keras.src.optimizers.rmsprop": {"RMSprop": "c445ce5ce9cb"},
}
"""The functions that `with_fused_updates` replaces with functions of equal results."""

MAX_DENSE_ELEMENTS = 1 << 18
"""The maximum number of elements (1 MiB) of an embedding whose gradient is made dense."""


class RatesByVariable:
    """An optimizer that multiplies the learning rate and the weight decay of each variable by its
    factor.

    Overrides `Optimizer._apply_weight_decay`, and relies on Keras to read `learning_rate` for each
    variable. The public alternative is an optimizer for each group of variables, which would clip
    the gradients of each group separately. Raises an error if Keras has changed, because it might
    apply other learning rates.
    """

    rates_used_for: ClassVar[str]
    """The config key that the error names if Keras has changed."""
    _factor = 1.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Creates the optimizer with the arguments of the optimizer's class.

        Raises:
          InternalError: Keras's optimizers have changed.
        """
        require_known(_RATES, self.rates_used_for)
        super().__init__(*arguments, **options)

    def rate_factor(self, variable: tf.Variable) -> float:
        """Returns the factor of a variable's learning rate; subclasses implement it."""
        raise NotImplementedError

    @property
    def learning_rate(self) -> Any:
        """The learning rate; during the update of a variable, the learning rate of the variable."""
        rate = super().learning_rate  # type: ignore[misc]
        return rate if self._factor == 1 else rate * self._factor

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        tf_keras.optimizers.Optimizer.learning_rate.fset(self, rate)

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Updates one variable at its learning rate."""
        with self._at(self.rate_factor(variable)):
            super().update_step(gradient, variable)  # type: ignore[misc]

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        for factor, group in itertools.groupby(
            sorted(variables, key=self.rate_factor), key=self.rate_factor
        ):
            with self._at(factor):
                super()._apply_weight_decay(list(group))  # type: ignore[misc]

    @contextlib.contextmanager
    def _at(self, factor: float) -> Iterator[None]:
        self._factor = factor
        try:
            yield
        finally:
            self._factor = 1.0


class AfterUpdates:
    """An optimizer with a hook that runs in each step after all variables are updated.

    Overrides `Optimizer._distributed_apply_gradients_fn`. There are two public alternatives.
    `update_step` runs too early, before the moving averages of the weights. Callbacks run in Python
    after each call of the training function, which may execute several steps. Raises an error if
    Keras has changed, because it might never call `after_updates`.
    """

    updates_used_for: ClassVar[str]
    """The config key that the error names if Keras has changed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Creates the optimizer with the arguments of the optimizer's class.

        Raises:
          InternalError: Keras's optimizers have changed.
        """
        require_known(_UPDATES, self.updates_used_for)
        super().__init__(*arguments, **options)

    def after_updates(self, distribution: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Runs after the updates of a step, in cross-replica context; subclasses implement it.

        Args:
          distribution: the strategy, whose `extended.update` changes variables.
          step: the number of finished steps, including this one.
        """
        raise NotImplementedError

    def forget_saved(self, name: str) -> None:
        """Excludes an attribute from everything that Keras saves later.

        Keras caches the objects of a checkpoint, and would also export these objects.
        """
        vars(self).get("_coalesced_children", {}).pop(name, None)

    def _distributed_apply_gradients_fn(
        self, distribution: tf.distribute.Strategy, grads_and_vars: Any, **options: Any
    ) -> Any:
        """Applies the updates and the moving average of Keras, then runs the hook."""
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
    """Makes the variable of the current rate assignable for the replicas of CentralStorageStrategy.

    These replicas share variables, and cannot assign a variable without an aggregation, such as
    Keras's `_current_learning_rate`. The function replaces this variable. The only public
    alternative is a rate that a callback assigns, which would be constant over the steps of an
    execution. Raises an error if Keras has changed, because it might not follow the schedule.

    Args:
      optimizer: an optimizer with this schedule, before its first step.
      schedule: the function from the number of the step to the learning rate.

    Raises:
      InternalError: Keras stores the current rate differently.
    """
    require_known(_CURRENT_RATE, "a schedule of train.learning_rate")
    optimizer._current_learning_rate = tf.Variable(
        schedule(0), trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
    )


def with_fused_updates(
    optimizer: type[tf_keras.optimizers.Optimizer],
) -> type[tf_keras.optimizers.Optimizer]:
    """Returns a subclass of the optimizer whose updates need fewer operations, equal up to
    rounding, and are safe in Adam, AdamW and RMSprop when workers update a variable at the same
    time.

    A step over a small table spends most of its time on launching operations, and much of the
    tracing time on creating them. Keras's Adam creates some 40 operations per variable. If Keras
    has changed, the function returns the optimizer unchanged and logs a warning once.

    Args:
      optimizer: a class of Keras; the subclass keeps its name, because Keras loads a saved
        optimizer by its name.
    """
    if not _is_fused_known():
        return optimizer
    parts: tuple[type, ...] = (DenseGradients, optimizer)
    if issubclass(optimizer, tf_keras.optimizers.Adam | tf_keras.optimizers.AdamW):
        parts = (DenseGradients, SharedFactors, optimizer)
    elif issubclass(optimizer, tf_keras.optimizers.RMSprop):
        parts = (DenseGradients, OwnSquares, optimizer)
    return type(optimizer.__name__, parts, {})


@cache
def _is_fused_known() -> bool:
    instead = "with the updates of Keras's own optimizers, which can fail with parameter servers"
    return is_known(_FUSED, instead)


class DenseGradients:
    """An optimizer that makes the gradients of small embeddings dense before the update.

    Overrides `_BaseOptimizer._deduplicate_sparse_grad`: every optimizer of Keras updates all rows
    anyway, and needs several more operations for sparse gradients. The public hook,
    `aggregate_gradients`, runs before gradient clipping, whose norm depends on the sparse rows.
    """

    def _deduplicate_sparse_grad(self, gradients: Iterable[Any]) -> list[Any]:
        dense = [_dense(gradient) for gradient in gradients]
        return list(super()._deduplicate_sparse_grad(dense))  # type: ignore[misc]


@dataclass(frozen=True)
class _Factors:
    """The factors that the updates of all variables share in a step."""

    rate: tf.Tensor
    """The learning rate with both bias corrections."""
    new_mean: tf.Tensor
    """The weight of a gradient in the moving average of the gradients."""
    new_square: tf.Tensor
    """The weight of a squared gradient in the moving average of the squares."""
    epsilon: tf.Tensor


class SharedFactors:
    """An optimizer that computes the factors of Adam and AdamW once per step, not for each
    variable, and whose steps stay small when workers update a variable at the same time.

    If a worker read a gradient of another worker in the mean but not in the square, a step could be
    millions of times too large. So each update adds to the square before it adds to the mean, and
    reads the mean before it reads the square. It reads both when the gradient has arrived: if more
    than 20 workers subtracted a tenth of the same earlier mean, the mean would grow without limit.
    Keras's own updates do none of this.

    Overrides `Optimizer._distributed_apply_gradients_fn`, and replaces `update_step`, which reads
    Keras's `_momentums`, `_velocities` and `_index_dict`. The public `update_step` alone handles
    a single variable, so it cannot share factors. Kingma and Ba, 2014, "Adam: A Method for
    Stochastic Optimization", arXiv:1412.6980.
    """

    _factors: _Factors | None = None
    _factor = 1.0
    """The factor of the rate of the variable, which `RatesByVariable` sets."""

    def _distributed_apply_gradients_fn(self, *arguments: Any, **options: Any) -> Any:
        """Applies the updates as Keras does, with the shared factors."""
        # XLA compiles a graph that later steps reuse, so it cannot read the factors of one step.
        self._factors = None if self.jit_compile else self._make_factors()  # type: ignore[attr-defined]
        try:
            return super()._distributed_apply_gradients_fn(  # type: ignore[misc]
                *arguments, **options
            )
        finally:
            self._factors = None

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Updates one variable with the shared factors."""
        factors, index = self._factors, _index_of(self, variable)
        if factors is None or variable.dtype != tf.float32:
            super().update_step(gradient, variable)  # type: ignore[misc]
            return
        means, squares = self._momentums[index], self._velocities[index]  # type: ignore[attr-defined]
        squared = _squared(gradient)
        mean = _read_after(squared, means)
        square = _read_after(mean, squares)
        mean_change = _change(mean, gradient, factors.new_mean)
        square_change = _change(square, squared, factors.new_square)
        rate = factors.rate if self._factor == 1 else factors.rate * self._factor
        root = tf.sqrt(square + square_change)
        step = (mean + mean_change) * rate / (root + factors.epsilon)
        with tf.control_dependencies([step]):  # TensorFlow copies averages that are still in use.
            added = squares.assign_add(square_change, read_value=False)
        with tf.control_dependencies([added]):
            means.assign_add(mean_change, read_value=False)
        variable.assign_sub(step)

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


class OwnSquares:
    """RMSprop whose steps stay small when workers update a variable at the same time.

    Keras assigns the average of the squares, and reads it again for the step. If another worker had
    replaced the average meanwhile, it would lack the square of the step's own gradient. Replaces
    `update_step`, which reads Keras's `_velocities`, `_momentums` and `_index_dict`. Hinton, 2012,
    https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf.
    """

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Updates one variable with the square of its own gradient."""
        optimizer: Any = self
        if optimizer.centered or variable.dtype != tf.float32:
            super().update_step(gradient, variable)  # type: ignore[misc]
            return
        index, squared = _index_of(self, variable), _squared(gradient)
        squares = optimizer._velocities[index]
        square = _read_after(squared, squares)
        change = _change(square, squared, 1 - optimizer.rho)
        rate = tf.cast(optimizer.learning_rate, tf.float32)
        scale = tf.math.rsqrt(square + change + optimizer.epsilon)
        step = rate * tf.convert_to_tensor(gradient) * scale
        squares.assign_add(change, read_value=False)
        if optimizer.momentum:
            step += optimizer.momentum * optimizer._momentums[index]
            optimizer._momentums[index].assign(step, read_value=False)
        variable.assign_sub(step)


def _index_of(optimizer: Any, variable: tf.Variable) -> int:
    """Returns the index of a variable in the optimizer's lists of averages."""
    index: int = optimizer._index_dict[optimizer._var_key(variable)]
    return index


def _read_after(earlier: Any, average: tf.Variable) -> tf.Tensor:
    """Returns the value that a moving average has after `earlier` is computed."""
    with tf.control_dependencies([earlier]):
        return tf.identity(average)


def _change(average: tf.Tensor, gradient: Any, weight: tf.Tensor | float) -> tf.Tensor:
    """Returns the change of a moving average by a dense gradient, or by rows that occur once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return (gradient - average) * weight
    rows = gradient.indices[:, tf.newaxis]
    return tf.tensor_scatter_nd_add(-average * weight, rows, gradient.values * weight)


def _squared(gradient: Any) -> Any:
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.square(gradient)
    return tf.IndexedSlices(tf.square(gradient.values), gradient.indices)


def _dense(gradient: Any) -> Any:
    if not isinstance(gradient, tf.IndexedSlices) or not gradient.shape.is_fully_defined():
        return gradient
    is_small = gradient.shape.num_elements() <= MAX_DENSE_ELEMENTS
    return tf.convert_to_tensor(gradient) if is_small else gradient


_LAYER = "tf_keras.src.engine.base_layer"
_NORMALIZATION = "tf_keras.src.layers.normalization.batch_normalization"

_LOGITS: Known = {
    "tf_keras.src.backend": {"sigmoid": "4b68ad6b9845", "softmax": "a544367da9c6"},
    "tf_keras.src.activations": {"sigmoid": "07216143ac7e", "softmax": "b2fc2ae42079"},
}
"""The functions that attach the logits to the probabilities."""

_LAYERS_WITHIN: Known = {
    _LAYER: {"Layer._flatten_layers": "e69c649cc5af", "Layer._flatten_modules": "f6e8b804cf48"}
}
_OWN_WEIGHTS: Known = {
    _LAYER: {"Layer.trainable_weights": "6f83b7617adc", "Layer.add_weight": "10e2b1e4e88a"}
}
"""The functions in which Keras stores and reads the weights of a layer."""

_GRAPH_NETWORKS: Known = {
    "tf_keras.src.engine.functional": {"Functional._init_graph_network": "137dd7a8749f"},
    "tf_keras.src.engine.training": {"Model.__init__": "b57bc8ee45ae"},
}
"""The functions in which Keras stores whether a model is a graph network."""

_SYNCHRONIZED: Known = {
    _NORMALIZATION: {
        "BatchNormalizationBase.__init__": "f17dc4e1770c",
        "BatchNormalizationBase.call": "21ff31ad7975",
        "BatchNormalizationBase._calculate_mean_and_var": "6d739107eeb7",
    }
}
"""The functions in which Keras stores and reads `synchronized`."""

_METRICS: Known = {
    "tf_keras.src.metrics.base_metric": {
        "Metric.__new__": "e8fe0ab7bd2c",
        "Metric.__call__": "cbdf0184839a",
    },
    "tf_keras.src.engine.compile_utils": {"MetricsContainer.update_state": "905a57836ada"},
}
"""The functions that add `update_state` to a metric, and that call it."""


def logits_of(probabilities: tf.Tensor) -> tf.Tensor | None:
    """Returns the logits of a sigmoid's or a softmax's output, or None for another output.

    Reads `_keras_logits`, as Keras's cross-entropy does. The public alternative is a model that
    returns logits, which would have to be exported as a different model. Raises an error if Keras
    has changed, because float32 probabilities near 0 and 1 leave little gradient.

    Args:
      probabilities: the output of a model.

    Raises:
      InternalError: Keras stores the logits differently, or not at all.
    """
    require_known(_LOGITS, "a loss with class weights")
    return getattr(probabilities, "_keras_logits", None)


def layers_within(model: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Returns all layers of a model, including nested layers, each after the layer that contains
    it.

    Calls `Layer._flatten_layers`. The public `submodules` also contain layers that compute nothing,
    such as the layer that Bidirectional copies. Their order differs, so the masks in checkpoints
    would belong to other weights. Raises an error if Keras has changed.

    Raises:
      InternalError: Keras traverses layers differently.
    """
    require_known(_LAYERS_WITHIN, "optimize.prune")
    return list(model._flatten_layers(include_self=False, recursive=True))


def own_weights(layer: tf_keras.layers.Layer) -> list[tf.Variable]:
    """Returns the trainable weights of a layer, without the weights of nested layers.

    Reads `Layer._trainable_weights`; the public `trainable_weights` include nested layers. Raises
    an error if Keras has changed, because weights could be missing.

    Raises:
      InternalError: Keras stores the weights of layers differently.
    """
    require_known(_OWN_WEIGHTS, "optimize.prune")
    return list(layer._trainable_weights)


def is_graph_network(model: tf_keras.Model) -> bool:
    """Returns whether a model is functional or Sequential, rather than a subclass with its own
    call.

    Reads `_is_graph_network`, as tensorflow-model-optimization does before it clones a model; the
    corresponding class is not public. Raises an error if Keras has changed, because quantizable
    models could be rejected.

    Raises:
      InternalError: Keras stores the attribute differently.
    """
    require_known(_GRAPH_NETWORKS, "optimize.quantize")
    return bool(model._is_graph_network)


def synchronize(layer: tf_keras.layers.BatchNormalization) -> None:
    """Makes a layer normalise by the statistics of all replicas.

    Call the function before the first call of the layer.

    Sets the attributes that `synchronized=True` would set; the constructors of
    tf_keras.applications, which create the layers, lack this option. Raises an error if Keras has
    changed, because each replica might normalise by its own statistics.

    Raises:
      InternalError: Keras reads other attributes.
    """
    require_known(_SYNCHRONIZED, "model.sync_batch_norm")
    layer.synchronized, layer.fused = True, False


def change_compared(
    metric: tf_keras.metrics.Metric,
    change: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> tf_keras.metrics.Metric:
    """Makes a metric transform labels and predictions before it compares them.

    Replaces `update_state` of this object, as Keras's `Metric.__new__` does. The public alternative
    is a subclass, but a saved model would refer to the subclass, and could not be loaded without
    its code. Raises an error if Keras has changed, because it might compare the original values.

    Args:
      metric: a metric that has not been used yet.
      change: the function from labels and predictions to the values to compare.

    Returns:
      The metric.

    Raises:
      InternalError: Keras calls metrics differently.
    """
    require_known(_METRICS, "training metrics")
    update = metric.update_state

    def update_state(y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None) -> Any:
        return update(*change(y_true, y_pred), sample_weight)

    metric.update_state = update_state
    return metric


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
        "TensorBoard._implements_train_batch_hooks": "0b247c4ef9d3",
        "TensorBoard.on_train_begin": "6caba5103d3d",
        "TensorBoard.on_train_batch_begin": "81e169d67436",
        "TensorBoard.on_train_batch_end": "056411668023",
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
    """Makes `fit` resume from a state, which may be within an epoch.

    The public `initial_epoch` can only start at the beginning of an epoch. Keras's own
    BackupAndRestore sets the same private attribute. `require_resumed_fit` raises an error if Keras
    has changed.

    Args:
      model: the model whose `fit` resumes.
      state: an object whose `maybe_load_initial_counters_from_ckpt` returns the epoch and the step.
    """
    model._training_state = state


def forget_start(model: tf_keras.Model) -> None:
    """Removes the state from the model, because Keras would save the objects in the state."""
    model._training_state = None


def require_resumed_fit() -> None:
    """Checks that `fit` reads its first step from the state of `begin_fit_at`.

    Raises:
      InternalError: Keras has changed, and `fit` could repeat steps of an interrupted epoch.
    """
    require_known(RESUMED_FIT, "resuming within an epoch")


class StepCallback(tf_keras.callbacks.Callback):
    """A callback with two explicit options: calls in every step, and tensors as the step's logs.

    Keras infers the first option from the methods of the class. Without the second, Keras waits for
    the results of each step in order to convert them to numbers. Neither option is public. If Keras
    has changed, this class leaves both to Keras, which is slower.
    """

    def __init__(self, needs_step_calls: bool, takes_tensors: bool) -> None:
        super().__init__()
        self._needs_step_calls = needs_step_calls
        self._is_known = _hooks_are_known()
        if self._is_known:
            self._supports_tf_logs = takes_tensors

    def _implements_train_batch_hooks(self) -> bool:
        return self._needs_step_calls if self._is_known else super()._implements_train_batch_hooks()


@cache
def _hooks_are_known() -> bool:
    return is_known(CALLBACK_HOOKS, "with all callbacks called in every step")


class TensorBoard(tf_keras.callbacks.TensorBoard):
    """Keras's TensorBoard callback, with logs of all workers, and the learning rate from the logs.

    Keras's callback writes only the chief's logs, and the learning rate of the next step; no option
    changes this behaviour. After an interruption its step counter starts at 0, so points would be
    out of order. Its graph is the graph of the function that `fit` calls, so other loops would have
    no graph. Raises an error if Keras has changed, because the curves would be wrong.
    """

    def __init__(
        self,
        log_directory: str,
        writes_graph: bool = False,
        writes_steps: bool = False,
        profiled: Sequence[int] | None = None,
    ) -> None:
        """Creates the callback, which always writes a curve with a point per epoch.

        Args:
          log_directory: the folder that contains the folders `train` and `validation`.
          writes_graph: whether to write the graphs of the layers and of the model's operations.
          writes_steps: whether to write a point for each step.
          profiled: the first and the last step to profile, counted from 1, or None for no profile.
        """
        require_known(TENSORBOARD, "TensorBoard's curves")
        super().__init__(
            log_directory, write_graph=writes_graph, profile_batch=tuple(profiled or (0, 0))
        )
        self._writes_steps = writes_steps
        self._epoch = 0

    def _get_log_write_dir(self) -> str:
        return self.log_dir

    def _collect_learning_rate(self, logs: dict[str, Any]) -> dict[str, Any]:
        return logs

    def _implements_train_batch_hooks(self) -> bool:
        return self._writes_steps or self._should_trace

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Writes the graph of operations, if the model is a graph of layers."""
        super().on_train_begin(logs)
        self._should_write_train_graph = False
        if self.write_graph and self.model.inputs:
            specs = tf.nest.map_structure(
                lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), self.model.input
            )
            call = tf.function(lambda tensors: self.model(tensors, training=True))
            with self._train_writer.as_default(), tf.summary.record_if(True):
                tf.summary.graph(call.get_concrete_function(specs).graph)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Stores the epoch, from which the number of a step is computed."""
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes the logs of a step, and ends profiling after its last step."""
        super().on_train_batch_end(batch, {})
        if self._writes_steps:
            step = self._epoch * self.params["steps"] + batch + 1
            with self._train_writer.as_default(), tf.summary.record_if(True):
                for name, value in (logs or {}).items():
                    tf.summary.scalar(f"batch_{name}", value, step=step)


def learning_rate_of(model: tf_keras.Model) -> tuple[Any, tf.Variable]:
    """Returns a model's learning rate or its schedule, and the number of finished steps.

    The public property of Keras's current optimizers returns the value of a schedule, one step
    late. The function uses the property only for optimizers without the private attribute, such as
    Keras's legacy optimizers.
    """
    # Loss scaling wraps the optimizer, and does not expose all of its attributes.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return getattr(optimizer, "_learning_rate", optimizer.learning_rate), optimizer.iterations


def layer_of(output: tf.Tensor) -> tf_keras.layers.Layer | None:
    """Returns the layer that computes a model's symbolic output, or None if no layer computes it.

    Keras has no public way from an output to its layer.

    Raises:
      InternalError: Keras stores the layer differently, and a missing activation would be
        undetected.
    """
    if not tf_keras.backend.is_keras_tensor(output):
        return None
    try:
        return output._keras_history.layer
    except AttributeError as error:
        raise unknown_inside("the model's last layer", str(error)) from error


_STEP_METHODS = ("train_step", "test_step", "compute_metrics", "get_metrics_result")
_MAKERS = ("make_train_function", "make_test_function")


def use_several_steps(model: tf_keras.Model) -> None:
    """Replaces the functions with which `fit` and `evaluate` run several steps per execution.

    Keras computes the metrics' values in every step, but returns only the values of the last step.
    To infer their shapes before the first step, Keras traces a step twice. Keras caches the
    function in the attribute `train_function`, which has no public setter.

    Args:
      model: a model that is compiled for several steps per execution. The model is left unchanged
        if a user's class overrides the steps, or if Keras has changed.
    """
    has_default_steps = all(
        getattr(type(model), name) is getattr(tf_keras.Model, name)
        for name in _STEP_METHODS + _MAKERS
    )
    # A model that is trained again keeps its function, which has been traced.
    if has_default_steps and model.train_function is None and _steps_are_known():
        model.train_function = _repeat(model, model.train_step, model._train_counter)
        model.test_function = _repeat(model, model.test_step, model._test_counter)


@cache
def _steps_are_known() -> bool:
    return is_known(SEVERAL_STEPS, "with Keras's own functions for several steps")


def _repeat(
    model: tf_keras.Model, step: Callable[[Any], Any], counter: tf.Variable
) -> Callable[[Iterator[Any]], dict[str, tf.Tensor]]:
    strategy = model.distribute_strategy

    def run_step(batch: Any) -> None:
        step(batch)
        counter.assign_add(1)

    @tf.function(reduce_retracing=True)
    def steps(batches: Iterator[Any]) -> dict[str, tf.Tensor]:
        for _ in tf.range(model._steps_per_execution):
            strategy.run(run_step, (next(batches),))
        values: dict[str, tf.Tensor] = model.get_metrics_result()
        return values

    return steps
