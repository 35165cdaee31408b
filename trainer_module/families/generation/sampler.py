"""The functions of an exported generator, and the samples of `predict --n`.

A generator generates pictures from seeds and numbers, or from noise. The picture of a seed and a
number is generated separately from other pictures. Its bytes therefore do not depend on the other
requests in a batch.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from trainer_module.errors import DataError, counted
from trainer_module.export.saving import SERVING_RAW_SIGNATURE

if TYPE_CHECKING:
    from trainer_module.families import SampleRequest

SEED, NUMBER = "seed", "number"
"""The inputs of a request: a seed, and the number of a picture of the seed, counted from 0."""
PNG_TEXT = "png_base64"
"""The output of a request: a PNG in base64 (RFC 4648), as JSON and CSV do not have bytes."""
PICTURES, PNG = "pictures", "png"
"""The outputs of the other signatures: pixels, and PNG files."""
_MAX_NUMBERS = 1 << 25
"""The maximum number of values in the pictures of a request (128 MiB), which limits `n`."""
FROM_NOISE, DESCRIBE = "from_noise", "describe"
"""The names of the signatures besides the serving signatures."""

Answer = dict[str, tf.Tensor]


class Sampler(tf.Module):
    """A generator with the functions that become the signatures of the exported model."""

    def __init__(
        self, network: tf_keras.Model, noise: int, label: str, classes: tuple[str, ...]
    ) -> None:
        """Stores the generator, and the names in its requests.

        Args:
          network: a network of `build_generator`.
          noise: the number of noise values per picture.
          label: the name of the input that contains the class.
          classes: the classes that can be requested, in order, or () for a generator without
            classes.
        """
        super().__init__()
        self.kept = network.variables  # tf.Module does not track variables of Keras layers.
        self.noise, self.classes, self.label = noise, classes, label
        self._shape = network.output_shape[1:]
        self.most = max(1, _MAX_NUMBERS // math.prod(self._shape))
        """The maximum number of pictures that `several` generates in a call."""
        self._call = lambda inputs: network(inputs, training=False)

    def answer(self, **columns: tf.Tensor) -> Answer:
        """Returns a picture for each request.

        Args:
          **columns: `seed` and `number`, [batch] int64 each, and if the generator has classes, the
            class, [batch] string.

        Returns:
          `png_base64`, [batch] string. For an unknown class it is an empty string, and not an
          error, as the other requests of the batch may be valid.
        """
        label = columns.get(self.label)
        index = self._index(label) if label is not None else tf.zeros_like(columns[SEED], tf.int32)
        pictures = self._draw(columns[SEED], columns[NUMBER], index)
        text = tf.map_fn(lambda png: _base64(png), encode_pngs(pictures))
        return {PNG_TEXT: tf.where(index < 0, "", text)}

    def several(self, n: tf.Tensor, seed: tf.Tensor, label: tf.Tensor) -> Answer:
        """Returns the first pictures of a seed.

        Args:
          n: the number of pictures, a scalar from 0 to `most`.
          seed: the seed, a scalar.
          label: the class of the pictures, a scalar; an empty string for all classes in turn, and
            for a generator without classes.

        Returns:
          `pictures` [n, height, width, channels] float32 in 0..1, and `png` [n], their files.
        """
        is_valid = tf.logical_and(n >= 0, n <= self.most)
        with tf.control_dependencies(
            [tf.debugging.Assert(is_valid, ["found n", n, f"; expected: 0 to {self.most}"])]
        ):
            n = tf.identity(n)
        numbers = tf.range(n)
        turns = tf.cast(numbers, tf.int32) % max(1, len(self.classes))
        index = self._index(tf.fill([n], label))
        is_known = tf.logical_or(tf.equal(label, ""), tf.reduce_all(index >= 0))
        names = ", ".join(self.classes) or "none, as the model was trained without classes"
        with tf.control_dependencies(
            [tf.debugging.Assert(is_known, ["found class", label, f"; expected: {names}"])]
        ):
            labels = tf.where(tf.equal(label, ""), turns, index)
        pictures = self._draw(tf.fill([n], seed), numbers, labels)
        return {PICTURES: pictures, PNG: encode_pngs(pictures)}

    def from_noise(self, noise: tf.Tensor, label: tf.Tensor) -> Answer:
        """Returns the pictures of noise, [batch, noise], and of class indices, [batch] int32."""
        pictures = self._generate(noise, label)
        return {PICTURES: pictures, PNG: encode_pngs(pictures)}

    def describe(self) -> Answer:
        """Returns the name of the input that contains the class, and the classes in order."""
        return {
            "label": tf.constant(self.label),
            "classes": tf.constant([*self.classes], tf.string),
        }

    def signatures(self) -> Mapping[str, Callable[..., Answer]]:
        """Returns the traced functions except `answer`, by the names of their signatures."""
        noise = tf.TensorSpec([None, self.noise], tf.float32, "noise")
        several = tf.function(self.several).get_concrete_function(
            tf.TensorSpec([], tf.int64, "n"),
            tf.TensorSpec([], tf.int64, SEED),
            tf.TensorSpec([], tf.string, "label"),
        )
        return {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: several,
            FROM_NOISE: tf.function(self.from_noise).get_concrete_function(
                noise, tf.TensorSpec([None], tf.int32, "label")
            ),
            DESCRIBE: tf.function(self.describe).get_concrete_function(),
        }

    def _draw(self, seed: tf.Tensor, number: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        """Returns the picture of each row, [batch, height, width, channels]."""

        def draw(row: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
            noise = tf.random.stateless_normal([1, self.noise], tf.stack(row[:2]))
            return self._generate(noise, row[2][tf.newaxis])[0]

        shape = tf.TensorSpec(self._shape, tf.float32)
        return tf.map_fn(draw, (seed, number, label), fn_output_signature=shape)

    def _generate(self, noise: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        inputs = {"noise": noise} | ({"label": label} if self.classes else {})
        return (self._call(inputs) + 1.0) / 2.0

    def _index(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns the index of each class, [batch] int32, or -1 for an unknown class."""
        if not self.classes:
            return -tf.ones_like(labels, tf.int32)
        matches = tf.equal(labels[:, tf.newaxis], tf.constant([*self.classes])[tf.newaxis])
        return tf.where(tf.reduce_any(matches, 1), tf.argmax(matches, 1, tf.int32), -1)


