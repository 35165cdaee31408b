"""The networks of a GAN, without a training."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.generation.model import (
    NetworkShape,
    build_discriminator,
    normalise_convolutions,
    spectral_norm,
)


def largest_singular_value(kernel: np.ndarray) -> float:
    return float(np.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), 2))


def test_the_spectral_norm_is_the_largest_singular_value() -> None:
    kernel = np.random.default_rng(0).normal(size=(4, 4, 8, 16)).astype(np.float32)
    kernel[..., 3] *= 3
    found = float(spectral_norm(tf.constant(kernel)))
    assert abs(found / largest_singular_value(kernel) - 1) < 0.02


def test_convolutions_of_a_discriminator_are_normalised_and_nothing_else() -> None:
    network = build_discriminator(NetworkShape("dcgan", 10, (28, 28, 1), sizes=(16, 8)))
    before = network.layers[-2].get_weights()
    normalise_convolutions(network, tf.distribute.get_strategy())
    kernels = [
        one.kernel.numpy() for one in network.layers if isinstance(one, tf_keras.layers.Conv2D)
    ]
    assert len(kernels) == 2
    np.testing.assert_allclose([largest_singular_value(one) for one in kernels], 1, rtol=0.1)
    np.testing.assert_array_equal(network.layers[-2].get_weights()[0], before[0])
