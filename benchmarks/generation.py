"""Measures the quality of generators of the shipped digits, and their steps per second.

For each model and seed, a generator is evaluated after the first and the last epoch on the same
held-out pictures. The speed is compared with a bare TensorFlow loop over the same networks. Both
run in turns, so that other load on the machine affects both. `make bench-tasks` runs the benchmark.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import tensorflow as tf
import tf_keras

from components.example_gen.builtin import BUILTIN_DATA
from pipeline.config.loading import load_config
from trainer_module.families import EXAMPLES_KEY
from trainer_module.families.generation.measuring import measure
from trainer_module.families.generation.model import Adversaries
from trainer_module.families.generation.pictures import generation_task
from trainer_module.families.measured import Estimate
from trainer_module.generation_trainer import GenerationInputs, open_inputs, run_fn, train
from trainer_module.runtime import WorkerContext
from trainer_module.settings import TrainerSettings

CONFIG = Path(__file__).parents[1] / "configs/digits_gan.yaml"
HELD_OUT_INTERVAL = 5
"""Every fifth picture is held out."""
TURNS, EPOCHS = 3, 3
"""The turns of the speed comparison, and the epochs of each loop; the first epoch traces graphs."""


def write_splits(folder: Path) -> dict[str, list[str]]:
    """Writes the digits as ExampleGen does; returns the files by split."""
    splits: dict[str, list[str]] = {"train": [], "eval": []}
    writers = {name: tf.io.TFRecordWriter(str(folder / name), "GZIP") for name in splits}
    pictures = sorted(BUILTIN_DATA["digits"].locate(folder / "cache").glob("*/*.png"))
    for number, path in enumerate(pictures):
        values = {"image": path.read_bytes(), "label": path.parent.name.encode()}
        feature = {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
            for name, value in values.items()
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        split = "train" if number % HELD_OUT_INTERVAL else "eval"
        writers[split].write(example.SerializeToString())
    for name, writer in writers.items():
        writer.close()
        splits[name] = [str(folder / name)]
    return splits


def settings_of(kind: str, seed: int, epochs: int, conditional: bool) -> TrainerSettings:
    """Returns the settings of the shipped config, with another model, seed and number of epochs."""
    # The options in the shipped config belong to the model dcgan.
    model = [] if kind == "dcgan" else [f"model={{kind: {kind}}}"]
    overrides = [*model, f"train.seed={seed}", f"train.epochs={epochs}"]
    overrides += [f"task.conditional={str(conditional).lower()}", "train.strategy=default"]
    return load_config(CONFIG, overrides).trainer_settings


def arguments(settings: TrainerSettings, files: dict[str, list[str]], folder: Path) -> Any:
    """Returns the arguments of `run_fn`."""
    return SimpleNamespace(
        custom_config=settings.to_custom_config(),
        train_files=files["train"],
        eval_files=files["eval"],
        serving_model_dir=str(folder / "model"),
        model_run_dir=str(folder / "run"),
        runtime=WorkerContext(),
    )


def learn(settings: TrainerSettings, files: dict[str, list[str]]) -> dict[str, Any]:
    """Trains and evaluates a generator; returns the metrics and the seconds of training."""
    with tempfile.TemporaryDirectory() as scratch:
        fn_args = arguments(settings, files, Path(scratch))
        begun = time.monotonic()
        run_fn(fn_args)
        seconds = time.monotonic() - begun
        custom_config = {**fn_args.custom_config, EXAMPLES_KEY: files}
        measured = measure(Path(fn_args.serving_model_dir), custom_config)
    values = {
        name: value.value if isinstance(value, Estimate) else value
        for name, value in measured.metrics.items()
    }
    distance = measured.metrics["frechet_distance"]
    assert isinstance(distance, Estimate)  # noqa: S101 - the type of this metric
    return {
        **values,
        "interval": distance.interval(0.95),
        "seconds": seconds,
        "notes": measured.notes,
    }


def bare_steps(inputs: GenerationInputs) -> Callable[[], float]:
    """Returns a function that runs the loop of TensorFlow's DCGAN tutorial.

    The function returns the steps per second.
    """
    deal, task = inputs.deal, generation_task(inputs.settings)
    model = Adversaries(task, inputs.shape, inputs.settings.train.learning_rate)
    generator, discriminator = model.generator, model.discriminator
    entropy = tf_keras.losses.BinaryCrossentropy(from_logits=True)
    pictures = deal.pictures.values.astype(np.float32) / 127.5 - 1.0
    labels = deal.pictures.indices(deal.classes)
    dataset = tf.data.Dataset.from_tensor_slices((pictures, labels)).shuffle(len(pictures))
    dataset = dataset.batch(deal.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    @tf.function
    def step(real: tf.Tensor, label: tf.Tensor) -> None:
        noise = tf.random.normal([deal.batch_size, deal.noise])
        condition = {"label": label} if deal.classes else {}
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake = generator({"noise": noise, **condition}, training=True)
            real_logits = discriminator({"picture": real, **condition}, training=True)
            fake_logits = discriminator({"picture": fake, **condition}, training=True)
            generator_loss = entropy(tf.ones_like(fake_logits), fake_logits)
            discriminator_loss = entropy(0.9 * tf.ones_like(real_logits), real_logits)
            discriminator_loss += entropy(tf.zeros_like(fake_logits), fake_logits)
        for tape, value, network, optimizer in (
            (first, generator_loss, generator, model.optimizer),
            (second, discriminator_loss, discriminator, model.discriminator_optimizer),
        ):
            variables = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    def run() -> float:
        steps, begun = 0, 0.0
        for epoch in range(EPOCHS):
            begun = begun if epoch > 1 else time.monotonic()
            for real, label in dataset:
                step(real, label)
                steps += epoch > 0
        return steps / (time.monotonic() - begun)

    return run


def our_steps(settings: TrainerSettings, files: dict[str, list[str]]) -> float:
    """Returns the steps per second of the Trainer's loop, without its first epoch."""
    with tempfile.TemporaryDirectory() as scratch:
        trained = train(open_inputs(arguments(settings, files, Path(scratch))))
    seconds = trained.epoch_seconds[1:]
    return len(seconds) * trained.plan.steps / sum(seconds)


