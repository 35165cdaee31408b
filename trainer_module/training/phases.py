"""The phases of training.

Training has two phases if a pretrained network is frozen at first, otherwise one phase. The phases
follow https://www.tensorflow.org/guide/keras/transfer_learning. The number of an epoch determines
its phase, so the position in a checkpoint also determines the phase. The features of a frozen
network are computed once per picture, and replace the pictures in memory.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.data.examples import MEMORY_SHARE, Tensors
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.errors import TrainingError, counted
from trainer_module.families.supervised.models.pretrained_parts import (
    batch_norms,
    head_of,
    network_of,
    pooling_model_of,
)
from trainer_module.machine import free_memory
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import TransferSettings
from trainer_module.strategies import hooks_of
from trainer_module.strategies.coordinator import all_workers_equal
from trainer_module.training.building import make_network
from trainer_module.training.checkpoint import Position
from trainer_module.training.plan import TrainingInputs, TrainingPlan, TrainingResult

logger = logging.getLogger(__name__)

FEATURES_BATCH = 32
"""The number of pictures per replica and batch; feature maps take far more memory than pictures."""


@dataclass(frozen=True)
class Phase:
    """Consecutive epochs that train the same model with the same learning rate settings."""

    model: tf_keras.Model
    """The model to train."""
    settings: TrainerSettings
    first_epoch: int
    """The first epoch of the phase, counted from 0."""
    end_epoch: int
    """The epoch after the last epoch of the phase."""
    other_models: Mapping[str, tf_keras.Model] = field(default_factory=dict)
    """The models in a checkpoint in addition to the exported model, by name."""
    set_trainable: Callable[[], None] = lambda: None
    """A function that sets the trainable layers.

    Call the function in the scope of the strategy, before the model is compiled."""
    prepare_data: Callable[[TrainingData], TrainingData] = lambda data: data
    """A function that replaces the examples by the inputs of the phase's model."""


def phases_of(
    model: tf_keras.Model, inputs: TrainingInputs, plan: TrainingPlan
) -> tuple[list[Phase], list[str]]:
    """Returns the phases of training, and notes on the phases for the summary.

    Call the function in the scope of the strategy.

    Args:
      model: the exported model, which the last phase trains.
      inputs: the inputs of the training.
      plan: the epochs and steps.

    Raises:
      TrainingError: the network would be unfrozen after the last epoch.
    """
    settings = inputs.settings
    if not settings.model.begins_frozen:
        initialization = "the complete network is trained from scratch"
        return [Phase(model, settings, 0, plan.epochs)], _notes_on_weights(inputs, initialization)
    transfer = settings.model.transfer or TransferSettings()
    until = frozen_epochs(transfer, plan.epochs)
    network = network_of(model, settings.model.kind)
    network.trainable = False
    pooling_model = pooling_model_of(model, inputs.data.problem.of_kind("image"))
    splits = (inputs.data.train, inputs.data.evaluation)
    reason = _reason_not_to_cache(settings, inputs.strategy, splits, pooling_model)
    part = model if reason else head_of(model)
    # The first phase trains a separate model, whose optimizer is not exported.
    trained = tf_keras.Model(part.input, part.output)

    def compute_features(data: TrainingData) -> TrainingData:
        step = make_step(pooling_model, inputs.strategy)
        train, evaluation = (
            with_features(split, step, inputs.strategy) for split in (data.train, data.evaluation)
        )
        return replace(data, train=train, evaluation=evaluation)

    def unfreeze() -> None:
        network.trainable = True
        for layer in [*network.layers[: -transfer.unfreeze_layers], *batch_norms(network)]:
            layer.trainable = False

    phases = [Phase(trained, settings, 0, until, {"frozen": trained})]
    if not reason:
        phases = [replace(phases[0], prepare_data=compute_features)]
    if until < plan.epochs:
        train = settings.train.model_copy(update={"learning_rate": transfer.learning_rate})
        fine_tuning = settings.model_copy(update={"train": train})
        phases.append(Phase(model, fine_tuning, until, plan.epochs, set_trainable=unfreeze))
    if reason:
        features_note = f"the network's features are computed in each epoch, because {reason}"
    else:
        features_note = _describe_features(splits, pooling_model)
    initialization = "the network is frozen with random weights"
    return phases, [f"transfer: {features_note}", *_notes_on_weights(inputs, initialization)]


def remaining_phases(phases: Sequence[Phase], start: Position) -> list[Phase]:
    """Returns the phases that have not ended at a position, and always the last phase."""
    return [phase for phase in phases if start.epoch < phase.end_epoch or phase is phases[-1]]


def frozen_epochs(transfer: TransferSettings, epochs: int) -> int:
    """Returns the number of epochs in the first phase: all epochs if no phase follows.

    Raises:
      TrainingError: the network would be unfrozen after the last epoch.
    """
    if transfer.unfreeze_after is None:
        return epochs
    if transfer.unfreeze_after >= epochs:
        raise TrainingError(
            f"model.transfer.unfreeze_after is {transfer.unfreeze_after}, but the training has "
            f"{counted(epochs, 'epoch')}, so nothing would be fine-tuned; lower unfreeze_after, or "
            "raise train.epochs."
        )
    return transfer.unfreeze_after


def _notes_on_weights(inputs: TrainingInputs, initialization: str) -> list[str]:
    model = inputs.settings.model
    has_random_weights = model.transfer and not model.weights and not inputs.base_model
    return (
        [f"transfer: {initialization}; set model.weights to pretrained weights"]
        if has_random_weights
        else []
    )


