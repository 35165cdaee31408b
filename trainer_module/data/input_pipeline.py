"""Batches of transformed examples for the replicas of any strategy.

Every training batch is full: the examples repeat endlessly, in a new order each time, and an epoch
is a number of steps. So each replica has the same number of examples in every step, and the
gradients of a step are the same however many replicas share it. Step `s` always has the same
examples with the same changes of their pictures, so training can resume at any step after an
interruption.
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

from trainer_module.data.augmentation import Augmentation, BatchPlace, Examples
from trainer_module.data.examples import Content, Reader, Tensors, choose
from trainer_module.errors import TrainingError
from trainer_module.strategies import coordinator, hooks_of

BALANCED = "balanced"
RARE = 0.2
"""The share of an even class frequency below which a class is reported as rare."""


@dataclass(frozen=True)
class Weighting:
    """The weights of examples in the loss, scaled to a mean of 1 over the train split.

    So the unit of a weight affects neither the step sizes of a network, nor the regularization of a
    tree's leaves.
    """

    by_class: tuple[float, ...] = ()
    """The weights by class index; empty if the classes have none."""
    scale: float = 1.0
    """The factor that scales the product of a column's and a class's weight."""

    @classmethod
    def over(cls, by_class: Sequence[float], sums: Sequence[float], examples: int) -> Weighting:
        """Returns the weighting with a mean weight of 1.

        Args:
          by_class: the weight of each class; empty if they have none.
          sums: the sums of the data's weights by class, or over all numbers; the counts if the data
            has no weights.
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
        """Returns the weights of a batch, [batch] float32; None if all examples count alike.

        Args:
          label: [batch, 1]; the indices of classes.
          column: weights of the data, [batch, 1], if there are any.
        """
        weights = None if column is None else tf.reshape(column, [-1]) * self.scale
        if self.by_class:
            scale = self.scale if weights is None else 1.0
            by_class = tf.constant(self.by_class, tf.float32) * scale
            of_label = tf.gather(by_class, tf.reshape(label, [-1]))
            weights = of_label if weights is None else weights * of_label
        return weights


ALIKE = Weighting()
"""A weighting under which all examples count alike."""


def weights_by_class(
    given: str | Mapping[str, float] | None,
    label: str,
    classes: Sequence[str],
    counts: Sequence[float],
) -> tuple[float, ...]:
    """Returns the weight of each class by index; empty if all classes count alike.

    Args:
      given: the weights by name, by default 1; or `balanced` for equal total weights of the
        classes, and a mean of 1 over all examples.
      label: the label's column, for messages.
      classes: their names by index.
      counts: the number, or the total weight, of each class's examples in the train split.

    Raises:
      TrainingError: a class is named that the label lacks.
    """
    if not given:
        return ()
    if isinstance(given, str):
        found = itertools.zip_longest(classes, counts, fillvalue=0.0)
        return tuple(sum(counts) / (len(classes) * n) if n else 1.0 for _, n in found)
    for name in given:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(classes)}."
            raise TrainingError(
                f"train.class_weights names {name!r}, which is no class of {label!r}; {hint}"
            )
    return tuple(given.get(name, 1.0) for name in classes)


def describe_imbalance(label: str, classes: Sequence[str], counts: Sequence[int]) -> str | None:
    """Returns a message about the smallest class if it is rare, with more informative metrics.

    Args:
      label: the label's column.
      classes: their names by index; empty if the label is a number.
      counts: the number of each class's examples in the train split.
    """
    if not classes or not sum(counts):
        return None
    count, name = min(zip(counts, classes, strict=False))
    if count * len(classes) >= RARE * sum(counts):
        return None
    return (
        f"class {name!r} of label {label!r} is {count / sum(counts):.2g} of the train split "
        f"({count:,} of {sum(counts):,} examples): accuracy hardly "
        "depends on it; prefer log_loss and balanced_accuracy"
    )


SHUFFLE_BUFFER = 10_000
"""The most examples in the shuffle buffer of a split that is too large for memory."""

SHUFFLE_BYTES = 512 << 20
"""The most bytes in the shuffle buffer, which holds fewer large pictures."""

STEPS_PER_EXECUTION = 16
"""The most optimizer steps that one call of the graph runs, without Python in between."""

WORTH_TRACING = 500
"""The steps of a training from which on several steps per call pay: on 2 cores tracing takes 0.5 s
more, and `fit` saves 1 to 1.4 ms per step of wide_deep."""

EVAL_BATCH = 512
"""The fewest examples per replica and step of an evaluation, which stores no gradients."""

FOREVER = tf.int64.max

PREPARED = 2
"""The batches that a worker of parameter servers prefetches; more would distort its example count.
"""


