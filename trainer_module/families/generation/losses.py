"""The losses of the two networks: of each picture, [batch] float32."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from trainer_module.families.generation.task import GanLoss, GenerationTask

_TINY = 1e-12
"""Keeps the gradient of a norm finite where the norm is 0."""


def cross_entropy(logit: tf.Tensor, target: float) -> tf.Tensor:
    """Of a logit and the probability that it should stand for."""
    return tf.nn.sigmoid_cross_entropy_with_logits(tf.fill(tf.shape(logit), target), logit)


def generator_loss(task: GenerationTask, fake: tf.Tensor) -> tf.Tensor:
    """What the generator makes smaller.

    Args:
      task: with the loss.
      fake: what the discriminator says of generated pictures.
    """
    return -fake if task.loss is GanLoss.WASSERSTEIN else cross_entropy(fake, 1.0)


def discriminator_loss(task: GenerationTask, real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """What the discriminator makes smaller, without the penalty.

    The labels of real pictures alone are smoothed (Salimans et al., 2016, arXiv:1606.03498).

    Args:
      task: with the loss.
      real: what it says of pictures of the data.
      fake: likewise, of generated ones.
    """
    if task.loss is GanLoss.WASSERSTEIN:
        return fake - real
    return cross_entropy(real, 1.0 - task.smoothing) + cross_entropy(fake, 0.0)


def gradient_penalty(
    judge: Callable[[tf.Tensor], tf.Tensor], real: tf.Tensor, fake: tf.Tensor, share: tf.Tensor
) -> tf.Tensor:
    """The square of what the gradient's norm lacks of 1, between pairs of pictures.

    That is the penalty of Gulrajani et al. (2017, arXiv:1704.00028), without its weight.

    Args:
      judge: from pictures to what the discriminator says of them.
      real: [batch, height, width, channels].
      fake: likewise.
      share: of the real one of each pair, [batch] in 0..1.
    """
    share = share[:, tf.newaxis, tf.newaxis, tf.newaxis]
    between = share * real + (1.0 - share) * fake
    with tf.GradientTape() as tape:
        tape.watch(between)
        said = judge(between)
    slopes = tape.gradient(said, between)
    norm = tf.sqrt(tf.reduce_sum(tf.square(slopes), axis=[1, 2, 3]) + _TINY)
    return tf.square(norm - 1.0)
