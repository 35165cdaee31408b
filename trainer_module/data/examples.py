"""Reads the transformed examples of a split once, counts them, and keeps them in memory if they
fit.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from trainer_module.data.order import ordered_keys
from trainer_module.errors import TrainingError
from trainer_module.features.base import GROUP, TIME
from trainer_module.features.raw_columns import NO_FINGERPRINT
from trainer_module.machine import free_memory
from trainer_module.problem import Problem

logger = logging.getLogger(__name__)

MEMORY_SHARE = 0.25
"""The share of the available memory that the examples of a split may take in all training processes
of the machine together."""

PARSE_BATCH = 4096
"""The maximum number of examples in a call of the parser."""

PARSE_BYTES = 32 << 20
"""The maximum number of bytes in a call of the parser: some dozens of large pictures."""

MAX_FILES = 8
"""The number of files that are read in parallel."""

Tensors = dict[str, tf.Tensor]
FeatureSpec = dict[str, tf.io.FixedLenFeature]


@dataclass
class Content:
    """The results of the first pass over a split."""

    usable: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Whether each record, in order, has a usable label and a positive weight."""
    tensors: Tensors | None = None
    """The usable examples, one tensor per feature, or None if they do not fit into memory."""
    label_counts: list[int] = field(default_factory=list)
    """The number of usable examples of each class by index, or an empty list for regression."""
    weight_sums: list[float] = field(default_factory=list)
    """The sum of the data's weights for each class by index, or the total for a label of numbers.
    """
    label_sum: float = 0.0
    """The weighted sum of labels that are numbers."""
    label_squares: float = 0.0
    """The weighted sum of the squares of labels that are numbers."""
    log_sum: float = 0.0
    """The weighted sum of the logarithms of labels that are positive numbers."""
    log_squares: float = 0.0
    """The weighted sum of the squares of these logarithms."""
    least_label: float = math.inf
    """The least of the labels that are numbers."""
    largest_label: float = -math.inf
    """The largest of the labels that are numbers."""
    not_positive: int = 0
    """The number of labels that are numbers of at most 0."""
    classes: np.ndarray | None = None
    """The class of each usable example, or None if the label is a number."""
    groups: np.ndarray | None = None
    """The group (`data.split_by`) of each usable example, or None without groups."""
    times: np.ndarray | None = None
    """The sort key (`data.order_by`) of each usable example, which grows with time, or None without
    an order."""

    @property
    def examples(self) -> int:
        """The number of usable examples."""
        return int(np.count_nonzero(self.usable))

    def share(self, worker: int, workers: int) -> int:
        """Returns the number of usable examples in a worker's shard of the records.

        The shard has every `workers`-th record, beginning with record `worker`.
        """
        return int(np.count_nonzero(self.usable[worker::workers]))

    def select(self, chosen: np.ndarray) -> Content:
        """Returns the content of the chosen records, [records] bool, without the sums over
        labels.
        """
        tensors = self.tensors
        if tensors is not None:
            rows = tf.constant(chosen[self.usable])
            with tf.device("CPU:0"):  # A GPU's memory might be too small for all examples.
                tensors = _apply_mask(tensors, rows)
        parts = {
            name: values[chosen[self.usable]]
            for name in ("classes", "groups", "times")
            if (values := getattr(self, name)) is not None
        }
        return Content(self.usable[chosen], tensors, **parts)

    def add_classes(self, label: np.ndarray, weight: np.ndarray) -> None:
        """Adds the usable labels of a batch, [batch], and their weights to the counts."""
        size = len(self.label_counts)
        counts, sums = np.bincount(label, minlength=size), np.bincount(label, weight, size)
        new = [0] * (len(counts) - size)
        self.label_counts = (np.array(self.label_counts + new, np.int64) + counts).tolist()
        self.weight_sums = (np.array(self.weight_sums + new, np.float64) + sums).tolist()

    def add_labels(self, label: np.ndarray, weight: np.ndarray) -> None:
        """Adds the usable labels of a batch, [batch], and their weights to the sums."""
        label = label.astype(np.float64)
        self.weight_sums = [sum(self.weight_sums) + float(weight.sum())]
        self.label_sum += float(weight @ label)
        self.label_squares += float(weight @ np.square(label))
        is_positive = label > 0
        logs, weight = np.log(label[is_positive]), weight[is_positive]
        self.log_sum += float(weight @ logs)
        self.log_squares += float(weight @ np.square(logs))
        self.not_positive += int(np.count_nonzero(~is_positive))
        self.least_label = min(self.least_label, float(label.min(initial=math.inf)))
        self.largest_label = max(self.largest_label, float(label.max(initial=-math.inf)))

    @property
    def _weight(self) -> float:
        """The total weight of all labels, or 1 if the total is 0."""
        return sum(self.weight_sums) or 1.0

    @property
    def label_mean(self) -> float:
        """The weighted mean of the labels, or 0 without labels."""
        return self.label_sum / self._weight

    @property
    def label_deviation(self) -> float:
        """The weighted standard deviation of the labels, or 1 if it is 0 or there are no labels."""
        return _deviation(self.label_squares / self._weight, self.label_mean)

    @property
    def log_mean(self) -> float:
        """The weighted mean of the logarithms of the labels, if all labels are positive."""
        return self.log_sum / self._weight

    @property
    def log_deviation(self) -> float:
        """The weighted standard deviation of these logarithms, or 1 if it is 0."""
        return _deviation(self.log_squares / self._weight, self.log_mean)


