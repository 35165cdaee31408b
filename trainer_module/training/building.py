"""Builds and compiles the model in the scope of the strategy."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import layer_of
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.log_target import learns_mean
from trainer_module.families.supervised.losses import MixedLoss, make_loss, with_larger_share
from trainer_module.families.supervised.models.members import wrap_ensemble_loss
from trainer_module.families.supervised.tasks.layers import BiasFactor, from_logarithm_of
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import load_builder
from trainer_module.settings.train import choose_epochs
from trainer_module.training.compression import PruningPlan, plan_pruning, quantize
from trainer_module.training.optimizers import BASE_EXAMPLES, build_optimizer, build_schedule

BIAS_FACTOR = "bias_factor"
"""The name of the metric `BiasFactor` in the history of a training."""


def build_model(
    problem: Problem,
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    steps_per_epoch: int,
) -> tf_keras.Model:
    """Builds a model, and compiles it unless its builder has compiled it.

    Args:
      problem: the features and the label.
      settings: the settings of the model and its training.
      strategy: the strategy in whose scope the model is built.
      steps_per_epoch: the number of steps in an epoch, for the learning rate and the optimizer.

    Raises:
      TrainingError: `make_network` or `check_model` raises it.
    """
    with strategy.scope():
        model = make_network(problem, settings)
        output = check_model(model, problem, settings)
        if model.optimizer is None:
            model.compile(
                optimizer=make_optimizer(model, settings, steps_per_epoch),
                loss=make_training_loss(model, problem, settings),
                metrics=make_training_metrics(problem, settings),
            )
        create_variables(model, output)
    return model


def make_network(problem: Problem, settings: TrainerSettings) -> tf_keras.Model:
    """Returns the model of a builder; call the function in the scope of the strategy.

    Args:
      problem: the features and the label.
      settings: the settings of the model.

    Raises:
      TrainingError: the builder does not exist or does not return a tf_keras model, a variable of
        the model was created outside of the scope, or the model cannot be quantised.
    """
    kind = settings.model.kind
    model = load_builder(kind)(problem, settings.model)
    if not isinstance(model, tf_keras.Model):
        raise TrainingError(
            f"model {kind!r}: the builder must return a tf_keras.Model, but it returned "
            f"{type(model).__module__}.{type(model).__qualname__}."
        )
    if settings.optimize.quantize:
        model = quantize(model)
    _check_scope(model, kind, tf.distribute.get_strategy())
    if settings.train.l2:
        regularize(model, settings.train.l2)
    return model


def regularize(model: tf_keras.Model, l2: float) -> None:
    """Adds `l2` times the sum of the squares of each kernel to a model's losses.

    The effect equals `kernel_regularizer=tf_keras.regularizers.L2(l2)` in all layers, an option
    that must be set before a layer is built. Frozen kernels have no penalty.

    Args:
      model: a built model. Models that share a layer also share its losses.
      l2: the factor.
    """
    regularizer = tf_keras.regularizers.L2(l2)
    seen: set[int] = set()
    for layer in _single_layers(model):
        kernels = [w for w in layer.trainable_weights if _is_kernel(w) and id(w) not in seen]
        seen.update(map(id, kernels))
        for kernel in kernels:
            layer.add_loss(functools.partial(_penalty, layer, kernel, regularizer))


def _single_layers(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """Yields the layers of a model, and the layers of a nested model instead of the nested model.

    A loss belongs to a layer because a nested model may be trained without the outer model.
    """
    for layer in model.layers:
        if isinstance(layer, tf_keras.Model):
            yield from _single_layers(layer)
        else:
            yield layer


def _is_kernel(weight: tf.Variable) -> bool:
    """Returns whether the last part of a weight's name ends in `kernel`."""
    return bool(weight.name.rpartition("/")[2].partition(":")[0].endswith("kernel"))


def _penalty(
    layer: tf_keras.layers.Layer, kernel: tf.Variable, regularizer: tf_keras.regularizers.L2
) -> tf.Tensor | None:
    """Returns the penalty of a kernel, or None if the kernel is frozen."""
    is_trainable = any(weight is kernel for weight in layer.trainable_weights)
    return regularizer(tf.convert_to_tensor(kernel)) if is_trainable else None


def check_model(model: tf_keras.Model, problem: Problem, settings: TrainerSettings) -> Any:
    """Returns the model's symbolic output, after checking that the settings can train the model.

    Args:
      model: the model of `make_network`, which a user's builder may have compiled.
      problem: the features and the label.
      settings: the settings of the training.

    Raises:
      TrainingError: the output does not fit the task, or the settings have mixup or pruning, but
        the builder has compiled the model without it.
    """
    kind = settings.model.kind
    output = model.output if model.inputs else model(problem.make_inputs())
    if settings.model.is_custom:
        check_output(output, problem, kind)
        if problem.log_range and from_logarithm_of(model) is None:
            raise TrainingError(
                f"model {kind!r}: its output is not that of task.target: log; end the model with "
                "problem.make_output_layer(), or write `task: {kind: regression, target: plain}`."
            )
    if model.optimizer is not None and _mixes(settings):
        raise TrainingError(
            f"model {kind!r}: its builder has compiled the model with a loss that does not support "
            "mixed labels; remove train.augment.mixup, or the call of compile in the builder."
        )
    if model.optimizer is not None and settings.optimize.prune:
        raise TrainingError(
            f"model {kind!r}: its builder has compiled the model with an optimizer without "
            "pruning; remove optimize.prune, or the call of compile in the builder."
        )
    return output


