"""Random changes of pictures during training, a batch at a time.

The draws for a picture follow from the seed, the step and its index in the global batch, so that
they are the same under every strategy, in both loops, and after an interruption.
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
"""The number of random numbers per picture, whatever the settings."""


def change_pictures(pixels: tf.Tensor, settings: AugmentSettings, drawn: tf.Tensor) -> tf.Tensor:
    """Returns the pictures of a batch with the changes of the settings.

    Args:
      pixels: the pictures.
      settings: the settings of the changes.
      drawn: random numbers for each picture, [batch, DRAWS] in -1..1.
    """
    across, down, turn, right, lower, larger, sharper, *spot = tf.unstack(drawn, DRAWS, axis=1)
    is_mirrored = (
        (across > 0) & (settings.flip in ("horizontal", "both")),
        (down > 0) & (settings.flip in ("vertical", "both")),
    )
    if settings.moves:
        pixels = _move(pixels, settings, is_mirrored, (turn, right, lower, larger))
    elif settings.flip:
        for axis, chosen in zip((2, 1), is_mirrored, strict=True):
            pixels = tf.where(_beside(chosen), tf.reverse(pixels, [axis]), pixels)
    if settings.contrast or settings.cutout:
        mean = tf.reduce_mean(pixels, [1, 2], keepdims=True)
        factor = _beside(1 + settings.contrast * sharper)
        if settings.contrast:
            pixels = pixels * factor + mean * (1 - factor)
        if settings.cutout:
            pixels = _cut_out(pixels, mean, settings.cutout, *spot)
    return pixels


def _beside(values: tf.Tensor) -> tf.Tensor:
    """Returns a value per picture, reshaped to broadcast over the pixels."""
    return values[:, tf.newaxis, tf.newaxis, tf.newaxis]


def _move(
    pixels: tf.Tensor,
    settings: AugmentSettings,
    is_mirrored: tuple[tf.Tensor, tf.Tensor],
    drawn: tuple[tf.Tensor, ...],
) -> tf.Tensor:
    """Returns pictures mirrored, rotated, scaled and shifted in one pass, with the edges
    extended.
    """
    turn, right, lower, larger = drawn
    height, width = (tf.cast(size, tf.float32) for size in tf.unstack(tf.shape(pixels)[1:3]))
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    centre_x = middle_x + right * settings.shift * width
    centre_y = middle_y + lower * settings.shift * height
    angle, scale = turn * settings.rotate * 2 * math.pi, 1 / (1 + larger * settings.zoom)
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
    """Returns pictures with a square covered around a random point; it may extend beyond the
    picture.
    """
    height, width = tf.unstack(tf.shape(pixels)[1:3])
    rows, columns = _covered(height, side, y), _covered(width, side, x)
    covered = rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :]
    return tf.where(covered[..., tf.newaxis], mean, pixels)


def _covered(size: tf.Tensor, side: int, drawn: tf.Tensor) -> tf.Tensor:
    """Returns which positions of an axis are within the square, [batch, size] bool."""
    centre = (drawn[:, tf.newaxis] + 1) / 2 * tf.cast(size, tf.float32)
    beyond = tf.range(tf.cast(size, tf.float32)) - (centre - side / 2)
    return (beyond >= 0) & (beyond < side)


Examples = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor | None]


def draw_shares(count: int, seeds: tf.Tensor, alpha: float) -> tf.Tensor:
    """Returns draws from Beta(alpha, alpha): [count] float32."""
    # The share of one Gamma variable in the sum of two has this distribution.
    first, second = tf.unstack(tf.random.stateless_gamma([2, count], seeds, alpha))
    return tf.math.divide_no_nan(first, first + second)


def mix(batch: Examples, others: Examples, shares: tf.Tensor) -> Examples:
    """Returns examples mixed with as many others; the weights set the shares of their labels.

    Args:
      batch: features [batch, ...] float32 each, labels [batch, 1], and weights [batch] or None.
      others: the other examples, in the same form.
      shares: the shares of the first examples, [batch].
    """
    (features, label, weights), (other_features, other_label, other_weights) = batch, others
    mixed = {
        name: _blend(values, other_features[name], shares) for name, values in features.items()
    }
    if weights is not None:
        both = _blend(weights, other_weights, shares)
        weights, shares = both, tf.math.divide_no_nan(shares * weights, both)
    parts = [label, other_label, shares[:, tf.newaxis]]
    return mixed, tf.concat([tf.cast(part, tf.float32) for part in parts], 1), weights


def _blend(values: tf.Tensor, others: tf.Tensor, shares: tf.Tensor) -> tf.Tensor:
    shares = tf.reshape(shares, [-1, *[1] * (values.shape.rank - 1)])
    return shares * values + (1 - shares) * others


@dataclass(frozen=True)
class BatchPlace:
    """The position of a batch in training."""

    step: tf.Tensor
    """The number of the step, over all epochs, int64."""
    first: tf.Tensor
    """The index of its first example in the global batch, int64."""
    global_batch_size: int
    """The size of the global batch."""


@dataclass(frozen=True)
class Augmentation:
    """The random changes of the pictures of a training."""

    settings: AugmentSettings
    pictures: tuple[str, ...]
    """The names of the features that are pictures."""
    seed: int

    @property
    def mixes(self) -> bool:
        """Whether each example is mixed with another one."""
        return bool(self.settings.mixup)

    def change(self, batch: Examples, others: Examples | None, place: BatchPlace) -> Examples:
        """Returns a batch with changed pictures, and mixed with others if they are given."""
        features = self._change_pictures(batch[0], place, 0)
        if others is None:
            return features, *batch[1:]
        mixed_with = self._change_pictures(others[0], place, 1)
        seeds = self._seeds(place, len(self.pictures), 0)
        shares = _slice_draws(
            draw_shares(place.global_batch_size, seeds, self.settings.mixup), place, batch[1]
        )
        return mix((features, *batch[1:]), (mixed_with, *others[1:]), shares)

    def _change_pictures(
        self, features: Mapping[str, tf.Tensor], place: BatchPlace, part: int
    ) -> dict[str, tf.Tensor]:
        """Returns the features with changed pictures; the two parts of a mixture have independent
        draws.
        """
        changed = dict(features)
        for number, name in enumerate(self.pictures):
            seeds = self._seeds(place, number, part)
            drawn = tf.random.stateless_uniform([place.global_batch_size, DRAWS], seeds, -1.0, 1.0)
            drawn = _slice_draws(drawn, place, features[name])
            changed[name] = change_pictures(features[name], self.settings, drawn)
        return changed

    def _seeds(self, place: BatchPlace, number: int, part: int) -> tf.Tensor:
        """Returns the seeds of one kind of draws in a step: [2] int64."""
        count = 2 * (len(self.pictures) + 1)
        return tf.stack([tf.constant(self.seed, tf.int64), place.step * count + 2 * number + part])


def _slice_draws(drawn: tf.Tensor, place: BatchPlace, batch: tf.Tensor) -> tf.Tensor:
    """Returns the draws of a batch's examples, from the draws for the global batch."""
    first = tf.cast(place.first, tf.int32)
    return drawn[first : first + tf.shape(batch)[0]]


def make_augmentation(
    settings: AugmentSettings | None, problem: Problem, seed: int
) -> Augmentation | None:
    """Returns the changes of the settings; None without settings.

    Raises:
      TrainingError: there is no picture, or a feature that cannot be mixed.
    """
    if settings is None:
        return None
    pictures = tuple(feature.name for feature in problem.of_kind("image"))
    if not pictures:
        raise TrainingError(
            "train.augment changes pictures, but no feature is an image; remove it, or declare a "
            "column as {type: image, height: ..., width: ...}."
        )
    others = [feature for feature in problem.features if feature.dtype != tf.float32]
    if settings.mixup and others:
        raise TrainingError(
            f"train.augment.mixup mixes all features of a model, but {others[0].name!r} is "
            f"{others[0].kind}, which has no mean; remove mixup or the feature."
        )
    return Augmentation(settings, pictures, seed)