def _deviation(mean_square: float, mean: float) -> float:
    """Returns the standard deviation, or 1 if it is 0."""
    variance = mean_square - mean**2
    return math.sqrt(variance) if variance > 0 else 1.0


@dataclass(frozen=True)
class Reader:
    """A reader of the gzipped TFRecord files of a split.

    The reader leaves out examples without a loss: their label is missing or is a class that the
    train split lacks, or their weight is not positive.
    """

    patterns: Sequence[str]
    spec: FeatureSpec
    problem: Problem
    chosen: np.ndarray | None = None
    """Whether to read each record, in order; None reads all records."""
    split_keys: FeatureSpec = field(default_factory=dict)
    """The specification of the tensors in `SPLIT_KEYS`, which determine the parts of the split."""

    def select(self, chosen: np.ndarray) -> Reader:
        """Returns a reader of the chosen records; `chosen` is [records that this reader reads]
        bool.
        """
        if self.chosen is not None:
            all_records = self.chosen.copy()
            all_records[self.chosen] = chosen
            chosen = all_records
        return replace(self, chosen=chosen)

    def read(self, name: str, max_bytes: int | None = None, processes: int = 1) -> Content:
        """Reads all examples once, and keeps them if their tensors take at most `max_bytes`.

        Args:
          name: the name of the split, for messages.
          max_bytes: the memory limit in bytes, or None for this process's part of `MEMORY_SHARE`.
          processes: the number of processes on this machine that may read the split.

        Raises:
          TrainingError: no example has a usable label.
        """
        if max_bytes is None:
            max_bytes = int(free_memory() * MEMORY_SHARE / processes)
        # The examples might not fit on a GPU. And an eager operation on a GPU may raise the
        # OutOfRangeError at the end of a dataset that another thread reads.
        with tf.device("CPU:0"):
            return self._read(name, max_bytes)

    def _read(self, name: str, max_bytes: int) -> Content:
        per_example = self.problem.bytes_per_example
        parts: list[Tensors] = []
        masks: list[np.ndarray] = []
        content, examples = Content(), 0
        split_keys: dict[str, list[np.ndarray]] = {key: [] for key in self.split_keys}
        classes: list[np.ndarray] = []
        with_split_keys = replace(self, spec={**self.spec, **self.split_keys})
        for batch in self.batches().map(with_split_keys.parse, tf.data.AUTOTUNE):
            keep = self.is_usable(batch)
            masks.append(keep.numpy())
            examples += int(np.count_nonzero(masks[-1]))
            if not masks[-1].all():
                # Masking costs more than parsing, so a batch is masked only if necessary.
                batch = _apply_mask(batch, keep)
            for key, values in split_keys.items():
                values.append(batch.pop(key).numpy().ravel())
            label, weight = batch[self.problem.label].numpy().ravel(), self._weigh(batch)
            if self.problem.task.is_classification:
                content.add_classes(label, weight)
                classes.append(label)
            else:
                content.add_labels(label, weight)
            if examples * per_example <= max_bytes:
                parts.append(batch)
            else:
                parts.clear()
        if not examples:
            raise TrainingError(f"the {name} split has no example with {self._conditions}.")
        content.usable = np.concatenate(masks)
        content.classes = np.concatenate(classes) if classes else None
        if GROUP in split_keys:
            content.groups = _separate_missing(np.concatenate(split_keys[GROUP]))
        if TIME in split_keys:
            content.times = _sort_keys(np.concatenate(split_keys[TIME]))
        if left_out := len(content.usable) - examples:
            logger.warning(
                "%s split: left out %d examples without %s", name, left_out, self._conditions
            )
        if parts:
            content.tensors = {
                key: tf.concat([part[key] for part in parts], 0) for key in self.spec
            }
        return content

    def read_in_graph(self, records: int) -> Tensors:
        """Returns all usable examples as tensors; the machine that runs the operations reads
        them.
        """
        batch = self.records().batch(records).map(self.parse).get_single_element()
        return _apply_mask(batch, self.is_usable(batch))

    @functools.cached_property
    def files(self) -> list[str]:
        """The files of the split, sorted by name."""
        return sorted(file for pattern in self.patterns for file in tf.io.gfile.glob(pattern))

    def records(self) -> tf.data.Dataset:
        """Returns the serialized examples, always in the same order."""
        records = _read_file(self.files) if len(self.files) == 1 else self._blocks().unbatch()
        return records if self.chosen is None else choose(records, self.chosen)

    def batches(self) -> tf.data.Dataset:
        """Returns batches of at most `parse_batch` serialized examples, in the order of
        `records`.
        """
        return self._blocks() if self.chosen is None else self.records().batch(self.parse_batch)

    def _blocks(self) -> tf.data.Dataset:
        """Returns all examples in blocks, interleaved by file; interleaving records is slower."""
        if len(self.files) == 1:
            return _read_file(self.files).batch(self.parse_batch)
        return tf.data.Dataset.from_tensor_slices(self.files).interleave(
            lambda file: _read_file(file).batch(self.parse_batch),
            cycle_length=MAX_FILES,
            num_parallel_calls=MAX_FILES,
            deterministic=True,
        )

    @property
    def parse_batch(self) -> int:
        """The number of examples that are parsed at a time."""
        return max(1, min(PARSE_BATCH, PARSE_BYTES // max(1, self.problem.bytes_per_example)))

    def stream(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Returns parsed batches, of varying sizes, of the usable examples among the records."""
        batches = records.batch(self.parse_batch).map(self.parse, tf.data.AUTOTUNE)
        return batches.map(lambda b: _apply_mask(b, self.is_usable(b)), tf.data.AUTOTUNE)

    def parse(self, records: tf.Tensor) -> Tensors:
        """Returns a tensor per feature, parsed from serialized examples [batch]."""
        return tf.io.parse_example(records, self.spec)

    def is_usable(self, batch: Tensors) -> tf.Tensor:
        """Returns whether each example has a usable label and a positive weight, [batch] bool."""
        label = tf.reshape(batch[self.problem.label], [-1])
        is_usable = self.problem.target.has_labels(label)
        if self.problem.weight:
            is_usable &= tf.reshape(batch[self.problem.weight], [-1]) > 0
        return is_usable

    def _weigh(self, batch: Tensors) -> np.ndarray:
        """Returns the weight of each example, [batch] float64; 1 if the data has no weights."""
        if self.problem.weight:
            return batch[self.problem.weight].numpy().ravel().astype(np.float64)
        return np.ones(len(batch[self.problem.label]))

    @property
    def _conditions(self) -> str:
        """The conditions of `is_usable` in words, for messages."""
        weight = f" and a {self.problem.weight!r} above 0" if self.problem.weight else ""
        return f"a usable label{weight}"


def _separate_missing(groups: np.ndarray) -> np.ndarray:
    """Returns the groups; each example without a value becomes a separate group."""
    return np.where(groups == NO_FINGERPRINT, -1 - np.arange(len(groups)), groups)


def _sort_keys(values: np.ndarray) -> np.ndarray:
    """Returns the sort keys of numbers, or of dates and times as strings.

    Raises:
      TrainingError: a string is not a date or time.
    """
    if values.dtype != object:
        return ordered_keys(pa.array(values))
    texts = pa.array(values, pa.binary())
    try:
        return ordered_keys(pc.if_else(pc.equal(texts, b""), None, texts))
    except pa.ArrowInvalid as error:
        raise TrainingError(f"data.order_by: a value is not a date or time: {error}") from error


def _read_file(file: Any) -> tf.data.Dataset:
    """Returns the serialized examples of a file.

    The file is read serially, because parallel reading of a single file is slower.
    """
    return tf.data.TFRecordDataset(file, compression_type="GZIP")


def choose(records: tf.data.Dataset, chosen: np.ndarray) -> tf.data.Dataset:
    """Returns the records where `chosen`, [records] bool, is true."""
    if chosen.all():
        return records
    kept = records.enumerate().filter(lambda index, _: tf.gather(chosen, index))
    return kept.map(lambda _, record: record)


def _apply_mask(batch: Tensors, keep: tf.Tensor) -> Tensors:
    return {key: tf.boolean_mask(value, keep) for key, value in batch.items()}
