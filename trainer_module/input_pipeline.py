"""Batches of transformed examples, from memory where they fit and from the files otherwise."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import psutil
import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.settings import Task

logger = logging.getLogger(__name__)

MEMORY_SHARE = 0.25
"""The share of the memory available now that the examples of one split may take."""

PARSE_BATCH = 1024
"""Examples parsed at a time while reading a split into memory."""

SHUFFLE_BUFFER = 10_000
"""Examples among which a split too large for memory is shuffled."""

STEPS_PER_EXECUTION = 16
"""At most so many optimizer steps run at a time in the graph, without Python in between."""

WORTH_TRACING = 2000
"""Steps of a training from which on that pays: on 2 cores tracing takes 1.7 s more, and a step of
wide_deep 0.9 ms less."""

Tensors = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Split:
    """One split of the transformed examples."""

    dataset: tf.data.Dataset
    """(features by name, label [batch, 1]) per batch; one epoch, the last batch may be smaller."""
    examples: int
    """Examples with a usable label."""
    batch_size: int
    source: Literal["memory", "files"]
    """Where each epoch reads the examples."""
    label_mean: float = 0.0
    """For regression; 0 otherwise."""
    label_deviation: float = 1.0
    """The standard deviation, for regression; 1 otherwise, and where the label is constant."""

    @property
    def steps(self) -> int:
        """Batches per epoch."""
        return math.ceil(self.examples / self.batch_size)


def load_split(
    name: str,
    patterns: Sequence[str],
    spec: dict[str, tf.io.FixedLenFeature],
    problem: Problem,
    batch_size: int,
    *,
    shuffle_seed: int | None = None,
    max_bytes: int | None = None,
) -> Split:
    """Opens a split, in memory if its dense tensors take no more than `max_bytes`.

    Examples whose label is missing, or a class that the train split lacks, are left out: there is
    nothing to learn from them, and no loss to compute.

    Args:
        name: of the split, for messages.
        patterns: of the gzipped TFRecord files.
        spec: the transformed feature spec.
        problem: the features and the label.
        batch_size: examples per step of all replicas together.
        shuffle_seed: shuffles anew every epoch, starting from this seed; None keeps the order.
        max_bytes: None is `MEMORY_SHARE` of the memory available now.

    Raises:
        TrainingError: if no example has a usable label.
    """
    if max_bytes is None:
        max_bytes = int(psutil.virtual_memory().available * MEMORY_SHARE)
    with tf.device("CPU:0"):  # Batches go to the devices one by one; the split would fill a GPU.
        reader = _Reader(patterns, spec, problem)
        found = reader.read(max_bytes)
        if not found.usable:
            raise TrainingError(f"the {name} split has no example with a usable label.")
        if found.unusable:
            logger.warning("%s: %d examples without a usable label left out", name, found.unusable)
        if found.tensors is None:
            steps = math.ceil(found.usable / batch_size)
            dataset = reader.stream(batch_size, shuffle_seed, steps)
        else:
            dataset = _from_memory(found.tensors, problem.label, batch_size, shuffle_seed)
    return Split(
        dataset=dataset.prefetch(tf.data.AUTOTUNE),
        examples=found.usable,
        batch_size=batch_size,
        source="files" if found.tensors is None else "memory",
        label_mean=found.label_mean,
        label_deviation=found.label_deviation,
    )


@dataclass
class _Content:
    """What a first reading of a split finds."""

    tensors: Tensors | None = None
    """The usable examples, one tensor per feature; None where they do not fit."""
    usable: int = 0
    unusable: int = 0
    label_sum: float = 0.0
    label_squares: float = 0.0

    def add_labels(self, label: np.ndarray) -> None:
        """Adds the usable labels of a batch to the sums."""
        self.label_sum += float(label.sum(dtype=np.float64))
        self.label_squares += float(np.square(label, dtype=np.float64).sum())

    @property
    def label_mean(self) -> float:
        """0 where no labels were added."""
        return self.label_sum / max(1, self.usable)

    @property
    def label_deviation(self) -> float:
        """The standard deviation; 1 where it is 0, or no labels were added."""
        variance = self.label_squares / max(1, self.usable) - self.label_mean**2
        return math.sqrt(variance) if variance > 0 else 1.0


@dataclass(frozen=True)
class _Reader:
    patterns: Sequence[str]
    spec: dict[str, tf.io.FixedLenFeature]
    problem: Problem

    def read(self, max_bytes: int) -> _Content:
        """Reads all examples once, and keeps them if they take no more than `max_bytes`."""
        per_example = sum(feature.bytes_per_example for feature in self.problem.features)
        parts: list[Tensors] = []
        found = _Content()
        for batch in self._records().batch(PARSE_BATCH).map(self._parse, tf.data.AUTOTUNE):
            keep = self._is_usable(batch)
            kept = int(tf.math.count_nonzero(keep))
            found.usable += kept
            found.unusable += len(keep) - kept
            if kept < len(keep):
                # Not for every batch: a mask costs more than the parsing, and most need none.
                batch = _masked(batch, keep)
            if self.problem.task is Task.REGRESSION:
                found.add_labels(batch[self.problem.label].numpy())
            if found.usable * per_example <= max_bytes:
                parts.append(batch)
            else:
                parts.clear()
        if parts and found.usable:
            found.tensors = {key: tf.concat([part[key] for part in parts], 0) for key in self.spec}
        return found

    def stream(self, batch_size: int, shuffle_seed: int | None, steps: int) -> tf.data.Dataset:
        """Reads the files every epoch."""
        records = self._records()
        if shuffle_seed is not None:
            records = records.shuffle(SHUFFLE_BUFFER, seed=shuffle_seed)
        return (
            # Unusable examples go before batches are made, so that all of them are full.
            records.batch(PARSE_BATCH)
            .map(self._parse, tf.data.AUTOTUNE)
            .map(self._keep_usable, tf.data.AUTOTUNE)
            .unbatch()
            .batch(batch_size)
            .map(lambda batch: _split_label(batch, self.problem.label))
            .apply(tf.data.experimental.assert_cardinality(steps))
        )

    def _records(self) -> tf.data.Dataset:
        files = sorted(file for pattern in self.patterns for file in tf.io.gfile.glob(pattern))
        return tf.data.TFRecordDataset(
            files, compression_type="GZIP", num_parallel_reads=min(len(files), 8) or None
        )

    def _parse(self, records: tf.Tensor) -> Tensors:
        return tf.io.parse_example(records, self.spec)

    def _keep_usable(self, batch: Tensors) -> Tensors:
        return _masked(batch, self._is_usable(batch))

    def _is_usable(self, batch: Tensors) -> tf.Tensor:
        label = tf.reshape(batch[self.problem.label], [-1])
        if self.problem.task is Task.REGRESSION:
            return tf.math.is_finite(label)
        return label >= 0


def _masked(batch: Tensors, keep: tf.Tensor) -> Tensors:
    return {key: tf.boolean_mask(value, keep) for key, value in batch.items()}


def _from_memory(
    tensors: Tensors, label: str, batch_size: int, shuffle_seed: int | None
) -> tf.data.Dataset:
    """Shuffles and batches indices alone, then gathers a whole batch per feature at once."""
    examples = len(tensors[label])
    indices = tf.data.Dataset.range(examples)
    if shuffle_seed is not None:
        indices = indices.shuffle(examples, seed=shuffle_seed)

    def gather(batch: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        return _split_label({k: tf.gather(v, batch) for k, v in tensors.items()}, label)

    return indices.batch(batch_size).map(gather, tf.data.AUTOTUNE)


def _split_label(batch: Tensors, label: str) -> tuple[Tensors, tf.Tensor]:
    features = dict(batch)
    return features, features.pop(label)


def steps_per_execution(split: Split, replicas: int, epochs: int) -> int:
    """Optimizer steps to run at a time in the graph: at most `STEPS_PER_EXECUTION`.

    Short trainings run one at a time: the loop takes longer to trace than it saves.

    With several replicas a smaller last batch must not share an execution with full ones: an
    embedding's gradient has the shape of its batch, and TensorFlow's collective operations refuse
    two shapes in one execution ("Shape mismatch in the collective instance"). So then the number
    divides that of the full batches, and the last one runs alone.
    """
    if split.steps * epochs < WORTH_TRACING:
        return 1
    full = split.examples // split.batch_size
    if replicas == 1 or full in (0, split.steps):
        return min(STEPS_PER_EXECUTION, split.steps)
    return max(n for n in range(1, STEPS_PER_EXECUTION + 1) if full % n == 0)
