"""Trains a network on MNIST in plain Keras: the reference for the Trainer's speed.

The script prints a line of JSON: the seconds of `fit`, the number of steps, and the loss and
accuracy of the best epoch.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tf_keras


def read_idx(path: Path) -> np.ndarray:
    """Returns the array in an IDX file.

    The header has 4 bytes, and 4 bytes per dimension; the values follow as bytes.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        content = file.read()
    dimensions = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(content[3])]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(dimensions)).reshape(dimensions)


def load(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images, [n, 28, 28, 1] float32 from 0 to 1, and the labels, [n]."""
    images = next(folder.glob("*images*"))
    labels = next(folder.glob("*labels*"))
    return read_idx(images)[..., np.newaxis].astype(np.float32) / 255, read_idx(labels)


def build_model() -> tf_keras.Model:
    """Returns the tutorial's model: https://www.tensorflow.org/tutorials/distribute/keras."""
    return tf_keras.Sequential(
        [
            tf_keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            tf_keras.layers.MaxPooling2D(),
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(64, activation="relu"),
            tf_keras.layers.Dense(10, activation="softmax"),
        ]
    )


def learning_rate(epoch: int) -> float:
    """Returns the tutorial's learning rate for an epoch."""
    return 1e-3 if epoch < 3 else 1e-4 if epoch < 7 else 1e-5


def main() -> None:
    """Trains the model, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps-per-execution", type=int, default=1)
    options = parser.parse_args()
    tf_keras.utils.set_random_seed(options.seed)
    images, labels = load(options.data)
    order = np.random.default_rng(options.seed).permutation(len(images))
    train, evaluation = np.split(order, [len(images) * 8 // 10])
    batches = tf.data.Dataset.from_tensor_slices((images[train], labels[train]))
    batches = batches.cache().shuffle(len(train)).batch(64).prefetch(tf.data.AUTOTUNE)
    held_out = tf.data.Dataset.from_tensor_slices((images[evaluation], labels[evaluation]))
    model = build_model()
    model.compile(
        tf_keras.optimizers.Adam(),
        tf_keras.losses.SparseCategoricalCrossentropy(),
        ["accuracy"],
        steps_per_execution=options.steps_per_execution,
    )
    began = time.monotonic()
    history = model.fit(
        batches,
        validation_data=held_out.batch(512).cache(),
        epochs=options.epochs,
        callbacks=[tf_keras.callbacks.LearningRateScheduler(learning_rate)],
        verbose=0,
    ).history
    seconds = time.monotonic() - began
    best = int(np.argmin(history["val_loss"]))
    print(
        json.dumps(
            {
                "seconds": seconds,
                "steps": options.epochs * -(-len(train) // 64),
                "loss": history["val_loss"][best],
                "accuracy": history["val_accuracy"][best],
            }
        )
    )


if __name__ == "__main__":
    main()
