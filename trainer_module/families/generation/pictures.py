"""The pictures of a split in memory, and the batches of the training.

The seed and the number of a step determine its pictures, its noise and the points of the gradient
penalty. A step is therefore the same with one replica and with several replicas, in every process,
and after an interruption, although no random state is saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from trainer_module.data.input_pipeline import FOREVER, shuffle_in_rounds
from trainer_module.errors import DataError
from trainer_module.families.generation.family import check_size, layer_sizes
from trainer_module.families.generation.task import GenerationTask
from trainer_module.features.image import decode_images
from trainer_module.features.raw_columns import dense_strings
from trainer_module.machine import free_memory
from trainer_module.settings import ImageFeature, TrainerSettings
from trainer_module.settings.train import choose_batch_size, choose_rounds

_AT_ONCE = 64
"""The number of pictures that are decoded in a batch."""
_MEMORY_SHARE = 0.25
"""The maximum share of the free memory for the pictures of a split."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of a split with their classes."""

    values: np.ndarray
    """The pixels, [pictures, height, width, channels] uint8."""
    labels: np.ndarray
    """The names of the classes, [pictures] of bytes; b"" for a picture without a class."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The sorted names of the classes, or () if a picture lacks a class or all share one."""
        names = sorted({label.decode(errors="replace") for label in self.labels.tolist()})
        return tuple(names) if len(names) > 1 and "" not in names else ()

    def draw(self, limit: int, seed: int) -> Pictures:
        """Returns a random sample of at most `limit` pictures, in their order."""
        count = len(self.labels)
        if count <= limit:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))
        return Pictures(self.values[rows], self.labels[rows])

    def indices(self, classes: Sequence[str]) -> np.ndarray:
        """Returns the index of each picture's class in `classes`, [pictures] int32.

        The index is -1 if `classes` does not contain the class.
        """
        by_name = {name.encode(): index for index, name in enumerate(classes)}
        return np.array([by_name.get(label, -1) for label in self.labels.tolist()], np.int32)


def generation_task(settings: TrainerSettings) -> GenerationTask:
    """Returns the generation task of the settings."""
    task = settings.target
    assert isinstance(task, GenerationTask)  # noqa: S101 - no other task has this family
    return task


def picture_of(
    settings: TrainerSettings, shape: tuple[int, int, int] | None = None
) -> tuple[str, ImageFeature]:
    """Returns the name and the settings of the column of pictures, including a size.

    Args:
      settings: the settings of the training.
      shape: the height, width and channels of a model, which replace sizes that the settings lack.

    Raises:
      DataError: there is not exactly one column of pictures, or the model cannot generate pictures
        of the size.
    """
    columns = {n: f for n, f in settings.features.items() if isinstance(f, ImageFeature)}
    if len(columns) != 1:
        raise DataError(
            f"`task: generation` needs one column of pictures, and found {len(columns)}; set"
            " features: {picture: {type: image}} for the column."
        )
    ((name, feature),) = columns.items()
    if shape is not None:
        size = zip(("height", "width", "channels"), shape, strict=True)
        absent = {key: value for key, value in size if getattr(feature, key) is None}
        return name, feature.model_copy(update=absent)
    model = settings.model
    height, width = feature.size or (0, 0)
    try:
        check_size(model.kind, height, width, feature.channels or 3, layer_sizes(model))
    except DataError as error:
        raise DataError(f"features.{name}: {error}.") from None
    return name, feature