def make_optimizer(
    model: tf_keras.Model,
    settings: TrainerSettings,
    steps_per_epoch: int,
    examples_per_step: int = BASE_EXAMPLES,
) -> tf_keras.optimizers.Optimizer:
    """Returns the optimizer for compiling a model; call the function in the scope of the strategy.

    Args:
      model: the model whose weights the optimizer may prune.
      settings: the settings of the training.
      steps_per_epoch: the number of steps in an epoch, for the learning rate and for updates at the
        end of each epoch.
      examples_per_step: the number of examples in a step of all replicas, for the learning rate.

    Raises:
      TrainingError: the model cannot be pruned.
    """
    train = settings.train
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    rate = build_schedule(train, steps_per_epoch, replicas, examples_per_step)
    pruning = _plan_pruning(model, settings, steps_per_epoch)
    return build_optimizer(train.optimizer, rate, steps_per_epoch, pruning)


def make_training_loss(
    model: tf_keras.Model, problem: Problem, settings: TrainerSettings
) -> tf_keras.losses.Loss:
    """Returns the training loss, which supports ensembles, and mixed labels if mixup is set."""
    loss = make_loss(problem, settings.train.loss)
    return wrap_ensemble_loss(MixedLoss(loss) if _mixes(settings) else loss, model)


def make_training_metrics(
    problem: Problem, settings: TrainerSettings
) -> list[tf_keras.metrics.Metric]:
    """Returns the metrics of each epoch; call the function in the scope of the strategy."""
    metrics = problem.make_metrics()
    if problem.log_range and learns_mean(settings):
        metrics.append(BiasFactor(BIAS_FACTOR))
    return [with_larger_share(metric) for metric in metrics] if _mixes(settings) else metrics


def create_variables(model: tf_keras.Model, output: Any) -> None:
    """Creates the variables of the optimizer and the metrics before the first step.

    Only existing variables can be restored and copied. TensorFlow also traces a step twice if the
    step creates variables. Call the function in the scope of the strategy.
    """
    example_output = tf.nest.map_structure(
        lambda part: tf.zeros([1, *part.shape[1:]], part.dtype), output
    )
    if not model.compiled_loss.built:
        model.compiled_loss.build(example_output)
    if not model.compiled_metrics.built:
        model.compiled_metrics.build(example_output, tf.zeros([1, 1]))
    if hasattr(model.optimizer, "build"):  # Keras's legacy optimizers have no `build`.
        model.optimizer.build(model.trainable_variables)


def _mixes(settings: TrainerSettings) -> bool:
    augment = settings.train.augment
    return augment is not None and augment.mixup > 0


def _plan_pruning(
    model: tf_keras.Model, settings: TrainerSettings, steps_per_epoch: int
) -> PruningPlan | None:
    prune = settings.optimize.prune
    if prune is None:
        return None
    steps = choose_epochs(settings.train, steps_per_epoch) * steps_per_epoch
    return plan_pruning(model, prune, steps)


def _check_scope(model: tf_keras.Model, kind: str, strategy: tf.distribute.Strategy) -> None:
    for variable in model.variables:
        if not strategy.extended.variable_created_in_scope(variable):
            raise TrainingError(
                f"model {kind!r}: its variable {variable.name!r} was created outside the "
                "strategy's scope; create all variables inside the builder, which runs in the "
                "scope, not during the import of its module."
            )


def check_output(output: Any, problem: Problem, kind: str) -> None:
    """Checks that the output of a user's model fits the task.

    Args:
      output: the output of the builder's model.
      problem: the features and the label.
      kind: the import path of the builder.

    Raises:
      TrainingError: the shape does not fit the task, or the last layer is linear although the task
        needs an activation, such as probabilities. What is exported and evaluated are its outputs,
        whatever loss the builder has compiled it with.
    """
    width = problem.target.output_width(problem.classes)
    if not hasattr(output, "shape"):
        found = f"a {type(output).__name__}"
    elif not _has_shape(output.shape, width):
        found = _describe_shape(output.shape)
    elif problem.target.needs_activation and _is_linear(output):
        found = (
            f"{_describe_shape(output.shape)} of unrestricted numbers, because its last layer has "
            "no activation"
        )
    else:
        return
    expected = _describe_shape(tf.TensorShape([None, width]))
    raise TrainingError(
        f"model {kind!r}: its output is {found}, but task: {problem.target.kind} needs {expected}: "
        f"{problem.target.output_description}; end the model with problem.make_output_layer()."
    )


def _has_shape(shape: tf.TensorShape, width: int) -> bool:
    """Returns whether a shape is [batch, width], or [batch] for a width of 1."""
    if width == 1 and shape.rank == 1:
        return True
    return bool(shape.is_compatible_with([None, width]))


def _is_linear(output: tf.Tensor) -> bool:
    activation = getattr(layer_of(output), "activation", None)
    return activation is tf_keras.activations.linear


def _describe_shape(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "a tensor of unknown shape"
    return f"[{', '.join(['batch', *('?' if n is None else str(n) for n in shape[1:])])}]"
