"""The pictures of a split in memory, and the batches that both networks learn from.

The seed and the number of a step determine its pictures, its noise and the points of the gradient
penalty. Therefore a step is the same with one replica and with several, in every process, and after
an interruption, without any saved random state.
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
"""The number of pictures that are decoded together."""
_SHARE = 0.25
"""The share of the free memory that the pictures of a split may take."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of a split with their classes."""

    values: np.ndarray
    """The pixels, [pictures, height, width, channels] uint8."""
    labels: np.ndarray
    """The classes, [pictures] of bytes; b"" for a picture without a class."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The sorted names of the classes; empty unless every picture has a class and there are
        several.
        """
        names = sorted({label.decode(errors="replace") for label in self.labels.tolist()})
        return tuple(names) if len(names) > 1 and "" not in names else ()

    def draw(self, most: int, seed: int) -> Pictures:
        """Returns a random sample of the pictures in their order, or all if there are few."""
        count = len(self.labels)
        if count <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
        return Pictures(self.values[rows], self.labels[rows])

    def indices(self, classes: Sequence[str]) -> np.ndarray:
        """Returns the index of each picture's class among given classes, [pictures] int32; -1 for
        others.
        """
        places = {name.encode(): place for place, name in enumerate(classes)}
        return np.array([places.get(label, -1) for label in self.labels.tolist()], np.int32)


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
      shape: the height, width and channels of a model, for sizes that the settings leave open.

    Raises:
      DataError: there is no such column, or the model cannot generate pictures of the size.
    """
    found = {n: f for n, f in settings.features.items() if isinstance(f, ImageFeature)}
    if len(found) != 1:
        raise DataError(
            f"a task generation learns from one column of pictures, and found {len(found)}; name"
            " it as features: {picture: {type: image}}."
        )
    ((name, feature),) = found.items()
    if shape is not None:
        size = zip(("height", "width", "channels"), shape, strict=True)
        left_open = {key: value for key, value in size if getattr(feature, key) is None}
        return name, feature.model_copy(update=left_open)
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
      name: the column of pictures.
      feature: the settings of the column, with a size.
      label: the column of the classes, which may be missing.

    Raises:
      DataError: the pictures do not fit into memory, or there are none.
    """
    shape = (*(feature.size or (0, 0)), feature.channels or 3)
    room = int(free_memory() * _SHARE / math.prod(shape))
    records = tf.data.TFRecordDataset(list(files), "GZIP")
    kind = _kind_of(records, label)
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
        if count > room:
            raise DataError(
                f"memory has room for {room:,} pictures of {shape[0]}x{shape[1]} pixels, but the "
                f"data has more; lower the height and width of features.{name}."
            )
    if not parts:
        raise DataError(f"there is no picture in {', '.join(files) or 'any file'}.")
    values, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Pictures(values, labels)


def _kind_of(records: tf.data.Dataset, label: str) -> tf.DType:
    """Returns the type of the labels in the first picture that has a label."""
    kinds = {"int64_list": tf.int64, "float_list": tf.float32, "bytes_list": tf.string}
    for record in records.as_numpy_iterator():
        values = tf.train.Example.FromString(record).features.feature[label]
        if kind := values.WhichOneof("kind"):
            return kinds[kind]
    return tf.string


def to_signed(pictures: tf.Tensor) -> tf.Tensor:
    """Converts pixels in 0..255 to float32 in -1..1, the range of the networks."""
    return tf.cast(pictures, tf.float32) / 127.5 - 1.0


@dataclass(frozen=True)
class Deal:
    """The distribution of the train split's pictures to replicas and steps."""

    pictures: Pictures
    classes: tuple[str, ...]
    """The classes that can be requested; empty without classes."""
    noise: int
    batch_size: int
    """The pictures per replica and step of the discriminator."""
    replicas: int
    """The number of synchronous replicas on all workers."""
    workers: int
    """The number of processes that the replicas run in."""
    parts: int
    """The steps of the discriminator in each training step."""
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
        """Returns the distribution that follows from the settings and the pictures.

        Args:
          pictures: the pictures of the train split.
          settings: the settings of the training.
          classes: the classes that can be requested.
          replicas: the number of synchronous replicas.
          workers: the number of processes that the replicas run in.
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
        """The pictures in a step of the discriminator of all replicas."""
        return self.batch_size * self.replicas

    @property
    def steps(self) -> int:
        """The steps of an epoch, which contains every picture."""
        total = len(self.pictures.labels) * self.rounds
        return math.ceil(total / (self.examples * self.parts))

    def batches(self, context: tf.distribute.InputContext, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of one worker's replicas, one after the other in each step."""
        local = self.replicas // self.workers
        first = context.input_pipeline_id * local
        with tf.device("CPU:0"):
            values = tf.constant(self.pictures.values)
            labels = tf.constant(self.pictures.indices(self.classes))

            @tf.autograph.experimental.do_not_convert
            def take(turn: tf.Tensor) -> dict[str, tf.Tensor]:
                return self._batch(values, labels, turn // local, first + turn % local)

            turns = tf.data.Dataset.range(start_step * local, FOREVER // local)
            return turns.map(take, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _batch(
        self, values: tf.Tensor, labels: tf.Tensor, step: tf.Tensor, replica: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the inputs of a replica in a step."""
        begin = replica * self.batch_size
        drawn: dict[str, list[tf.Tensor]] = {}
        for part in range(self.parts):
            turn = step * self.parts + part
            places = turn * self.examples + begin + tf.range(self.batch_size, dtype=tf.int64)
            rows = shuffle_in_rounds(places, len(self.pictures.labels), _as_int64(self.seed))
            found = {"picture": to_signed(tf.gather(values, rows)), **self._draw(turn, begin)}
            if self.classes:
                found["label"] = tf.gather(labels, rows)
            for name, tensor in found.items():
                drawn.setdefault(name, []).append(tensor)
        return {name: tf.concat(tensors, 0) for name, tensors in drawn.items()}

    def _draw(self, turn: tf.Tensor, begin: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns a replica's part of the noise and shares that are drawn for all replicas."""
        seed = tf.stack([_as_int64(self.seed), turn])
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
