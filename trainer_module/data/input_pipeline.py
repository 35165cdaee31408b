"""Batches of transformed examples for the replicas of any strategy.

Every training batch is full: the examples repeat endlessly, in a new order in each pass, and an
epoch is a number of steps. So each replica has the same number of examples in every step, and the
gradients of a step do not depend on the number of replicas. Step `s` always has the same examples
with the same changes of their pictures, so training can resume at any step after an interruption.
"""

from __future__ import annotations

import difflib
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import tensorflow as tf

from trainer_module.data.augmentation import Augmentation, BatchPosition, Examples
from trainer_module.data.examples import Content, Reader, Tensors, choose
from trainer_module.errors import TrainingError
from trainer_module.strategies import coordinator, hooks_of

BALANCED = "balanced"
RARE_RATIO = 0.2
"""The fraction of the mean class frequency below which a class is reported as rare."""


@dataclass(frozen=True)
class Weighting:
    """The weights of examples in the loss, scaled to a mean of 1 over the train split.

    The scaling makes the step sizes of a network, and the regularization of a tree's leaves,
    independent of the unit of the weights.
    """

    by_class: tuple[float, ...] = ()
    """The weights by class index, or an empty tuple without class weights."""
    scale: float = 1.0
    """The factor of the product of an example's weight in the data and the weight of its class."""

    @classmethod
    def over(cls, by_class: Sequence[float], sums: Sequence[float], examples: int) -> Weighting:
        """Returns the weighting with a mean weight of 1.

        Args:
          by_class: the weight of each class, or an empty sequence without class weights.
          sums: the sum of the data's weights for each class, or the total for a label of numbers.
            Without weights in the data, each example counts as 1.
          examples: the number of examples of the train split.

        Raises:
          TrainingError: all weights are 0.
        """
        total = sum(map(operator.mul, by_class, sums)) if by_class else sum(sums)
        if not total:
            raise TrainingError(
                "train.class_weights are 0 for every class of the train split; set at least one "
                "weight above 0."
            )
        return cls(tuple(by_class), examples / total)

    def weigh(self, label: tf.Tensor, column: tf.Tensor | None) -> tf.Tensor | None:
        """Returns the weights of a batch, [batch] float32, or None if all examples count alike.

        Args:
          label: the indices of the classes, [batch, 1].
          column: the weights in the data, [batch, 1], or None.
        """
        weights = None if column is None else tf.reshape(column, [-1]) * self.scale
        if self.by_class:
            scale = self.scale if weights is None else 1.0
            by_class = tf.constant(self.by_class, tf.float32) * scale
            of_label = tf.gather(by_class, tf.reshape(label, [-1]))
            weights = of_label if weights is None else weights * of_label
        return weights


EQUAL_WEIGHTING = Weighting()
"""A weighting under which all examples count alike."""


def weights_by_class(
    configured: str | Mapping[str, float] | None,
    label: str,
    classes: Sequence[str],
    counts: Sequence[float],
) -> tuple[float, ...]:
    """Returns the weight of each class by index, or an empty tuple if all classes count alike.

    Args:
      configured: `train.class_weights`: the weights by class name, by default 1; or `balanced` for
        equal total weights of the classes, and a mean of 1 over all examples.
      label: the label's column, for messages.
      classes: the names of the classes by index.
      counts: the number, or the total weight, of each class's examples in the train split.

    Raises:
      TrainingError: `configured` contains a class that the label lacks.
    """
    if not configured:
        return ()
    if isinstance(configured, str):
        pairs = itertools.zip_longest(classes, counts, fillvalue=0.0)
        return tuple(sum(counts) / (len(classes) * n) if n else 1.0 for _, n in pairs)
    for name in configured:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"its classes are {', '.join(classes)}."
            )
            raise TrainingError(
                f"train.class_weights names {name!r}, which is not a class of {label!r}; {hint}"
            )
    return tuple(configured.get(name, 1.0) for name in classes)


