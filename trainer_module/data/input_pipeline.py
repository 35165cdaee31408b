"""Batches of transformed examples for the replicas of any strategy.

Every batch of training is full: the examples repeat without end, in a new order each time, and an
epoch is a number of steps. So each replica has the same number of examples in every step, and the
gradients of a step are the same however many replicas share it. Step `s` has the same examples
whenever training reaches it, and the same changes of their pictures, so that it can go on from any
step after an interruption.
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
"""A class is worth a note that has less than this of the examples that an even share would be."""


@dataclass(frozen=True)
class Weighting:
    """How much each example counts in a loss: over the train split 1 in the mean.

    So the unit of a weight decides neither how far the steps of a network go, nor what the leaves
    of a tree take for few examples.
    """

    by_class: tuple[float, ...] = ()
    """By index; empty if they have no weights."""
    scale: float = 1.0
    """What the product of a column's and a class's weight is multiplied by."""

    @classmethod
    def over(cls, by_class: Sequence[float], sums: Sequence[float], examples: int) -> Weighting:
        """Returns the weighting under which the mean is 1.

        Args:
          by_class: the weight of each class; empty if they have none.
          sums: what the weights of the data add up to, of each class or of all numbers; that is
              their count where they have none.
          examples: of the train split.

        Raises:
          TrainingError: no example counts.
        """
        total = sum(map(operator.mul, by_class, sums)) if by_class else sum(sums)
        if not total:
            raise TrainingError(
                "train.class_weights are 0 for every class of the train split, of which nothing "
                "is learnt then; give one of them a weight above 0."
            )
        return cls(tuple(by_class), examples / total)

    def weigh(self, label: tf.Tensor, column: tf.Tensor | None) -> tf.Tensor | None:
        """Returns the weights of a batch, [batch] float32; None where all examples count alike.

        Args:
          label: [batch, 1]; of classes their indices.
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
"""All examples count once."""


