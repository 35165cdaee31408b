"""Insides of tf_keras 2.21 and of its checkpoints that training touches; each is checked."""

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
"""Under these names a SavedModel keeps what is not among the model's weights."""


def read_values(path: str) -> dict[str, np.ndarray]:
    """Returns the weights of a SavedModel by their names, without those that share one.

    Args:
      path: of the SavedModel, trained under any strategy.

    Raises:
      tf.errors.OpError: there is no checkpoint, or no graph of objects in it.
      ValueError: it is damaged.
    """
    reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    graph = TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH))
    found = list(_variables(graph))
    counts = Counter(name for name, _ in found)
    return {name: reader.get_tensor(key) for name, key in found if counts[name] == 1}


def _variables(graph: TrackableObjectGraph) -> Iterator[tuple[str, str]]:
    """Names and keys of all variables that belong to the model itself."""
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


_LAYER = "tf_keras.src.engine.base_layer"
_NORMALIZATION = "tf_keras.src.layers.normalization.batch_normalization"

_LOGITS: Known = {
    "tf_keras.src.backend": {"sigmoid": "4b68ad6b9845", "softmax": "a544367da9c6"},
    "tf_keras.src.activations": {"sigmoid": "07216143ac7e", "softmax": "b2fc2ae42079"},
}
"""What leaves the logits with the probabilities."""

_LAYERS_WITHIN: Known = {
    _LAYER: {"Layer._flatten_layers": "e69c649cc5af", "Layer._flatten_modules": "f6e8b804cf48"}
}
_OWN_WEIGHTS: Known = {
    _LAYER: {"Layer.trainable_weights": "6f83b7617adc", "Layer.add_weight": "10e2b1e4e88a"}
}
"""Where Keras puts the weights of a layer, and reads them."""

_GRAPH_NETWORKS: Known = {
    "tf_keras.src.engine.functional": {"Functional._init_graph_network": "137dd7a8749f"},
    "tf_keras.src.engine.training": {"Model.__init__": "b57bc8ee45ae"},
}
"""Where Keras notes whether a model is one."""

_SYNCHRONIZED: Known = {
    _NORMALIZATION: {
        "BatchNormalizationBase.__init__": "f17dc4e1770c",
        "BatchNormalizationBase.call": "21ff31ad7975",
        "BatchNormalizationBase._calculate_mean_and_var": "6d739107eeb7",
    }
}
"""What `synchronized` is noted by, and read for."""

_METRICS: Known = {
    "tf_keras.src.metrics.base_metric": {
        "Metric.__new__": "e8fe0ab7bd2c",
        "Metric.__call__": "cbdf0184839a",
    },
    "tf_keras.src.engine.compile_utils": {"MetricsContainer.update_state": "905a57836ada"},
}
"""What puts `update_state` into a metric, and what calls it."""


def logits_of(probabilities: tf.Tensor) -> tf.Tensor | None:
    """Returns what a sigmoid or a softmax was computed from; None if neither has computed it.

    Reads `_keras_logits`, by which Keras's cross-entropy goes as well. The public way is a model
    that gives logits, which would have to be exported as another one. Refuses where Keras is
    another one: of float32 probabilities near 0 and 1 little is left to learn by.

    Args:
      probabilities: of a model.

    Raises:
      InternalError: Keras leaves them in another way, or not at all.
    """
    require_known(_LOGITS, "a loss of weighed classes")
    return getattr(probabilities, "_keras_logits", None)