@dataclass(frozen=True)
class Split:
    """A split, and the division of its examples among the replicas."""

    reader: Reader
    content: Content
    batch_size: int
    """The examples per replica and step."""
    replicas: int = 1
    """The number of synchronous replicas, on all workers together."""
    workers: int = 1
    """The number of processes with synchronous replicas."""
    shuffle_seed: int | None = None
    """The seed of the shuffling in training; None keeps the order, and ends after the last example.
    """
    rounds: int = 1
    """The passes over all examples per epoch of training."""
    steps_per_epoch: int | None = None
    """The steps per epoch of training; None: as many as all passes take."""
    weighting: Weighting = ALIKE
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
        """The examples per step of all replicas together."""
        return self.batch_size * self.replicas

    @property
    def steps(self) -> int:
        """The steps per epoch, which cover all examples unless the config sets their number."""
        if self.shuffle_seed is not None:
            if self.steps_per_epoch:
                return self.steps_per_epoch
            return math.ceil(self.examples * self.rounds / self.global_batch_size)
        # Enough for the worker with the most examples, but at least one example per replica and
        # step: some kernels refuse an empty batch.
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
        """The number of examples that each worker draws from; of examples in memory an equal
        share.
        """
        if self.content.tensors is None:
            return [self.content.share(worker, self.workers) for worker in range(self.workers)]
        return _deal(self.examples, self.workers)

    def distribute(self, strategy: tf.distribute.Strategy, start_step: int = 0) -> Any:
        """Returns the dataset that `fit` and `evaluate` take, per replica.

        Its elements are (features by name, label [batch, 1]), and weights [batch] if there are
        some.

        Args:
          strategy: the strategy whose replicas share each step.
          start_step: the step, counted from 0 over all epochs, from which training resumes.
        """
        return hooks_of(strategy).distribute(
            strategy, self.reading_from(start_step), self.read_by_servers
        )

    def reading_from(self, step: int) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
        """Returns a function that reads a worker's batches from a step on, counted over all
        epochs.
        """
        return lambda context: self.batches(context, step)

    def batches(self, context: tf.distribute.InputContext, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of a worker's replicas, one after the other in each step."""
        with tf.device("CPU:0"):  # Batches go to the devices one by one; all would fill a GPU.
            if self.content.tensors is None:
                dataset = self._from_files(context, start_step)
            else:
                dataset = self._from_memory(self.content.tensors, context, start_step)
            return dataset.prefetch(tf.data.AUTOTUNE)

    def _from_memory(
        self, tensors: Tensors, context: tf.distribute.InputContext, start_step: int
    ) -> tf.data.Dataset:
        """Returns batches that are gathered, one feature at a time, by computed row indices."""
        local = self._local_replicas
        first = context.input_pipeline_id * local
        last_step = self.steps if self.shuffle_seed is None else FOREVER // local
        seed = tf.constant(self.shuffle_seed or 0, tf.int64)

        @tf.autograph.experimental.do_not_convert
        def take(turn: tf.Tensor) -> tuple[Any, ...]:
            step, replica = turn // local, first + turn % local
            return self._gather(
                tensors, step * self.replicas + replica, seed, self._place(step, replica)
            )

        turns = tf.data.Dataset.range(start_step * local, last_step * local)
        return turns.map(take, tf.data.AUTOTUNE)

    def _gather(
        self, tensors: Tensors, turn: tf.Tensor, seed: tf.Tensor, place: BatchPlace
    ) -> tuple[Any, ...]:
        """Returns the batch of a turn, where turns are counted over all replicas."""

        def at(rows: tf.Tensor) -> Tensors:
            return {name: tf.gather(values, rows) for name, values in tensors.items()}

        # An example is mixed with the one at the same index of another order.
        others = at(self._rows(turn, -1 - seed)) if self._mixes else None
        return self._finish(at(self._rows(turn, seed)), others, place)

    @property
    def _mixes(self) -> bool:
        return self.augmentation is not None and self.augmentation.mixes

    def _place(self, step: tf.Tensor, replica: tf.Tensor) -> BatchPlace:
        """Returns the position of the batch of one replica, or of all replicas from it on."""
        return BatchPlace(
            step, tf.cast(replica, tf.int64) * self.batch_size, self.global_batch_size
        )

    def _rows(self, turn: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the row indices of a turn, counted over all replicas: [batch] int64."""
        if self.shuffle_seed is None:
            turns = self.steps * self.replicas
            begin, end = turn * self.examples // turns, (turn + 1) * self.examples // turns
            # With fewer examples than replicas, some are repeated.
            return tf.range(begin, tf.maximum(end, begin + 1))
        places = turn * self.batch_size + tf.range(self.batch_size, dtype=tf.int64)
        return shuffle_in_rounds(places, self.examples, seed)

    def _from_files(self, context: tf.distribute.InputContext, start_step: int) -> tf.data.Dataset:
        """Returns batches read from the files in every epoch; each worker reads a share of the
        records.
        """
        workers, worker = context.num_input_pipelines, context.input_pipeline_id
        mine = self.reader.records().shard(workers, worker)
        if self.shuffle_seed is None:
            turns = self.steps * self._local_replicas
            sizes = _deal(self.examples_per_worker[worker], turns)
            dataset = self.reader.stream(mine).rebatch(sizes).take(turns)
            return dataset.map(lambda batch: self._finish(batch, None, None))
        records = choose(mine, self.content.usable[worker::workers])
        done = start_step * self.batch_size * self._local_replicas
        first_round, done = divmod(done, self.examples_per_worker[worker])
        # Each round has a seed of its own, so that a resumed training has the same order.
        rounds = tf.data.Dataset.range(first_round, FOREVER)
        records = rounds.flat_map(lambda number: self._shuffle(records, number)).skip(done)
        return self._stream(records, worker * self._local_replicas, start_step)

    def _shuffle(self, records: tf.data.Dataset, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the records of a round, shuffled within a buffer."""
        fitting = SHUFFLE_BYTES // max(1, self.reader.problem.bytes_per_example)
        buffer = max(self.global_batch_size, min(SHUFFLE_BUFFER, fitting))
        seed = self.shuffle_seed + number
        return records.shuffle(buffer, seed=seed, reshuffle_each_iteration=False)

    def _stream(self, records: tf.data.Dataset, replica: int, start_step: int) -> tf.data.Dataset:
        """Returns the batches of a worker's replicas, the first of which is `replica`, from its
        records.
        """
        # One batch for all local replicas, as examples are mixed within their step.
        size = self.batch_size * self._local_replicas
        steps = self.reader.stream(records).rebatch(size, True).enumerate(start_step)

        def finish(step: tf.Tensor, batch: Tensors) -> tuple[Any, ...]:
            others = {k: tf.roll(v, 1, 0) for k, v in batch.items()} if self._mixes else None
            return self._finish(batch, others, self._place(step, tf.constant(replica)))

        return steps.map(finish, tf.data.AUTOTUNE).rebatch(self.batch_size)

    def read_by_servers(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Returns the batches of a parameter server worker, which has an order of its own."""
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
                lambda step: self._gather(tensors, step, seed, self._place(step, tf.constant(0))),
                tf.data.AUTOTUNE,
            )

        def counted(*batch: Any) -> tuple[Any, ...]:
            coordinator.count(self.batch_size)
            return batch

        return batches.map(counted).prefetch(PREPARED)

    def _seed_of_worker(self) -> tf.Tensor:
        """Returns a seed from the clock at run time, as all workers share one traced graph."""
        return self.shuffle_seed + tf.cast(tf.timestamp() * 1e6, tf.int64)

    def _finish(
        self, batch: Tensors, others: Tensors | None, place: BatchPlace | None
    ) -> tuple[Any, ...]:
        """Returns the elements of a step, with changed pictures, and mixed with others."""
        examples = self._split_label(batch)
        if self.augmentation is not None and place is not None:
            mixed_with = None if others is None else self._split_label(others)
            examples = self.augmentation.change(examples, mixed_with, place)
        return examples if examples[2] is not None else examples[:2]

    def _split_label(self, batch: Tensors) -> Examples:
        features, problem = dict(batch), self.reader.problem
        label = features.pop(problem.label)
        column = features.pop(problem.weight) if problem.weight else None
        return features, label, self.weighting.weigh(label, column)


def _deal(total: int, shares: int) -> list[int]:
    """Returns even shares of a number, which differ by at most one."""
    return [(i + 1) * total // shares - i * total // shares for i in range(shares)]


def steps_per_execution(steps: int) -> int:
    """Returns the optimizer steps per call of the graph, for a training of `steps` in total.

    Short trainings run single steps, as tracing a loop takes longer than it saves.
    """
    return 1 if steps < WORTH_TRACING else STEPS_PER_EXECUTION


def shuffle_in_rounds(places: tf.Tensor, examples: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns the example at each place of an endless sequence of rounds, each in its own order.

    Args:
      places: the places of a batch, in order, at most as many as there are examples: [batch] int64.
      examples: the number of examples of a round.
      seed: the seed of all orders, a scalar int64.

    Returns:
      [batch] int64, from 0 to `examples` - 1.
    """
    rounds = places // examples

    def shuffled(number: tf.Tensor) -> tf.Tensor:
        last = tf.constant(examples - 1, tf.int64)
        return tf.random.experimental.index_shuffle(
            places % examples, tf.stack([seed, number]), last
        )

    # A batch may span the end of one round and the beginning of the next.
    return tf.where(rounds == rounds[0], shuffled(rounds[0]), shuffled(rounds[0] + 1))
