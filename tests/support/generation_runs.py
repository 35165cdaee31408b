"""Tiny trainings of generators: pictures of two classes, written as ExampleGen writes them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.runtime import WorkerContext
from trainer_module.settings import TrainerSettings

TINY = {"kind": "gan", "options": {"units": [8, 8]}}
TINY_DCGAN = {"kind": "dcgan", "options": {"filters": [8]}}


def write_pictures(path: Path, count: int, seed: int = 0) -> None:
    """Writes pictures of 8x8 pixels: light ones are of class `b`, dark ones of `a`."""
    random = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for number in range(count):
            shade = 170 if number % 2 else 30
            pixels = (shade + random.integers(0, 80, (8, 8, 1))).astype(np.uint8)
            values = {"image": tf.io.encode_png(pixels).numpy(), "label": b"ab"[number % 2 :][:1]}
            features = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
                for name, value in values.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def write_splits(folder: Path) -> Path:
    """Writes both splits into a folder, and gives it."""
    write_pictures(folder / "train.gz", 40)
    write_pictures(folder / "eval.gz", 24, seed=1)
    return folder


def settings_of(**sections: Any) -> TrainerSettings:
    """The settings of a training; `task` and `train` add to what is usual here."""
    usual = {"epochs": 2, "batch_size": 8, "steps_per_execution": 1, "learning_rate": 0.01}
    return TrainerSettings.model_validate(
        {
            "label": "label",
            "task": {"kind": "generation", "noise": 6, **sections.get("task", {})},
            "features": {"image": {"type": "image", "height": 8, "width": 8, "channels": 1}},
            "model": sections.get("model", TINY),
            "train": {**usual, **sections.get("train", {})},
        }
    )


def arguments(
    data: Path, run: Path, settings: TrainerSettings, runtime: WorkerContext | None = None
) -> SimpleNamespace:
    """What `run_fn` takes."""
    return SimpleNamespace(
        custom_config=settings.to_custom_config(),
        train_files=[str(data / "train.gz")],
        eval_files=[str(data / "eval.gz")],
        serving_model_dir=str(run / "model"),
        model_run_dir=str(run),
        runtime=runtime or WorkerContext(),
    )


def history_of(run: Path) -> dict[str, list[float]]:
    """The losses of a training that is done, by epoch."""
    record = json.loads((run / "training.json").read_text())
    return {name: values for name, values in record["history"].items() if "loss" in name}
