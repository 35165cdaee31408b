"""Builds and compiles the model in the scope of the strategy."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import layer_of
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.losses import MixedLoss, make_loss, with_larger_share
from trainer_module.families.supervised.models.members import wrap_ensemble_loss
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import load_builder
from trainer_module.settings.train import choose_epochs
from trainer_module.training.compression import PruningPlan, plan_pruning, quantize
from trainer_module.training.optimizers import BASE_EXAMPLES, build_optimizer, build_schedule


def build_model(
    problem: Problem,
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    steps_per_epoch: int,
) -> tf_keras.Model:
    """Returns the model, compiled unless its builder compiled it.

    Args:
      problem: the features and the label.
      settings: the settings of the model and its training.
      strategy: the strategy in whose scope the model is built.
      steps_per_epoch: the steps of an epoch, for the learning rate and the optimizer.

    Raises:
      TrainingError: as `make_network` and `check_model` raise.
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
      TrainingError: the builder does not exist, or does not return a tf_keras model whose variables
        belong to the strategy, or the model cannot be quantised.
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

    The effect is that of `kernel_regularizer=tf_keras.regularizers.L2(l2)` in all layers, which has
    to be set before a layer is built. Frozen kernels do not count.

    Args:
      model: a built model; models that share a layer share its losses as well.
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
    """Yields the layers of a model, with nested models replaced by their layers.

    A nested model may be trained without the outer model.
    """
    for layer in model.layers:
        if isinstance(layer, tf_keras.Model):
            yield from _single_layers(layer)
        else:
            yield layer


def _is_kernel(weight: tf.Variable) -> bool:
    """Returns whether Keras would apply a `kernel_regularizer`, or a variant of it, to a weight."""
    return bool(weight.name.rpartition("/")[2].partition(":")[0].endswith("kernel"))


def _penalty(
    layer: tf_keras.layers.Layer, kernel: tf.Variable, regularizer: tf_keras.regularizers.L2
) -> tf.Tensor | None:
    """Returns the penalty of a kernel, or None if the kernel is frozen."""
    is_learnt = any(weight is kernel for weight in layer.trainable_weights)
    return regularizer(tf.convert_to_tensor(kernel)) if is_learnt else None


def check_model(model: tf_keras.Model, problem: Problem, settings: TrainerSettings) -> Any:
    """Returns the model's symbolic output, after checking that the settings can train the model.

    Args:
      model: the model of `make_network`; a user's builder may have compiled it.
      problem: the features and the label.
      settings: the settings of the training.

    Raises:
      TrainingError: the output does not fit the task, or the model is compiled without support for
        mixup or pruning, which the settings ask for.
    """
    train, kind = settings.train, settings.model.kind
    output = model.output if model.inputs else model(problem.make_inputs())
    if settings.model.is_custom:
        own_loss = train.loss is not None and train.loss.is_custom
        check_output(output, problem, kind, own_loss or model.optimizer is not None)
    if model.optimizer is not None and _mixes(settings):
        raise TrainingError(
            f"model {kind!r}: its builder has compiled it, with a loss that does not support mixed "
            "labels; remove train.augment.mixup, or the builder's compile."
        )
    if model.optimizer is not None and settings.optimize.prune:
        raise TrainingError(
            f"model {kind!r}: its builder has compiled it, with an optimizer without pruning; "
            "remove optimize.prune, or the builder's compile."
        )
    return output


def make_optimizer(
    model: tf_keras.Model,
    settings: TrainerSettings,
    steps_per_epoch: int,
    examples_per_step: int = BASE_EXAMPLES,
) -> tf_keras.optimizers.Optimizer:
    """Returns the optimizer that a model is compiled with; call it in the scope of the strategy.

    Args:
      model: the model whose weights the optimizer may prune.
      settings: the settings of the training.
      steps_per_epoch: the steps of an epoch, for the learning rate and updates once per epoch.
      examples_per_step: the examples in a step of all replicas, for the learning rate.

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
    """Returns the loss of all members of an ensemble, with support for mixed labels under mixup."""
    loss = make_loss(problem, settings.train.loss)
    return wrap_ensemble_loss(MixedLoss(loss) if _mixes(settings) else loss, model)


def make_training_metrics(
    problem: Problem, settings: TrainerSettings
) -> list[tf_keras.metrics.Metric]:
    """Returns the metrics of each epoch; call it in the scope of the strategy."""
    metrics = problem.make_metrics()
    return [with_larger_share(metric) for metric in metrics] if _mixes(settings) else metrics


def create_variables(model: tf_keras.Model, output: Any) -> None:
    """Creates the variables of the optimizer and the metrics before the first step.

    Created variables can be restored and copied, and TensorFlow traces a step twice if the step
    creates variables. Call the function in the scope of the strategy.
    """
    like_one = tf.nest.map_structure(
        lambda part: tf.zeros([1, *part.shape[1:]], part.dtype), output
    )
    if not model.compiled_loss.built:
        model.compiled_loss.build(like_one)
    if not model.compiled_metrics.built:
        model.compiled_metrics.build(like_one, tf.zeros([1, 1]))
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
                "strategy's scope; create the whole model inside the builder, which is called in "
                "the scope, not when the module is imported."
            )


def check_output(output: Any, problem: Problem, kind: str, has_own_loss: bool) -> None:
    """Compares the output of a user's model with the shape that the loss and the signatures expect.

    Args:
      output: the output of the model as its builder returned it.
      problem: the features and the label.
      kind: the import path of the builder.
      has_own_loss: whether the user also supplies the loss, which may take logits.

    Raises:
      TrainingError: the shape does not fit the task, or the last layer is linear although the task
        needs an activation, such as probabilities.
    """
    width = problem.target.output_width(problem.classes)
    if not hasattr(output, "shape"):
        found = f"a {type(output).__name__}"
    elif not _fits(output.shape, width):
        found = _show(output.shape)
    elif problem.target.needs_activation and not has_own_loss and _is_linear(output):
        found = (
            f"{_show(output.shape)} of unrestricted numbers, as its last layer has no activation"
        )
    else:
        return
    right = _show(tf.TensorShape([None, width]))
    raise TrainingError(
        f"model {kind!r}: its output is {found}, but task: {problem.target.kind} needs {right}: "
        f"{problem.target.output_description}; end it with problem.make_output_layer()."
    )


def _fits(shape: tf.TensorShape, width: int) -> bool:
    """Returns whether a shape is [batch, width], or [batch] for a width of 1."""
    if width == 1 and shape.rank == 1:
        return True
    return bool(shape.is_compatible_with([None, width]))


def _is_linear(output: tf.Tensor) -> bool:
    activation = getattr(layer_of(output), "activation", None)
    return activation is tf_keras.activations.linear


def _show(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "a tensor of unknown shape"
    return f"[{', '.join(['batch', *('?' if n is None else str(n) for n in shape[1:])])}]"
