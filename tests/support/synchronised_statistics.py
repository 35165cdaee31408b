"""Asserts what synchronised batch normalisation is for, in a process of its own.

Two replicas with the halves of a batch come to the statistics of one with all of it.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.models.pretrained_parts import batch_norms, network_of
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, TrainSettings
from trainer_module.settings.model import load_builder

SMALL = "mobilenet_v3_small"
PHOTO = TransformedFeature("photo", "image", (36, 40, 3))
FIRST = 4
"""So many layers tell; what is behind them is left out."""


def learn(strategy: tf.distribute.Strategy, parts: list[np.ndarray]) -> np.ndarray:
    """The statistics of the first layers after a step, of which each replica takes a part."""
    tf_keras.utils.set_random_seed(1)
    with strategy.scope():
        settings = ModelSettings(kind=SMALL, sync_batch_norm=True)
        model = load_builder(SMALL)(Problem("multiclass", "y", ("a", "b"), (PHOTO,)), settings)
        network = network_of(model, SMALL)
        norms = batch_norms(network)
        assert all(norm.synchronized for norm in norms)
        network = tf_keras.Model(network.input, norms[FIRST - 1].output)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(parts[context.replica_id_in_sync_group])
    )
    tf.function(lambda: strategy.run(lambda x: network(x, training=True), (values,)))()
    found = [[*n.moving_mean.numpy(), *n.moving_variance.numpy()] for n in norms[:FIRST]]
    return np.concatenate(found)


def main() -> None:
    """Compares the strategies that have replicas on one machine with one replica."""
    cpu, *_ = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    noise = np.random.default_rng(1).uniform(size=(8, *PHOTO.shape))
    brightness = np.linspace(0.1, 1, 8)[:, None, None, None]
    pictures = (255 * noise * brightness).astype(np.float32)
    expected = learn(tf.distribute.get_strategy(), [pictures])
    for name in ("mirrored", "central_storage"):
        strategy = TrainSettings.model_validate({"strategy": name}).strategy.build()
        assert strategy.num_replicas_in_sync == 2
        found = learn(strategy, [pictures[:4], pictures[4:]])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=name)


main()