def weights_by_class(
    given: str | Mapping[str, float] | None,
    label: str,
    classes: Sequence[str],
    counts: Sequence[float],
) -> tuple[float, ...]:
    """Returns the weight of each class by index; none where all classes count alike.

    Args:
      given: by name, where a class that is not named counts once; or `balanced`: as often as makes
          the classes equal, and the mean over all examples 1.
      label: the label's column, for messages.
      classes: their names by index.
      counts: examples of each in the train split, or what those of the data's weights add up to.

    Raises:
      TrainingError: a class is named that the label has not got.
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
    """Returns a line on the smallest class where it is rare, with the metrics that tell more of it.

    Args:
      label: the label's column.
      classes: their names by index; none if the label is a number.
      counts: examples of each in the train split.
    """
    if not classes or not sum(counts):
        return None
    count, name = min(zip(counts, classes, strict=False))
    if count * len(classes) >= RARE * sum(counts):
        return None
    return (
        f"class {name!r} of label {label!r} is {count / sum(counts):.2g} of the train split "
        f"({count:,} of {sum(counts):,} examples): accuracy says little of it; "
        "log_loss and balanced_accuracy say more"
    )


SHUFFLE_BUFFER = 10_000
"""Examples among which a split too large for memory is shuffled, at most."""

SHUFFLE_BYTES = 512 << 20
"""What they may take, as there are fewer large pictures."""

STEPS_PER_EXECUTION = 16
"""At most so many optimizer steps run at a time in the graph, without Python in between."""

WORTH_TRACING = 500
"""Steps of a training from which on that pays: on 2 cores tracing takes 0.5 s more, and `fit` needs
1 to 1.4 ms less for a step of wide_deep."""

EVAL_BATCH = 512
"""Examples per replica and step of an evaluation, at least: there are no gradients to keep."""

FOREVER = tf.int64.max

PREPARED = 2
"""Batches that a worker of parameter servers prepares: more would blur what it has counted."""


@dataclass(frozen=True)
class Split:
    """One split, and how its examples are dealt to the replicas."""

    reader: Reader
    content: Content
    batch_size: int
    """Examples per replica and step."""
    replicas: int = 1
    """Replicas in step with each other, on all workers together."""
    workers: int = 1
    """Processes that the replicas in step are in."""
    shuffle_seed: int | None = None
    """For training; None keeps the order, and ends after the last example."""
    rounds: int = 1
    """How often every example comes up in an epoch of training."""
    steps_per_epoch: int | None = None
    """For training: the steps that an epoch has; None is as many as take all examples."""
    weighting: Weighting = ALIKE
    """How much each example counts."""
    augmentation: Augmentation | None = None
    """For training: how pictures are changed."""

    @property
    def examples(self) -> int:
        """Examples with a usable label."""
        return self.content.examples

    @property
    def source(self) -> Literal["memory", "files"]:
        """Where each epoch reads the examples."""
        return "files" if self.content.tensors is None else "memory"

    @property
    def global_batch_size(self) -> int:
        """Examples per step of all replicas together."""
        return self.batch_size * self.replicas

    @property
    def steps(self) -> int:
        """Steps per epoch, in which every example comes up unless their number is given."""
        if self.shuffle_seed is not None:
            if self.steps_per_epoch:
                return self.steps_per_epoch
            return math.ceil(self.examples * self.rounds / self.global_batch_size)
        # So many that the worker with the most examples comes to their end, but no more than
        # leave an example for each replica: some kernels refuse an empty batch.
        steps = math.ceil(max(self.examples_per_worker) / (self.batch_size * self._local_replicas))
        return max(1, min(steps, min(self.examples_per_worker) // self._local_replicas))

    @property
    def _local_replicas(self) -> int:
        return self.replicas // self.workers

    def fitted(self) -> Split:
        """Returns the same with a batch no larger than a replica's share of the examples."""
        return replace(
            self, batch_size=min(self.batch_size, max(1, self.examples // self.replicas))
        )

    @property
    def examples_per_worker(self) -> list[int]:
        """Examples that each worker has to draw from: of those in memory an equal share."""
        if self.content.tensors is None:
            return [self.content.share(worker, self.workers) for worker in range(self.workers)]
        return _deal(self.examples, self.workers)

    def distribute(self, strategy: tf.distribute.Strategy, start_step: int = 0) -> Any:
        """What `fit` and `evaluate` take, per replica.

        That is (features by name, label [batch, 1]), and weights [batch] where there are some.

        Args:
          strategy: whose replicas share each step.
          start_step: the step, counted from 0 over all epochs, that training goes on with.
        """
        return hooks_of(strategy).distribute(
            strategy, self.reading_from(start_step), self.read_by_servers
        )

    def reading_from(self, step: int) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
        """Reads the batches of one worker's replicas from a step on, counted over all epochs."""
        return lambda context: self.batches(context, step)

    def batches(self, context: tf.distribute.InputContext, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of one worker's replicas, one after the other in each step."""
        with tf.device("CPU:0"):  # Batches go to the devices one by one; all would fill a GPU.
            if self.content.tensors is None:
                dataset = self._from_files(context, start_step)
            else:
                dataset = self._from_memory(self.content.tensors, context, start_step)
            return dataset.prefetch(tf.data.AUTOTUNE)

    def _from_memory(
        self, tensors: Tensors, context: tf.distribute.InputContext, start_step: int
    ) -> tf.data.Dataset:
        """Computes which examples come up, then gathers a whole batch per feature at once."""
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
        """Returns the batch of a turn, when turns are counted over all replicas."""

        def at(rows: tf.Tensor) -> Tensors:
            return {name: tf.gather(values, rows) for name, values in tensors.items()}

        # An example is mixed with the one that has its place in another order.
        others = at(self._rows(turn, -1 - seed)) if self._mixes else None
        return self._finish(at(self._rows(turn, seed)), others, place)

    @property
    def _mixes(self) -> bool:
        return self.augmentation is not None and self.augmentation.mixes

    def _place(self, step: tf.Tensor, replica: tf.Tensor) -> BatchPlace:
        """Where the batch of one of all replicas, or of all from it on, stands."""
        return BatchPlace(
            step, tf.cast(replica, tf.int64) * self.batch_size, self.global_batch_size
        )

    def _rows(self, turn: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the examples of one turn, when turns are counted over all replicas: [batch]
        int64.
        """
        if self.shuffle_seed is None:
            turns = self.steps * self.replicas
            begin, end = turn * self.examples // turns, (turn + 1) * self.examples // turns
            # With fewer examples than replicas, some come up twice.
            return tf.range(begin, tf.maximum(end, begin + 1))
        places = turn * self.batch_size + tf.range(self.batch_size, dtype=tf.int64)
        return shuffle_in_rounds(places, self.examples, seed)

    def _from_files(self, context: tf.distribute.InputContext, start_step: int) -> tf.data.Dataset:
        """Reads the files every epoch; each worker has a share of the records."""
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
        # Each round has a seed of its own, so that training goes on with the order it had.
        rounds = tf.data.Dataset.range(first_round, FOREVER)
        records = rounds.flat_map(lambda number: self._shuffle(records, number)).skip(done)
        return self._stream(records, worker * self._local_replicas, start_step)

    def _shuffle(self, records: tf.data.Dataset, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the records in the order of a round, near to the one that they have in the
        files.
        """
        fitting = SHUFFLE_BYTES // max(1, self.reader.problem.bytes_per_example)
        buffer = max(self.global_batch_size, min(SHUFFLE_BUFFER, fitting))
        seed = self.shuffle_seed + number
        return records.shuffle(buffer, seed=seed, reshuffle_each_iteration=False)

    def _stream(self, records: tf.data.Dataset, replica: int, start_step: int) -> tf.data.Dataset:
        """Returns the batches of a worker's replicas, the first of which is `replica`, of its
        records.
        """
        # Together, as examples are mixed with others of their step.
        size = self.batch_size * self._local_replicas
        steps = self.reader.stream(records).rebatch(size, True).enumerate(start_step)

        def finish(step: tf.Tensor, batch: Tensors) -> tuple[Any, ...]:
            others = {k: tf.roll(v, 1, 0) for k, v in batch.items()} if self._mixes else None
            return self._finish(batch, others, self._place(step, tf.constant(replica)))

        return steps.map(finish, tf.data.AUTOTUNE).rebatch(self.batch_size)

    def read_by_servers(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """What a worker of a parameter server cluster reads by itself, in an order of its own."""
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
        """Returns the workers trace this once, together; the clock tells them apart when it
        runs.
        """
        return self.shuffle_seed + tf.cast(tf.timestamp() * 1e6, tf.int64)

    def _finish(
        self, batch: Tensors, others: Tensors | None, place: BatchPlace | None
    ) -> tuple[Any, ...]:
        """What a step takes of a batch: with the pictures changed, and mixed with others."""
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
    """Even shares of a number, which differ by one at most."""
    return [(i + 1) * total // shares - i * total // shares for i in range(shares)]


def steps_per_execution(steps: int) -> int:
    """Optimizer steps to run at a time in the graph, for a training of so many in all.

    Short trainings run one at a time: the loop takes longer to trace than it saves.
    """
    return 1 if steps < WORTH_TRACING else STEPS_PER_EXECUTION


def shuffle_in_rounds(places: tf.Tensor, examples: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns the example at each place of an endless row of rounds, each in an order of its own.

    Args:
      places: of a batch, in order, at most as many as there are examples: [batch] int64.
      examples: of a round.
      seed: of all orders, int64 without axes.

    Returns:
      [batch] int64, from 0 to `examples` - 1.
    """
    rounds = places // examples

    def shuffled(number: tf.Tensor) -> tf.Tensor:
        last = tf.constant(examples - 1, tf.int64)
        return tf.random.experimental.index_shuffle(
            places % examples, tf.stack([seed, number]), last
        )

    # A batch may lie across the end of one round and the beginning of the next.
    return tf.where(rounds == rounds[0], shuffled(rounds[0]), shuffled(rounds[0] + 1))