def _reason_not_to_cache(
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    splits: tuple[Split, ...],
    pooling_model: tf_keras.Model,
) -> str:
    """Returns the reason why features are computed in each epoch, or an empty string.

    The string is empty if the features are computed once and kept in memory.

    Args:
      settings: the settings of the training.
      strategy: the strategy of the training.
      splits: the splits with the pictures.
      pooling_model: the model that computes the features, [batch, n] by name.
    """
    if settings.train.augment:
        return "train.augment changes the pictures"
    if not hooks_of(strategy).has_step_hooks:
        return "the workers of parameter servers read the examples themselves"
    workers = splits[0].workers
    available = int(free_memory() * MEMORY_SHARE / workers)
    needed = sum(split.examples for split in splits) * _bytes_per_example(pooling_model)
    fits = needed <= available
    if workers > 1:
        fits = all_workers_equal(strategy, fits) and fits
    if fits:
        return ""
    return f"they take {_format_size(needed)}, but only {_format_size(available)} are available"


Step = Callable[[Any], Any]
"""A function that replaces pictures by features in the batches of all replicas."""


def make_step(
    pooling_model: tf_keras.Model, strategy: tf.distribute.Strategy
) -> tf.types.experimental.GenericFunction:
    """Returns a `Step`, traced once for all splits.

    Args:
      pooling_model: the model that computes features from pictures.
      strategy: the strategy whose replicas share the work.
    """
    images = list(pooling_model.input)

    def compute(batch: Tensors) -> Tensors:
        return batch | pooling_model({name: batch[name] for name in images}, training=False)

    return tf.function(lambda batch: strategy.run(compute, (batch,)))


def with_features(
    split: Split, step: tf.types.experimental.GenericFunction, strategy: tf.distribute.Strategy
) -> Split:
    """Returns a split in memory with features instead of pictures.

    Each worker keeps all examples in memory, so each worker computes the features of all examples
    on all of its replicas.

    Args:
      split: a split with pictures, in memory or in files.
      step: the function of `make_step`.
      strategy: the strategy whose replicas share the work.
    """
    started = time.monotonic()
    local = split.replicas // split.workers

    def read(context: tf.distribute.InputContext) -> tf.data.Dataset:
        del context
        with tf.device("CPU:0"):
            return _replica_batches(split, local).prefetch(tf.data.AUTOTUNE)

    batches = strategy.distribute_datasets_from_function(read)
    # The trace depends only on the type of the batches, so both splits use the same trace.
    traced = step.get_concrete_function(batches.element_spec)
    parts = list(_compute_features(batches, traced, strategy))
    with tf.device("CPU:0"):  # A GPU's memory might be too small for all features.
        tensors = {name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}
        # The last step repeats examples to fill its batches.
        tensors = {name: values[: split.examples] for name, values in tensors.items()}
    logger.info("features of %d pictures: %.1f s", split.examples, time.monotonic() - started)
    return replace(split, content=replace(split.content, tensors=tensors))


def _compute_features(
    batches: Any, step: Step, strategy: tf.distribute.Strategy
) -> Iterator[Tensors]:
    """Yields the examples of each replica's batch with features, in the order of the examples."""
    for batch in batches:
        features = {k: strategy.experimental_local_results(v) for k, v in step(batch).items()}
        for parts in zip(*features.values(), strict=True):
            with tf.device("CPU:0"):
                yield {name: tf.identity(part) for name, part in zip(features, parts, strict=True)}


def _replica_batches(split: Split, replicas: int) -> tf.data.Dataset:
    """Returns all usable examples with labels, with a batch for each replica and step."""
    steps = math.ceil(split.examples / (FEATURES_BATCH * replicas))
    size = math.ceil(split.examples / (steps * replicas))
    total = steps * replicas * size
    tensors = split.content.tensors
    if tensors is None:
        examples = split.reader.stream(split.reader.records()).unbatch()
        return examples.repeat().take(total).batch(size)
    rows = tf.data.Dataset.range(total).batch(size).map(lambda rows: rows % split.examples)
    return rows.map(lambda row: {name: tf.gather(v, row) for name, v in tensors.items()})


def _describe_features(splits: tuple[Split, ...], pooling_model: tf_keras.Model) -> str:
    """Returns a note on the number and size of the kept features."""
    examples = sum(split.examples for split in splits)
    size = _format_size(examples * _bytes_per_example(pooling_model))
    return f"the features of {counted(examples, 'picture')} are computed once, {size}"


def _bytes_per_example(pooling_model: tf_keras.Model) -> int:
    return sum(4 * math.prod(shape[1:]) for shape in pooling_model.output_shape.values())


def _format_size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


PUBLISHED_NOTE = (
    "transfer: the network and its head keep their published weights and are not trained"
)


def use_published_network(inputs: TrainingInputs) -> TrainingResult:
    """Builds a network with its published weights, and returns it as the result of training.

    Args:
      inputs: inputs whose settings have `model.transfer.head: published`.

    Raises:
      TrainingError: the weights cannot be read or do not fit, or the data does not have exactly one
        feature, a picture.
    """
    with inputs.strategy.scope():
        model = make_network(inputs.data.problem, inputs.settings)
    return TrainingResult(
        model=model,
        train=inputs.data.train,
        evaluation=inputs.data.evaluation,
        history={"loss": []},
        best_epoch=0,
        epoch_seconds=[],
        notes=[PUBLISHED_NOTE],
    )
