"""Changes of pictures: [batch, height, width, channels] float32 in, the same shape out."""

from __future__ import annotations

import math

import tensorflow as tf

from trainer_module.settings import AugmentSettings

DRAWS = 9
"""Random numbers that a picture takes, whatever is done with them."""


def change_pictures(pixels: tf.Tensor, settings: AugmentSettings, drawn: tf.Tensor) -> tf.Tensor:
    """Changes every picture of a batch as the settings say.

    Args:
      pixels: the pictures.
      settings: what is done.
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
    """A value for each picture, as it goes with their pixels."""
    return values[:, tf.newaxis, tf.newaxis, tf.newaxis]


def _move(
    pixels: tf.Tensor,
    settings: AugmentSettings,
    is_mirrored: tuple[tf.Tensor, tf.Tensor],
    drawn: tuple[tf.Tensor, ...],
) -> tf.Tensor:
    """Mirrors, turns, scales and moves in one pass; the edges go on beyond themselves."""
    turn, right, lower, larger = drawn
    height, width = (tf.cast(size, tf.float32) for size in tf.unstack(tf.shape(pixels)[1:3]))
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    centre_x = middle_x + right * settings.shift * width
    centre_y = middle_y + lower * settings.shift * height
    angle, scale = turn * settings.rotate * 2 * math.pi, 1 / (1 + larger * settings.zoom)
    cosine, sine = scale * tf.cos(angle), scale * tf.sin(angle)
    side_x, side_y = (tf.where(mirrored, -1.0, 1.0) for mirrored in is_mirrored)
    # Where the pixel at x, y comes from: to x' = a x + b y + c, y' = d x + e y + f.
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
    """Covers a square about any point of each picture, of which a part may lie outside."""
    height, width = tf.unstack(tf.shape(pixels)[1:3])
    rows, columns = _covered(height, side, y), _covered(width, side, x)
    covered = rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :]
    return tf.where(covered[..., tf.newaxis], mean, pixels)


def _covered(size: tf.Tensor, side: int, drawn: tf.Tensor) -> tf.Tensor:
    """Which places of an axis are within the square, [batch, size] bool."""
    centre = (drawn[:, tf.newaxis] + 1) / 2 * tf.cast(size, tf.float32)
    beyond = tf.range(tf.cast(size, tf.float32)) - (centre - side / 2)
    return (beyond >= 0) & (beyond < side)