def layers_within(model: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Returns all layers of a model, those that are parts of others too, each after what it is in.

    Calls `Layer._flatten_layers`. The public `submodules` have layers that compute nothing as well,
    such as the one that Bidirectional copies, and come in another order, by which masks that are
    backed up would go to other weights. Refuses where Keras is another one.

    Raises:
      InternalError: Keras goes through layers in another way.
    """
    require_known(_LAYERS_WITHIN, "optimize.prune")
    return list(model._flatten_layers(include_self=False, recursive=True))


def own_weights(layer: tf_keras.layers.Layer) -> list[tf.Variable]:
    """Returns the weights that a layer learns, without those of the layers in it.

    Reads `Layer._trainable_weights`; the public `trainable_weights` are those of all. Refuses where
    Keras is another one, as weights would be overlooked.

    Raises:
      InternalError: Keras keeps the weights of layers in another way.
    """
    require_known(_OWN_WEIGHTS, "optimize.prune")
    return list(layer._trainable_weights)


def is_graph_network(model: tf_keras.Model) -> bool:
    """Returns whether a model is a graph of layers, functional or Sequential, and not code of its
    class.

    Reads `_is_graph_network`, as tensorflow-model-optimization does before it clones a model; the
    class by which it could be asked for is not public. Refuses where Keras is another one: models
    would be refused that can be quantised.

    Raises:
      InternalError: Keras notes it in another way.
    """
    require_known(_GRAPH_NETWORKS, "optimize.quantize")
    return bool(model._is_graph_network)


def synchronize(layer: tf_keras.layers.BatchNormalization) -> None:
    """Makes a layer normalise by the statistics of all replicas, before its first call.

    Sets what `synchronized=True` would have set; the constructors of tf_keras.applications, which
    make the layers, have no such option. Refuses where Keras is another one: each replica would
    normalise by its own statistics.

    Raises:
      InternalError: Keras goes by something else.
    """
    require_known(_SYNCHRONIZED, "model.sync_batch_norm")
    layer.synchronized, layer.fused = True, False


def change_compared(
    metric: tf_keras.metrics.Metric,
    change: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> tf_keras.metrics.Metric:
    """Has a metric compare other labels and predictions than it is given.

    Replaces `update_state` of this one object, as Keras's `Metric.__new__` does. The public way is
    a subclass, which a saved model would name, and nobody could load. Refuses where Keras is
    another one: what is not changed might be compared.

    Args:
      metric: not used yet.
      change: from labels and predictions to those that are compared.

    Returns:
      The metric.

    Raises:
      InternalError: Keras calls metrics in another way.
    """
    require_known(_METRICS, "the metrics of a training")
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
    It counts steps by what `fit` counts, from an interruption on, and has the graph of what `fit`
    calls: in another loop, points would have no order, and there would be no graph. Another Keras
    is refused, as the curves would be wrong.
    """

    def __init__(
        self,
        log_directory: str,
        writes_graph: bool = False,
        writes_steps: bool = False,
        profiled: Sequence[int] | None = None,
    ) -> None:
        """Takes what is written besides the curves of the epochs.

        Args:
          log_directory: has the folders `train` and `validation`.
          writes_graph: of the layers, and of the operations of a call of the model.
          writes_steps: a point for each step.
          profiled: the first and the last step whose operations are timed, counted from 1.
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
        """Writes the operations of a model that is a graph of layers."""
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
        """Counts steps from the beginning of training."""
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes what `fit` or another loop has of a step, and ends what is profiled."""
        super().on_train_batch_end(batch, {})
        if self._writes_steps:
            step = self._epoch * self.params["steps"] + batch + 1
            with self._train_writer.as_default(), tf.summary.record_if(True):
                for name, value in (logs or {}).items():
                    tf.summary.scalar(f"batch_{name}", value, step=step)


def learning_rate_of(model: tf_keras.Model) -> tuple[Any, tf.Variable]:
    """Returns a model's learning rate, or the schedule of it, and the steps that are done.

    The public property of Keras's present optimizers has evaluated a schedule, a step late; it is
    what is left with optimizers that lack the private attribute, as Keras's older ones do.
    """
    # Loss scaling wraps the optimizer, and does not hand on all that it has.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return getattr(optimizer, "_learning_rate", optimizer.learning_rate), optimizer.iterations


def layer_of(output: tf.Tensor) -> tf_keras.layers.Layer | None:
    """Returns the layer that a model's symbolic output comes from; None if it comes from none.

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
