"""Changes the pictures of a batch at random during training.

The random numbers of a picture follow from the seed, the step and the picture's index in the global
batch. So they are the same under every strategy, in both loops, and after an interruption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.settings import AugmentSettings

DRAWS = 9
"""The number of random numbers per picture, which does not depend on the settings."""


def change_pictures(pixels: tf.Tensor, settings: AugmentSettings, drawn: tf.Tensor) -> tf.Tensor:
    """Returns the pictures of a batch with the changes of the settings.

    Args:
      pixels: the pictures.
      settings: the settings of the changes.
      drawn: the random numbers of each picture, [batch, DRAWS], from -1 to 1.
    """
    horizontal, vertical, rotation, right, down, zoom, contrast, *spot = tf.unstack(
        drawn, DRAWS, axis=1
    )
    is_mirrored = (
        (horizontal > 0) & (settings.flip in ("horizontal", "both")),
        (vertical > 0) & (settings.flip in ("vertical", "both")),
    )
    if settings.moves:
        pixels = _move(pixels, settings, is_mirrored, (rotation, right, down, zoom))
    elif settings.flip:
        for axis, chosen in zip((2, 1), is_mirrored, strict=True):
            pixels = tf.where(_per_picture(chosen), tf.reverse(pixels, [axis]), pixels)
    if settings.contrast or settings.cutout:
        mean = tf.reduce_mean(pixels, [1, 2], keepdims=True)
        factor = _per_picture(1 + settings.contrast * contrast)
        if settings.contrast:
            pixels = pixels * factor + mean * (1 - factor)
        if settings.cutout:
            pixels = _cut_out(pixels, mean, settings.cutout, *spot)
    return pixels


def _per_picture(values: tf.Tensor) -> tf.Tensor:
    """Reshapes a value per picture, [batch], so that it broadcasts over the pixels."""
    return values[:, tf.newaxis, tf.newaxis, tf.newaxis]


def _move(
    pixels: tf.Tensor,
    settings: AugmentSettings,
    is_mirrored: tuple[tf.Tensor, tf.Tensor],
    drawn: tuple[tf.Tensor, ...],
) -> tf.Tensor:
    """Mirrors, rotates, scales and shifts pictures in one pass; the edge pixels fill the gaps."""
    rotation, right, down, zoom = drawn
    height, width = (tf.cast(size, tf.float32) for size in tf.unstack(tf.shape(pixels)[1:3]))
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    centre_x = middle_x + right * settings.shift * width
    centre_y = middle_y + down * settings.shift * height
    angle, scale = rotation * settings.rotate * 2 * math.pi, 1 / (1 + zoom * settings.zoom)
    cosine, sine = scale * tf.cos(angle), scale * tf.sin(angle)
    side_x, side_y = (tf.where(mirrored, -1.0, 1.0) for mirrored in is_mirrored)
    # The source of the pixel at x, y is x' = a x + b y + c, y' = d x + e y + f.
    a, b, d, e = side_x * cosine, -side_x * sine, side_y * sine, side_y * cosine
    c = middle_x - a * centre_x - b * centre_y
    f = middle_y - d * centre_x - e * centre_y
    zeros = tf.zeros_like(a)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=pixels,
        transforms=tf.stack([a, b, c, d, e, f, zeros, zeros], 1),
        output_shape=tf.shape(pixels)[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )


def _cut_out(
    pixels: tf.Tensor, mean: tf.Tensor, side: int, x: tf.Tensor, y: tf.Tensor
) -> tf.Tensor:
    """Covers a square around a random point of each picture with the mean colour.

    The square may extend beyond the picture.
    """
    height, width = tf.unstack(tf.shape(pixels)[1:3])
    rows, columns = _inside_square(height, side, y), _inside_square(width, side, x)
    covered = rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :]
    return tf.where(covered[..., tf.newaxis], mean, pixels)


def _inside_square(size: tf.Tensor, side: int, drawn: tf.Tensor) -> tf.Tensor:
    """Returns whether each position of an axis is inside the square, [batch, size] bool."""
    centre = (drawn[:, tf.newaxis] + 1) / 2 * tf.cast(size, tf.float32)
    distance = tf.range(tf.cast(size, tf.float32)) - (centre - side / 2)
    return (distance >= 0) & (distance < side)


Examples = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor | None]


def draw_shares(count: int, seeds: tf.Tensor, alpha: float) -> tf.Tensor:
    """Returns random numbers from Beta(alpha, alpha), [count] float32."""
    # The share of one Gamma variable in the sum of two Gamma variables has this distribution.
    first, second = tf.unstack(tf.random.stateless_gamma([2, count], seeds, alpha))
    return tf.math.divide_no_nan(first, first + second)


def mix(batch: Examples, others: Examples, shares: tf.Tensor) -> Examples:
    """Mixes each example of a batch with the example at the same index of another batch (mixup).

    A label's share is proportional to the example's share times its weight.

    Args:
      batch: the features, [batch, ...] float32 each; the labels, [batch, 1]; and the weights,
        [batch] or None.
      others: the other batch, in the form of `batch`.
      shares: the shares of the examples of `batch`, [batch].
    """
    (features, label, weights), (other_features, other_label, other_weights) = batch, others
    mixed = {
        name: _blend(values, other_features[name], shares) for name, values in features.items()
    }
    if weights is not None:
        mixed_weights = _blend(weights, other_weights, shares)
        shares = tf.math.divide_no_nan(shares * weights, mixed_weights)
        weights = mixed_weights
    parts = [label, other_label, shares[:, tf.newaxis]]
    return mixed, tf.concat([tf.cast(part, tf.float32) for part in parts], 1), weights


def _blend(values: tf.Tensor, others: tf.Tensor, shares: tf.Tensor) -> tf.Tensor:
    shares = tf.reshape(shares, [-1, *[1] * (values.shape.rank - 1)])
    return shares * values + (1 - shares) * others


@dataclass(frozen=True)
class BatchPosition:
    """The position of a batch in training."""

    step: tf.Tensor
    """The number of the step, over all epochs, int64."""
    first: tf.Tensor
    """The index of the batch's first example in the global batch, int64."""
    global_batch_size: int
    """The size of the global batch."""