def read_pictures(files: Sequence[str], name: str, feature: ImageFeature, label: str) -> Pictures:
    """Reads and decodes the pictures of a split.

    Args:
      files: gzipped TFRecord files of tf.Examples, as ExampleGen writes them.
      name: the name of the column of pictures.
      feature: the settings of the column, including a size.
      label: the name of the column of classes, which the examples may lack.

    Raises:
      DataError: the pictures do not fit into memory, or there is no picture.
    """
    shape = (*(feature.size or (0, 0)), feature.channels or 3)
    limit = int(free_memory() * _MEMORY_SHARE / math.prod(shape))
    records = tf.data.TFRecordDataset(list(files), "GZIP")
    kind = _label_type(records, label)
    spec = {name: tf.io.FixedLenFeature([], tf.string), label: tf.io.VarLenFeature(kind)}

    def decode(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        columns = tf.io.parse_example(records, spec)
        pictures = decode_images(name, columns[name][:, tf.newaxis], feature)
        return tf.cast(tf.round(pictures * 255.0), tf.uint8), dense_strings(columns[label])[:, 0]

    parts: list[tuple[np.ndarray, np.ndarray]] = []
    count = 0
    for part in records.batch(_AT_ONCE).map(decode, tf.data.AUTOTUNE).as_numpy_iterator():
        parts.append(part)
        count += len(part[1])
        if count > limit:
            raise DataError(
                f"memory has room for {limit:,} pictures of {shape[0]}x{shape[1]} pixels, but the "
                f"data has more; lower the height and width of features.{name}."
            )
    if not parts:
        raise DataError(f"there is no picture in {', '.join(files) or 'any file'}.")
    values, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Pictures(values, labels)


def _label_type(records: tf.data.Dataset, label: str) -> tf.DType:
    """Returns the data type of the first label; string if no picture has a label."""
    kinds = {"int64_list": tf.int64, "float_list": tf.float32, "bytes_list": tf.string}
    for record in records.as_numpy_iterator():
        values = tf.train.Example.FromString(record).features.feature[label]
        if kind := values.WhichOneof("kind"):
            return kinds[kind]
    return tf.string


def to_signed(pictures: tf.Tensor) -> tf.Tensor:
    """Returns pixels in 0..255 as float32 in -1..1, the range of the networks."""
    return tf.cast(pictures, tf.float32) / 127.5 - 1.0


@dataclass(frozen=True)
class Deal:
    """The distribution of the train split's pictures to replicas and steps."""

    pictures: Pictures
    classes: tuple[str, ...]
    """The classes that can be requested, or () for a generator without classes."""
    noise: int
    """The number of noise values per picture."""
    batch_size: int
    """The number of pictures per replica and step of the discriminator."""
    replicas: int
    """The number of synchronous replicas on all workers."""
    workers: int
    """The number of processes in which the replicas run."""
    parts: int
    """The number of the discriminator's steps in each training step."""
    rounds: int
    """The number of passes over the pictures in an epoch."""
    seed: int

    @classmethod
    def of(
        cls,
        pictures: Pictures,
        settings: TrainerSettings,
        classes: tuple[str, ...],
        replicas: int,
        workers: int,
    ) -> Deal:
        """Returns the distribution of pictures for a training.

        Args:
          pictures: the pictures of the train split.
          settings: the settings of the training.
          classes: the classes that can be requested.
          replicas: the number of synchronous replicas.
          workers: the number of processes in which the replicas run.
        """
        count, train = len(pictures.labels), settings.train
        size = min(choose_batch_size(train, count, replicas), max(1, count // replicas))
        task = generation_task(settings)
        deal = cls(
            pictures,
            classes,
            task.noise,
            size,
            replicas,
            workers,
            task.steps_of_critic,
            rounds=1,
            seed=train.seed,
        )
        return replace(deal, rounds=choose_rounds(train, deal.steps))

    @property
    def examples(self) -> int:
        """The number of pictures in a step of the discriminator, on all replicas."""
        return self.batch_size * self.replicas

    @property
    def steps(self) -> int:
        """The number of steps of an epoch, in which every picture occurs."""
        total = len(self.pictures.labels) * self.rounds
        return math.ceil(total / (self.examples * self.parts))

    def batches(self, context: tf.distribute.InputContext, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of a worker: for each step, a batch per replica.

        Args:
          context: the context with the index of the worker.
          start_step: the first step.
        """
        local = self.replicas // self.workers
        first = context.input_pipeline_id * local
        with tf.device("CPU:0"):
            values = tf.constant(self.pictures.values)
            labels = tf.constant(self.pictures.indices(self.classes))

            @tf.autograph.experimental.do_not_convert
            def take(index: tf.Tensor) -> dict[str, tf.Tensor]:
                return self._batch(values, labels, index // local, first + index % local)

            indices = tf.data.Dataset.range(start_step * local, FOREVER // local)
            return indices.map(take, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _batch(
        self, values: tf.Tensor, labels: tf.Tensor, step: tf.Tensor, replica: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the batch of a replica in a step."""
        begin = replica * self.batch_size
        inputs: dict[str, list[tf.Tensor]] = {}
        for part in range(self.parts):
            critic_step = step * self.parts + part
            positions = critic_step * self.examples + begin
            positions += tf.range(self.batch_size, dtype=tf.int64)
            rows = shuffle_in_rounds(positions, len(self.pictures.labels), _as_int64(self.seed))
            pictures = to_signed(tf.gather(values, rows))
            part_inputs = {"picture": pictures, **self._draw(critic_step, begin)}
            if self.classes:
                part_inputs["label"] = tf.gather(labels, rows)
            for name, tensor in part_inputs.items():
                inputs.setdefault(name, []).append(tensor)
        return {name: tf.concat(tensors, 0) for name, tensors in inputs.items()}

    def _draw(self, critic_step: tf.Tensor, begin: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the random inputs of a replica: its part of the inputs of all replicas."""
        seed = tf.stack([_as_int64(self.seed), critic_step])
        noise = tf.random.stateless_normal([self.examples, self.noise], seed)
        share = tf.random.stateless_uniform([self.examples], seed)
        rows = slice(begin, begin + self.batch_size)
        shapes = {"noise": [self.batch_size, self.noise], "share": [self.batch_size]}
        return {
            name: tf.ensure_shape(tensor[rows], shapes[name])
            for name, tensor in (("noise", noise), ("share", share))
        }


def _as_int64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.int64)