def describe_imbalance(label: str, classes: Sequence[str], counts: Sequence[int]) -> str | None:
    """Returns a message about the rarest class, or None if no class is rare.

    The message recommends metrics.

    Args:
      label: the label's column.
      classes: the names of the classes by index, or an empty sequence if the label is a number.
      counts: the number of each class's examples in the train split.
    """
    if not classes or not sum(counts):
        return None
    count, name = min(zip(counts, classes, strict=False))
    if count * len(classes) >= RARE_RATIO * sum(counts):
        return None
    return (
        f"class {name!r} of label {label!r} is {count / sum(counts):.2g} of the train split "
        f"({count:,} of {sum(counts):,} examples): accuracy hardly "
        "depends on this class; prefer log_loss and balanced_accuracy"
    )


SHUFFLE_BUFFER = 10_000
"""The maximum number of examples in the shuffle buffer of a split that is too large for memory."""

SHUFFLE_BYTES = 512 << 20
"""The maximum number of bytes in the shuffle buffer; large pictures reach this limit first."""

STEPS_PER_EXECUTION = 16
"""The number of optimizer steps in a call of the graph, which runs no Python between the steps."""

MIN_STEPS_FOR_LOOP = 500
"""The minimum number of training steps for several steps per call.

On 2 cores, tracing several steps takes 0.5 s more, and `fit` saves 1 to 1.4 ms per step of
wide_deep."""

EVAL_BATCH = 512
"""The minimum number of examples per replica and step of an evaluation, which needs no gradients.
"""

FOREVER = tf.int64.max

PREFETCHED_BATCHES = 2
"""The number of batches that a worker of parameter servers prefetches.

Prefetched batches count as used, so a larger number would distort the worker's example count."""


