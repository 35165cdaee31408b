"""What a frozen network makes of each picture, computed once and kept in place of the pictures."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.data.examples import MEMORY_SHARE, Tensors
from trainer_module.data.input_pipeline import Split
from trainer_module.machine import free_memory
from trainer_module.settings import TrainerSettings
from trainer_module.strategies.agreement import agree

logger = logging.getLogger(__name__)

BATCH = 32
"""Pictures per replica at a time: a network's maps of features take far more room than they."""


def why_not(
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    splits: tuple[Split, ...],
    pooled: tf_keras.Model,
) -> str:
    """Why features have to be computed in each epoch; empty if they need not.

    Args:
      settings: of the training.
      strategy: that it is under.
      splits: whose pictures they would be of.
      pooled: gives them, [batch, n] by name.
    """
    if settings.train.augment:
        return "train.augment changes the pictures"
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "the workers of parameter servers read the examples themselves"
    workers = splits[0].workers
    room = int(free_memory() * MEMORY_SHARE / workers)
    needed = sum(split.examples for split in splits) * _bytes_per_example(pooled)
    fits = needed <= room
    if workers > 1:
        fits = agree(strategy, fits) and fits
    return "" if fits else f"they take {_shown(needed)}, and there is room for {_shown(room)}"


Step = Callable[[Any], Any]
"""From the batches of all replicas to the same with features in place of pictures."""


def make_step(
    pooled: tf_keras.Model, strategy: tf.distribute.Strategy
) -> tf.types.experimental.GenericFunction:
    """A `Step`, traced once for all splits.

    Args:
      pooled: what pictures are put through.
      strategy: whose replicas share the work.
    """
    images = list(pooled.input)

    def compute(batch: Tensors) -> Tensors:
        return batch | pooled({name: batch[name] for name in images}, training=False)

    return tf.function(lambda batch: strategy.run(compute, (batch,)))


def with_features(
    split: Split, step: tf.types.experimental.GenericFunction, strategy: tf.distribute.Strategy
) -> Split:
    """The same split with features in place of pictures, in memory.

    Each worker computes all of them, by all of its replicas, as it holds all examples that fit.

    Args:
      split: with pictures, in memory or in files.
      step: of `make_step`.
      strategy: whose replicas share the work.
    """
    begun = time.monotonic()
    local = split.replicas // split.workers

    def read(context: tf.distribute.InputContext) -> tf.data.Dataset:
        del context
        with tf.device("CPU:0"):
            return _in_order(split, local).prefetch(tf.data.AUTOTUNE)

    batches = strategy.distribute_datasets_from_function(read)
    # By the kind of its batches, as splits of other sizes would trace the network once more.
    traced = step.get_concrete_function(batches.element_spec)
    parts = list(_computed(batches, traced, strategy))
    with tf.device("CPU:0"):  # As the batches are made: all would fill a GPU.
        tensors = {name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}
    # What fills up the last step comes after all examples.
    tensors = {name: values[: split.examples] for name, values in tensors.items()}
    logger.info("features of %d pictures: %.1f s", split.examples, time.monotonic() - begun)
    return replace(split, content=replace(split.content, tensors=tensors))


def _computed(batches: Any, step: Step, strategy: tf.distribute.Strategy) -> Iterator[Tensors]:
    """The examples of each replica's batch with features, in the order of the examples."""
    for batch in batches:
        found = {k: strategy.experimental_local_results(v) for k, v in step(batch).items()}
        for parts in zip(*found.values(), strict=True):
            with tf.device("CPU:0"):
                yield {name: tf.identity(part) for name, part in zip(found, parts, strict=True)}


def _in_order(split: Split, replicas: int) -> tf.data.Dataset:
    """All usable examples in batches, one for each replica in each step, labels among them."""
    steps = math.ceil(split.examples / (BATCH * replicas))
    size = math.ceil(split.examples / (steps * replicas))
    total = steps * replicas * size
    tensors = split.content.tensors
    if tensors is None:
        examples = split.reader.stream(split.reader.records()).unbatch()
        return examples.repeat().take(total).batch(size)
    rows = tf.data.Dataset.range(total).batch(size).map(lambda rows: rows % split.examples)
    return rows.map(lambda row: {name: tf.gather(v, row) for name, v in tensors.items()})


def describe_features(splits: tuple[Split, ...], pooled: tf_keras.Model) -> str:
    """What was kept, in words."""
    examples = sum(split.examples for split in splits)
    size = _shown(examples * _bytes_per_example(pooled))
    return f"the features of {examples:,} pictures are computed once, {size}"


def _bytes_per_example(pooled: tf_keras.Model) -> int:
    return sum(4 * math.prod(shape[1:]) for shape in pooled.output_shape.values())


def _shown(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