@dataclass(frozen=True)
class Augmentation:
    """The random changes of pictures in training."""

    settings: AugmentSettings
    pictures: tuple[str, ...]
    """The names of the features that are pictures."""
    seed: int

    @property
    def mixes(self) -> bool:
        """Whether each example is mixed with another example."""
        return bool(self.settings.mixup)

    def change(self, batch: Examples, others: Examples | None, position: BatchPosition) -> Examples:
        """Returns a batch with changed pictures, mixed with the examples of `others` unless
        None.
        """
        features = self._change_pictures(batch[0], position, 0)
        if others is None:
            return features, *batch[1:]
        mixed_with = self._change_pictures(others[0], position, 1)
        seeds = self._seeds(position, len(self.pictures), 0)
        shares = _slice_draws(
            draw_shares(position.global_batch_size, seeds, self.settings.mixup), position, batch[1]
        )
        return mix((features, *batch[1:]), (mixed_with, *others[1:]), shares)

    def _change_pictures(
        self, features: Mapping[str, tf.Tensor], position: BatchPosition, part: int
    ) -> dict[str, tf.Tensor]:
        """Returns the features with changed pictures.

        The two parts of a mixture, 0 and 1, have independent random numbers.
        """
        changed = dict(features)
        for number, name in enumerate(self.pictures):
            seeds = self._seeds(position, number, part)
            drawn = tf.random.stateless_uniform(
                [position.global_batch_size, DRAWS], seeds, -1.0, 1.0
            )
            drawn = _slice_draws(drawn, position, features[name])
            changed[name] = change_pictures(features[name], self.settings, drawn)
        return changed

    def _seeds(self, position: BatchPosition, number: int, part: int) -> tf.Tensor:
        """Returns the seeds of one set of random numbers in a step, [2] int64."""
        count = 2 * (len(self.pictures) + 1)
        return tf.stack(
            [tf.constant(self.seed, tf.int64), position.step * count + 2 * number + part]
        )


def _slice_draws(drawn: tf.Tensor, position: BatchPosition, batch: tf.Tensor) -> tf.Tensor:
    """Selects the random numbers of a batch from the random numbers of the global batch."""
    first = tf.cast(position.first, tf.int32)
    return drawn[first : first + tf.shape(batch)[0]]


def make_augmentation(
    settings: AugmentSettings | None, problem: Problem, seed: int
) -> Augmentation | None:
    """Returns the changes that the settings describe, or None without settings.

    Raises:
      TrainingError: no feature is a picture, or a feature cannot be mixed.
    """
    if settings is None:
        return None
    pictures = tuple(feature.name for feature in problem.of_kind("image"))
    if not pictures:
        raise TrainingError(
            "train.augment changes pictures, but no feature is an image; remove train.augment, or "
            "declare a column as {type: image, height: ..., width: ...}."
        )
    unmixable = [feature for feature in problem.features if feature.dtype != tf.float32]
    if settings.mixup and unmixable:
        raise TrainingError(
            f"train.augment.mixup mixes all features of a model, but {unmixable[0].name!r} is "
            f"{unmixable[0].kind}, and such values cannot be mixed; remove mixup or the feature."
        )
    return Augmentation(settings, pictures, seed)
