"""Compares the steps per second of the Trainer's input pipeline with `fit` on arrays in memory.

The same network is trained with each input of the same pictures in turns, so that other load on the
machine affects all inputs. `make bench-pictures` runs the benchmark.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.data.augmentation import make_augmentation
from trainer_module.data.examples import Content, Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import AugmentSettings, TrainerSettings
from trainer_module.settings.tasks import as_task
from trainer_module.training.building import build_model
from trainer_module.training.callbacks import EpochTimes

CLASSES, EPOCHS = 10, 2
AUGMENT = AugmentSettings(
    flip="horizontal", rotate=0.05, shift=0.1, zoom=0.1, contrast=0.1, cutout=8, mixup=0.2
)


def make_pictures(count: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns random pictures, [count, side, side, 3] float32 with 256 levels, and classes [count,
    1].
    """
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (count, side, side, 3)).astype(np.float32) / 255
    return pixels, random.integers(0, CLASSES, (count, 1))


def write_shards(folder: Path, pixels: np.ndarray, labels: np.ndarray, shards: int = 4) -> None:
    """Writes the examples to sharded files, as Transform does."""
    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"{shard}.gz"), "GZIP") as writer:
            for picture, label in zip(pixels[shard::shards], labels[shard::shards], strict=True):
                feature = {
                    "image": tf.train.Feature(
                        float_list=tf.train.FloatList(value=picture.ravel().tolist())
                    ),
                    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=label.tolist())),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())


def make_splits(
    folder: Path, pixels: np.ndarray, labels: np.ndarray, batch: int
) -> Iterator[tuple[str, Split]]:
    """Yields the name and the split of each input."""
    image = TransformedFeature("image", "image", pixels.shape[1:])
    problem = Problem(as_task("multiclass"), "y", tuple(map(str, range(CLASSES))), (image,))
    write_shards(folder, pixels, labels)
    spec = {
        "image": tf.io.FixedLenFeature(image.shape, tf.float32),
        "y": tf.io.FixedLenFeature([1], tf.int64),
    }
    reader = Reader([str(folder / "*.gz")], spec, problem)
    contents: dict[str, Content] = {
        "memory": reader.read("train"),
        "files": reader.read("train", 0),
    }
    for (source, content), augment in itertools.product(contents.items(), (None, AUGMENT)):
        name = f"{source}, augmented" if augment else source
        augmentation = make_augmentation(augment, problem, 1)
        yield name, Split(reader, content, batch, shuffle_seed=1, augmentation=augmentation)


def make_model(split: Split, filters: list[int]) -> tf_keras.Model:
    """Returns the network, which is compiled as in the Trainer."""
    augmentation = split.augmentation
    settings = TrainerSettings.model_validate(
        {
            "label": "y",
            "task": "multiclass",
            "model": {"kind": "cnn", "filters": filters},
            "train": {"augment": dict(augmentation.settings) if augmentation else None},
        }
    )
    strategy = tf.distribute.get_strategy()
    return build_model(split.reader.problem, settings, strategy, split.steps)


def measure(
    folder: Path, count: int, side: int, batch: int, filters: list[int], rounds: int
) -> Mapping[str, list[float]]:
    """Returns the steps per second of each input, by round, without the first epoch of each."""
    pixels, labels = make_pictures(count, side)
    splits = dict(make_splits(folder, pixels, labels, batch))
    models = {name: make_model(split, filters) for name, split in splits.items()}
    array_model = make_model(splits["memory"], filters)
    steps = count // batch
    rates: dict[str, list[float]] = {name: [] for name in ["arrays", *splits]}
    for _ in range(rounds):
        runs = [("arrays", array_model, {"x": {"image": pixels}, "y": labels, "batch_size": batch})]
        for name, split in splits.items():
            batches = split.batches(tf.distribute.InputContext())
            runs.append((name, models[name], {"x": batches, "steps_per_epoch": steps}))
        for name, model, data in runs:
            times = EpochTimes()
            model.fit(**data, epochs=1 + EPOCHS, callbacks=[times], verbose=0)
            rates[name].append(EPOCHS * steps / sum(times.seconds[1:]))
    return rates


def main() -> None:
    """Prints a line for each input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=640)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--filters", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        rates = measure(Path(folder), **options)
    arrays = rates["arrays"]
    for name, values in rates.items():
        ratio = statistics.median(a / b for a, b in zip(values, arrays, strict=True))
        print(f"{name:<20} {statistics.median(values):7.2f} steps/s  {ratio:.2f} of arrays")


if __name__ == "__main__":
    main()