@dataclass(frozen=True)
class Split:
    """A split, and the division of its examples among the replicas."""

    reader: Reader
    content: Content
    batch_size: int
    """The number of examples per replica and step."""
    replicas: int = 1
    """The number of synchronous replicas, on all workers together."""
    workers: int = 1
    """The number of processes with synchronous replicas."""
    shuffle_seed: int | None = None
    """The seed of the shuffling in training, or None for an evaluation, which reads the examples
    once and in order."""
    rounds: int = 1
    """The number of passes over all examples in an epoch of training."""
    steps_per_epoch: int | None = None
    """The number of steps in an epoch of training, or None for as many steps as the passes need."""
    weighting: Weighting = EQUAL_WEIGHTING
    """The weights of the examples in the loss."""
    augmentation: Augmentation | None = None
    """The changes of pictures in training."""

    @property
    def examples(self) -> int:
        """The number of examples with a usable label."""
        return self.content.examples

    @property
    def source(self) -> Literal["memory", "files"]:
        """The source of the examples in each epoch: memory or files."""
        return "files" if self.content.tensors is None else "memory"

    @property
    def global_batch_size(self) -> int:
        """The number of examples per step on all replicas together."""
        return self.batch_size * self.replicas

    @property
    def steps(self) -> int:
        """The number of steps per epoch; unless the config sets it, the steps cover all
        examples.
        """
        if self.shuffle_seed is not None:
            if self.steps_per_epoch:
                return self.steps_per_epoch
            return math.ceil(self.examples * self.rounds / self.global_batch_size)
        # There are enough steps for the worker with the most examples. But each replica needs at
        # least one example in each step, because some kernels refuse an empty batch.
        steps = math.ceil(max(self.examples_per_worker) / (self.batch_size * self._local_replicas))
        return max(1, min(steps, min(self.examples_per_worker) // self._local_replicas))

    @property
    def _local_replicas(self) -> int:
        return self.replicas // self.workers

    def fitted(self) -> Split:
        """Returns the split with a batch no larger than a replica's share of the examples."""
        return replace(
            self, batch_size=min(self.batch_size, max(1, self.examples // self.replicas))
        )

    @property
    def examples_per_worker(self) -> list[int]:
        """The number of examples that each worker reads; equal shares for examples in memory."""
        if self.content.tensors is None:
            return [self.content.share(worker, self.workers) for worker in range(self.workers)]
        return _divide_evenly(self.examples, self.workers)

    def distribute(self, strategy: tf.distribute.Strategy, start_step: int = 0) -> Any:
        """Returns the dataset that `fit` and `evaluate` take, per replica.

        An element is a tuple: the features by name, the label [batch, 1], and the weights [batch]
        if examples have weights.

        Args:
          strategy: the strategy whose replicas share each step.
          start_step: the step, counted from 0 over all epochs, from which training resumes.
        """
        return hooks_of(strategy).distribute(
            strategy, self.reading_from(start_step), self.read_by_servers
        )

    def reading_from(self, step: int) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
        """Returns a function that reads a worker's batches.

        Args:
          step: the first step to read, counted from 0 over all epochs.
        """
        return lambda context: self.batches(context, step)

    def batches(self, context: tf.distribute.InputContext, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of a worker's replicas, one after the other in each step."""
        with tf.device("CPU:0"):  # All examples might not fit on a GPU.
            if self.content.tensors is None:
                dataset = self._from_files(context, start_step)
            else:
                dataset = self._from_memory(self.content.tensors, context, start_step)
            return dataset.prefetch(tf.data.AUTOTUNE)

    def _from_memory(
        self, tensors: Tensors, context: tf.distribute.InputContext, start_step: int
    ) -> tf.data.Dataset:
        """Returns batches that are gathered from the tensors by computed row indices."""
        local = self._local_replicas
        first = context.input_pipeline_id * local
        last_step = self.steps if self.shuffle_seed is None else FOREVER // local
        seed = tf.constant(self.shuffle_seed or 0, tf.int64)

        @tf.autograph.experimental.do_not_convert
        def make_batch(turn: tf.Tensor) -> tuple[Any, ...]:
            step, replica = turn // local, first + turn % local
            return self._gather(
                tensors, step * self.replicas + replica, seed, self._position(step, replica)
            )

        turns = tf.data.Dataset.range(start_step * local, last_step * local)
        return turns.map(make_batch, tf.data.AUTOTUNE)

    def _gather(
        self, tensors: Tensors, turn: tf.Tensor, seed: tf.Tensor, position: BatchPosition
    ) -> tuple[Any, ...]:
        """Returns the batch of a turn; a turn is a step of one replica."""

        def at(rows: tf.Tensor) -> Tensors:
            return {name: tf.gather(values, rows) for name, values in tensors.items()}

        # An example is mixed with the example at the same index of another random order.
        others = at(self._rows(turn, -1 - seed)) if self._mixes else None
        return self._finish(at(self._rows(turn, seed)), others, position)

    @property
    def _mixes(self) -> bool:
        return self.augmentation is not None and self.augmentation.mixes

    def _position(self, step: tf.Tensor, replica: tf.Tensor) -> BatchPosition:
        """Returns the position of a batch whose first example belongs to a replica."""
        return BatchPosition(
            step, tf.cast(replica, tf.int64) * self.batch_size, self.global_batch_size
        )

    def _rows(self, turn: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the row indices of a turn, [batch] int64."""
        if self.shuffle_seed is None:
            turns = self.steps * self.replicas
            begin, end = turn * self.examples // turns, (turn + 1) * self.examples // turns
            # If there are fewer examples than replicas, some examples are repeated.
            return tf.range(begin, tf.maximum(end, begin + 1))
        positions = turn * self.batch_size + tf.range(self.batch_size, dtype=tf.int64)
        return shuffle_in_rounds(positions, self.examples, seed)

    def _from_files(self, context: tf.distribute.InputContext, start_step: int) -> tf.data.Dataset:
        """Returns batches that are read from the files in every epoch.

        Each worker reads its share of the records.
        """
        workers, worker = context.num_input_pipelines, context.input_pipeline_id
        records_of_worker = self.reader.records().shard(workers, worker)
        if self.shuffle_seed is None:
            turns = self.steps * self._local_replicas
            sizes = _divide_evenly(self.examples_per_worker[worker], turns)
            dataset = self.reader.stream(records_of_worker).rebatch(sizes).take(turns)
            return dataset.map(lambda batch: self._finish(batch, None, None))
        records = choose(records_of_worker, self.content.usable[worker::workers])
        done = start_step * self.batch_size * self._local_replicas
        first_round, done = divmod(done, self.examples_per_worker[worker])
        # Each round has its own seed, so a resumed training reads the records in the same order.
        rounds = tf.data.Dataset.range(first_round, FOREVER)
        records = rounds.flat_map(lambda number: self._shuffle(records, number)).skip(done)
        return self._stream(records, worker * self._local_replicas, start_step)

    def _shuffle(self, records: tf.data.Dataset, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the records of a round, shuffled within a buffer."""
        max_examples = SHUFFLE_BYTES // max(1, self.reader.problem.bytes_per_example)
        buffer = max(self.global_batch_size, min(SHUFFLE_BUFFER, max_examples))
        seed = self.shuffle_seed + number
        return records.shuffle(buffer, seed=seed, reshuffle_each_iteration=False)

    def _stream(self, records: tf.data.Dataset, replica: int, start_step: int) -> tf.data.Dataset:
        """Returns the batches of a worker's replicas.

        Args:
          records: the records of the worker.
          replica: the index of the worker's first replica.
          start_step: the first step, counted from 0 over all epochs.
        """
        # Examples are mixed within a step, so a batch holds the examples of all local replicas.
        size = self.batch_size * self._local_replicas
        steps = self.reader.stream(records).rebatch(size, True).enumerate(start_step)

        def finish(step: tf.Tensor, batch: Tensors) -> tuple[Any, ...]:
            others = {k: tf.roll(v, 1, 0) for k, v in batch.items()} if self._mixes else None
            return self._finish(batch, others, self._position(step, tf.constant(replica)))

        return steps.map(finish, tf.data.AUTOTUNE).rebatch(self.batch_size)

    def read_by_servers(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Returns the batches of a parameter server worker; each worker has its own random
        order.
        """
        del context
        coordinator.count_from_zero()
        seed = self._seed_of_worker()
        if self.content.tensors is None:
            rounds = tf.data.Dataset.range(FOREVER)
            records = rounds.flat_map(lambda n: self._shuffle(self.reader.records(), seed + n))
            batches = self._stream(records, 0, 0)
        else:
            tensors = self.reader.read_in_graph(len(self.content.usable))
            batches = tf.data.Dataset.range(FOREVER).map(
                lambda step: self._gather(
                    tensors, step, seed, self._position(step, tf.constant(0))
                ),
                tf.data.AUTOTUNE,
            )

        def count_batch(*batch: Any) -> tuple[Any, ...]:
            coordinator.count(self.batch_size)
            return batch

        return batches.map(count_batch).prefetch(PREFETCHED_BATCHES)

    def _seed_of_worker(self) -> tf.Tensor:
        """Returns a seed from the clock at run time, because all workers share one traced graph."""
        return self.shuffle_seed + tf.cast(tf.timestamp() * 1e6, tf.int64)

    def _finish(
        self, batch: Tensors, others: Tensors | None, position: BatchPosition | None
    ) -> tuple[Any, ...]:
        """Returns the elements of a step, with changed pictures, mixed with the examples of
        `others`.
        """
        examples = self._split_label(batch)
        if self.augmentation is not None and position is not None:
            mixed_with = None if others is None else self._split_label(others)
            examples = self.augmentation.change(examples, mixed_with, position)
        return examples if examples[2] is not None else examples[:2]

    def _split_label(self, batch: Tensors) -> Examples:
        features, problem = dict(batch), self.reader.problem
        label = features.pop(problem.label)
        column = features.pop(problem.weight) if problem.weight else None
        return features, label, self.weighting.weigh(label, column)


def _divide_evenly(total: int, shares: int) -> list[int]:
    """Divides a number into shares that differ by at most 1."""
    return [(i + 1) * total // shares - i * total // shares for i in range(shares)]


def steps_per_execution(steps: int) -> int:
    """Returns the number of optimizer steps per call of the graph.

    A short training runs single steps, because tracing a loop takes longer than the loop saves.

    Args:
      steps: the number of steps of the training.
    """
    return 1 if steps < MIN_STEPS_FOR_LOOP else STEPS_PER_EXECUTION


def shuffle_in_rounds(positions: tf.Tensor, examples: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns the example at each position of an endless sequence of shuffled rounds.

    A round contains every example once; each round has its own order.

    Args:
      positions: consecutive positions in the sequence, at most `examples`: [batch] int64.
      examples: the number of examples of a round.
      seed: the seed of all orders, a scalar int64.

    Returns:
      The indices of the examples, [batch] int64, from 0 to `examples` - 1.
    """
    rounds = positions // examples

    def shuffled(number: tf.Tensor) -> tf.Tensor:
        last = tf.constant(examples - 1, tf.int64)
        return tf.random.experimental.index_shuffle(
            positions % examples, tf.stack([seed, number]), last
        )

    # A batch may span the end of one round and the beginning of the next.
    return tf.where(rounds == rounds[0], shuffled(rounds[0]), shuffled(rounds[0] + 1))