def encode_pngs(pictures: tf.Tensor) -> tf.Tensor:
    """Returns pictures in 0..1 as PNG files, [batch] string."""
    whole = tf.cast(tf.round(tf.clip_by_value(pictures, 0.0, 1.0) * 255.0), tf.uint8)
    return tf.map_fn(tf.io.encode_png, whole, fn_output_signature=tf.string)


def make_grid(pictures: tf.Tensor) -> tf.Tensor:
    """Returns a grid of pictures, [n, height, width, channels]; black fills the last row."""
    count = pictures.shape[0]
    side = int(count**0.5 + 0.999999)
    rows = -(-count // side)
    height, width, channels = pictures.shape[1:]
    padded = tf.pad(pictures, [[0, rows * side - count], [0, 0], [0, 0], [0, 0]])
    tiles = tf.reshape(padded, [rows, side, height, width, channels])
    return tf.reshape(tf.transpose(tiles, [0, 2, 1, 3, 4]), [rows * height, side * width, channels])


def _base64(png: tf.Tensor) -> tf.Tensor:
    """Returns bytes in standard base64; TensorFlow's own operation has the URL-safe alphabet."""
    text = tf.io.encode_base64(png, pad=True)
    return tf.strings.regex_replace(tf.strings.regex_replace(text, "-", "+"), "_", "/")


GRID_FILE = "grid.png"
_REQUESTED_AT_ONCE = 256
"""The maximum number of pictures in a request to the model."""
_MAX_IN_GRID = 1024
"""The maximum number of pictures in the grid."""
_ROWS = 12
"""The minimum number of golden rows with seed 1."""
_LARGE = 1 << 40
"""A large seed of a golden row."""


def golden_rows(
    folder: Path, custom_config: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Yields the golden rows of a generator, with their descriptions.

    Args:
      folder: the folder of the exported model.
      custom_config: not used.
    """
    del custom_config
    label, classes = _describe_classes(tf.saved_model.load(str(folder)))

    def row(seed: int, number: int, name: str) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {SEED: [seed], NUMBER: [number]}
        return values | ({label: [name.encode()]} if classes else {})

    for number in range(max(_ROWS, len(classes))):
        name = classes[number % len(classes)] if classes else ""
        description = f"picture {number} of seed 1{f', class {name}' if name else ''}"
        yield description, row(1, number, name)
    first_class = classes[0] if classes else ""
    yield "a large seed", row(_LARGE, 0, first_class)
    yield "a negative seed", row(-1, 0, first_class)
    if classes:
        yield "an unknown class", row(1, 0, "never seen")


def write_samples(folder: Path, request: SampleRequest, output: Path) -> str:
    """Writes generated pictures and a grid of the pictures, for `predict --n`.

    Args:
      folder: the folder of the pushed model.
      request: the number, the seed and the class of the pictures.
      output: an empty folder, to which the pictures are written.

    Returns:
      A description of the written files, for the screen.

    Raises:
      DataError: the model does not have the class.
    """
    model = tf.saved_model.load(str(folder))
    label, classes = _describe_classes(model)
    if request.label and request.label not in classes:
        if not classes:
            raise DataError(
                f"--class {request.label}: the model was trained without classes; remove --class."
            )
        raise DataError(
            f"--class {request.label}: the model does not have this class; its classes are "
            f"{', '.join(classes)}."
        )
    names = [request.label] if request.label else classes
    in_grid: list[tf.Tensor] = []
    for start in range(0, request.count, _REQUESTED_AT_ONCE):
        numbers = range(start, min(request.count, start + _REQUESTED_AT_ONCE))
        pngs = _request_pngs(model, request.seed, numbers, label, names)
        for number, png in zip(numbers, pngs, strict=True):
            (output / f"{number:04d}.png").write_bytes(png)
            if number < _MAX_IN_GRID:
                in_grid.append(tf.io.decode_png(png))
    (output / GRID_FILE).write_bytes(tf.io.encode_png(make_grid(tf.stack(in_grid))).numpy())
    part = f" with the first {_MAX_IN_GRID:,}" if request.count > _MAX_IN_GRID else ""
    return f"{counted(request.count, 'picture')} of seed {request.seed}, and {GRID_FILE}{part}"


def _request_pngs(
    model: Any, seed: int, numbers: range, label: str, names: Sequence[str]
) -> list[bytes]:
    """Returns pictures of a seed as PNG files; their classes are `names` in turn."""
    columns = {SEED: [seed] * len(numbers), NUMBER: [*numbers]}
    rows = {name: tf.constant(values, tf.int64) for name, values in columns.items()}
    if names:
        rows[label] = tf.constant([names[number % len(names)] for number in numbers])
    texts = model.signatures[SERVING_RAW_SIGNATURE](**rows)[PNG_TEXT].numpy()
    return [base64.b64decode(text) for text in texts.tolist()]


def _describe_classes(model: Any) -> tuple[str, list[str]]:
    """Returns the name of the input that contains the class, and the classes in order."""
    description = model.signatures[DESCRIBE]()
    classes = [name.decode() for name in description["classes"].numpy().tolist()]
    return description["label"].numpy().decode(), classes
