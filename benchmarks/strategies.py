"""Compares the Trainer with plain Keras, and two workers with one worker, on 10,000 MNIST images.

Both sides of a comparison run several times in turn. The printed values are medians and ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
MNIST = ROOT.parent / "shared" / "data" / "mnist"
TUTORIAL: dict[str, Any] = {
    "model": {"kind": "cnn", "filters": [32], "hidden_units": [64], "dropout": 0.0},
    "train": {
        "epochs": 12,
        "batch_size": 64,
        "strategy": "default",
        "learning_rate": {
            "schedule": "steps",
            "values": [1e-3, 1e-4, 1e-5],
            "boundaries": [3, 7],
        },
    },
}
"""The settings of the tutorial https://www.tensorflow.org/tutorials/distribute/keras."""
LARGE: dict[str, Any] = {
    "model": {"kind": "cnn", "filters": [64, 128, 128], "hidden_units": [32], "dropout": 0.0},
    "train": {"epochs": 4, "batch_size": 512, "learning_rate": 0.001},
}
"""Settings with much computation per step compared with the size of the gradients."""
ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}


def train(output: Path, settings: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Runs the pipeline with cached data components; returns the summary of the training."""
    overrides = {
        "data.path": str(MNIST),
        "evaluate.thresholds": "{}",
        **{key: json.dumps(value) for key, value in _flat(settings)},
    }
    command = [sys.executable, str(ROOT / "local_runner.py"), "run"]
    command += ["--config", str(ROOT / "configs" / "mnist.yaml"), "--output", str(output)]
    command += [part for key, value in overrides.items() for part in ("--set", f"{key}={value}")]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode not in (0, 3):
        sys.exit(done.stdout + done.stderr)
    newest = max((output / "mnist" / "runs").iterdir())
    return dict(json.loads((newest / "summary.json").read_text())["training"])


def _flat(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{section}.{k}", v) for section, keys in settings.items() for k, v in keys.items()]


def run_keras(seed: int, epochs: int, steps_per_execution: int) -> dict[str, Any]:
    """Runs the plain Keras script; returns its results."""
    script = ROOT / "benchmarks" / "bare_keras.py"
    options = {"data": MNIST, "seed": seed, "epochs": epochs}
    options["steps-per-execution"] = steps_per_execution
    command = [sys.executable, str(script)]
    command += [part for name, value in options.items() for part in (f"--{name}", str(value))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def change_train(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Returns the settings with some keys of `train` changed."""
    return {**settings, "train": {**settings["train"], **changes}}


def compare_with_keras(output: Path, rounds: int) -> Table:
    """Compares the steps per second of the Trainer and of the Keras script."""
    table = Table("steps per execution", "Keras, steps/s", "Trainer, steps/s", "ratio")
    for execution in (1, 16):
        speeds: dict[str, list[float]] = {"keras": [], "ours": []}
        for seed in range(1, rounds + 1):
            result = run_keras(seed, 12, execution)
            speeds["keras"].append(result["steps"] / result["seconds"])
            settings = change_train(TUTORIAL, seed=100 * execution + seed)
            settings = change_train(settings, steps_per_execution=execution)
            result = train(output, settings, {})
            speeds["ours"].append(result["steps"] / result["seconds"])
        keras, ours = (statistics.median(speeds[side]) for side in ("keras", "ours"))
        table.add_row(str(execution), f"{keras:.1f}", f"{ours:.1f}", f"{ours / keras:.2f}")
    return table


def compare_workers(output: Path, rounds: int) -> Table:
    """Compares the examples per second of two single-threaded workers and of one worker."""
    table = Table("workers", "examples/s", "ratio")
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for seed in range(1, rounds + 1):
        for workers in speeds:
            settings = change_train(
                LARGE,
                seed=seed,
                strategy="multi_worker_mirrored",
                cluster={"workers": workers},
                # The global batch size is the same for one and two workers.
                batch_size=LARGE["train"]["batch_size"] // workers,
            )
            speeds[workers].append(train(output, settings, ONE_THREAD)["examples_per_second"])
    medians = {workers: statistics.median(values) for workers, values in speeds.items()}
    for workers, speed in medians.items():
        table.add_row(str(workers), f"{speed:.0f}", f"{speed / medians[1]:.2f}")
    return table


def compare_tutorial(output: Path, rounds: int) -> Table:
    """Compares the loss and accuracy of the best epoch on the held-out fifth of the images."""
    table = Table("seed", "Keras, loss", "accuracy", "Trainer, loss", "accuracy")
    for seed in range(1, rounds + 1):
        keras = run_keras(seed, 12, 1)
        ours = train(output, change_train(TUTORIAL, seed=seed), {})
        best = ours["best_epoch"] - 1
        history = ours["history"]
        row = [keras["loss"], keras["accuracy"]]
        row += [history["val_loss"][best], history["val_accuracy"][best]]
        table.add_row(str(seed), *(f"{value:.4f}" for value in row))
    return table


COMPARISONS: dict[str, Callable[[Path, int], Table]] = {
    "keras": compare_with_keras,
    "workers": compare_workers,
    "tutorial": compare_tutorial,
}


def main() -> None:
    """Runs the comparisons that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=COMPARISONS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not MNIST.is_dir():
        sys.exit(f"skipped: MNIST's files are missing in {MNIST}")
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        for name in [options.only] if options.only else COMPARISONS:
            console.print(COMPARISONS[name](Path(folder), options.rounds))


if __name__ == "__main__":
    main()