def compare_steps(kind: str, files: dict[str, list[str]]) -> tuple[float, float]:
    """Returns the median steps per second of the Trainer and of the bare loop."""
    # A complete training run has the same number of steps per execution.
    settings = settings_of(kind, 1, EPOCHS, conditional=True)
    train_settings = settings.train.model_copy(update={"steps_per_execution": 16})
    settings = settings.model_copy(update={"train": train_settings})
    with tempfile.TemporaryDirectory() as scratch:
        inputs = open_inputs(arguments(settings, files, Path(scratch)))
    bare = bare_steps(inputs)
    pairs = [(our_steps(settings, files), bare()) for _ in range(TURNS)]
    ours, others = zip(*pairs, strict=True)
    return statistics.median(ours), statistics.median(others)


def result_lines(
    kind: str, seed: int, first: dict[str, Any], last: dict[str, Any]
) -> Iterator[str]:
    """Yields a line with the metrics of a generator, and a line with the notes."""
    low, high = last["interval"]
    names = ("precision", "recall", "mode_coverage", "copies", "class_accuracy")
    metrics = " ".join(f"{name} {last[name]:.3f}" for name in names if name in last)
    ratio = last["frechet_distance"] / first["frechet_distance"]
    yield (
        f"{kind:<6} seed {seed}: frechet_distance {first['frechet_distance']:.2f} after epoch 1,"
        f" {last['frechet_distance']:.2f} ({low:.2f} to {high:.2f}) at the end, a ratio of"
        f" {ratio:.2f};"
        f" {metrics}; {last['seconds']:.0f} s"
    )
    yield f"       {'; '.join(last['notes'])}"


def main() -> None:
    """Prints a line for each model, seed and comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=load_config(CONFIG).train.epochs)
    parser.add_argument("--kinds", nargs="+", default=["gan", "dcgan"])
    parser.add_argument(
        "--unconditional", action="store_true", help="train generators without classes"
    )
    parser.add_argument("--no-steps", action="store_true", help="skip the comparison of the loops")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        files = write_splits(Path(scratch))
        if not options.no_steps:
            for kind in options.kinds:
                ours, bare = compare_steps(kind, files)
                print(
                    f"{kind:<6} {ours:.1f} steps/s, bare {bare:.1f}: {ours / bare:.2f}", flush=True
                )
        for kind in options.kinds:
            for seed in options.seeds:
                results = [
                    learn(settings_of(kind, seed, epochs, not options.unconditional), files)
                    for epochs in (1, options.epochs)
                ]
                print(*result_lines(kind, seed, *results), sep="\n", flush=True)


if __name__ == "__main__":
    main()
