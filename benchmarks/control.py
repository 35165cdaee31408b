"""Policies learnt from interaction and from logs; part of `make bench-tasks`.

CartPole-v1 is learnt online with several seeds, each evaluated for 100 episodes, and with switches
of the learner. Then offline: a half-trained policy logs 50,000 transitions, from which another
policy learns; and the same logs with shuffled rewards, from which no blessed policy may result.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from rich.console import Console
from rich.table import Table

from components.evaluator.gate import Bounds, decide
from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from trainer_module.control_trainer import run_fn
from trainer_module.families.control.environments import EnvironmentSettings, Steps
from trainer_module.families.control.measuring import exported_policy, measure
from trainer_module.families.control.training import EPOCHS
from trainer_module.families.control.transitions import collect, write_transitions
from trainer_module.families.measured import Estimate, Measured

CONFIG = Path(__file__).parents[1] / "configs" / "cartpole.yaml"
REQUIRED_RETURN, SECONDS = 475, 600
"""The mean return of 100 episodes to reach, and the seconds that training may take."""
LOGGED = 50_000
"""The number of transitions that the half-trained policy logs."""
HALF_TRAINED = 3_000
"""The number of environment steps that the half-trained policy is trained for."""
CONSERVATIVE = 0.1
"""The weight of CQL's term: with 1, a policy imitates the logs regardless of rewards."""
_FALL = 20
"""The cost of a fallen pole in these logs."""
_EXPLORATION = 0.1
"""The share of random actions in the logs."""
_PLAIN = {"double": False, "dueling": False, "prioritised": False, "n_step": 1}
SWITCHES: dict[str, dict[str, Any]] = {
    "as by default": {},
    "without double": {"double": False},
    "without dueling": {"dueling": False},
    "plain": _PLAIN,
    "double": {**_PLAIN, "double": True},
    "dueling": {**_PLAIN, "dueling": True},
    "prioritised": {**_PLAIN, "prioritised": True},
}
"""The changes of the section `model`."""


@dataclass(frozen=True)
class TrainedPolicy:
    """A trained and evaluated policy."""

    folder: Path
    """The folder of the exported model."""
    seconds: float
    """The seconds from the config to the exported model, without TensorFlow's import."""
    steps: int
    """The environment steps until the best policy; offline, the optimizer steps."""
    measured: Measured

    @property
    def value(self) -> float:
        """The mean return of 100 episodes."""
        return self.estimate.value

    @property
    def estimate(self) -> Estimate:
        """The mean return with its resamples."""
        found = self.measured.metrics["return"]
        assert isinstance(found, Estimate)  # noqa: S101 - `measure` gives nothing else
        return found


def train(folder: Path, config: PipelineConfig, files: Sequence[Path] = ()) -> TrainedPolicy:
    """Trains and evaluates a policy as a run does, without TFX."""
    folder.mkdir(parents=True)
    data: dict[str, Any] = {"files": [str(file) for file in files]}
    if not files:
        data["source"] = config.data.source
    told = {**config.trainer_settings.to_custom_config(), "data": data}
    model = folder / "model"
    began = time.monotonic()
    run_fn(
        SimpleNamespace(custom_config=told, model_run_dir=str(folder), serving_model_dir=str(model))
    )
    seconds = time.monotonic() - began
    record = json.loads((folder / "training.json").read_text())
    steps = config.trainer_settings.train.steps
    assert isinstance(steps, int)  # noqa: S101 - as the config says
    best_after = round(record["best_epoch"] / EPOCHS * steps)
    return TrainedPolicy(model, seconds, best_after, measure(model, told))


def online(folder: Path, seeds: Sequence[int], switches: Sequence[str], console: Console) -> None:
    """Trains with each switch and seed, and prints the mean returns and times."""
    table = Table("CartPole-v1, online", "mean return of 100 episodes", "seconds", "steps to best")
    for name, changed in SWITCHES.items():
        if switches and name not in switches:
            continue
        found = []
        for seed in seeds:
            settings = [f"model.{key}={value}".lower() for key, value in changed.items()]
            config = load_config(CONFIG, [*settings, f"train.seed={seed}"])
            found.append(train(folder / f"{name}-{seed}", config))
            one = found[-1]
            is_right = one.value >= REQUIRED_RETURN and one.seconds <= SECONDS
            said = "reached" if is_right else "NOT reached"
            console.print(
                f"{name}, seed {seed}: {one.value:.1f} in {one.seconds:.0f} s, best after"
                f" {one.steps:,} steps: {said}",
                highlight=False,
            )
        table.add_row(
            name,
            ", ".join(f"{one.value:.1f}" for one in found),
            ", ".join(f"{one.seconds:.0f}" for one in found),
            f"{statistics.median(one.steps for one in found):,.0f}",
        )
    console.print(table)


def offline(folder: Path, seed: int, console: Console) -> None:
    """Trains from the logs of a half-trained policy, and from logs with shuffled rewards."""
    half = load_config(CONFIG, [f"train.seed={seed}", f"train.steps={HALF_TRAINED}"])
    logging_policy = train(folder / f"half-{seed}", half)
    # Only a fall has a cost, so shuffled rewards contain no information about falls.
    logged = EnvironmentSettings(half.data.path, {"sutton_barto_reward": True}, 10_000)
    episodes = 2 * LOGGED // int(logging_policy.value)
    act = exported_policy(logging_policy.folder)
    logs = first(collect(act, logged, episodes, seed, _EXPLORATION))
    logs = replace(logs, rewards=_FALL * logs.rewards)
    good, poisoned = folder / f"good-{seed}.parquet", folder / f"poisoned-{seed}.parquet"
    write_transitions(logs, str(good))
    shuffled = np.random.default_rng(seed).permutation(logs.rewards)
    write_transitions(replace(logs, rewards=shuffled), str(poisoned))
    changed = [
        f"data={{format: parquet, path: {folder}}}",
        f"task={{kind: control, environment: {half.data.path}, conservative: {CONSERVATIVE}}}",
        f"train.seed={seed}",
        "train.steps=10000",
    ]
    config = load_config(CONFIG, changed)
    better = train(folder / f"offline-{seed}", config, [good])
    worse = train(folder / f"poisoned-{seed}", config, [poisoned])
    gate = [Bounds("return", higher_is_better=True)]
    verdict = decide(gate, worse.measured, better.measured, 0.95)
    low, high = better.estimate.difference(logging_policy.estimate, 0.95)
    console.print(
        f"offline, seed {seed}: the policy that logged {LOGGED:,} transitions returns"
        f" {logging_policy.value:.1f}; the one that learnt from them {better.value:.1f}"
        f" ({low:+.1f} to {high:+.1f}), in {better.seconds:.0f} s; from shuffled rewards"
        f" {worse.value:.1f}: {'BLESSED' if verdict.blessed else 'not blessed'}",
        highlight=False,
    )


def first(logs: Steps) -> Steps:
    """Returns the first `LOGGED` transitions."""
    assert len(logs.actions) >= LOGGED  # noqa: S101 - a bug of this benchmark
    return Steps(*(values[:LOGGED] for values in vars(logs).values()))


def main() -> None:
    """Runs the benchmarks that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--switches", nargs="*", default=[], help="only these of online")
    parser.add_argument("--only", nargs="*", default=["online", "offline"])
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="scopeline-") as folder:
        if "online" in options.only:
            online(Path(folder), options.seeds, options.switches, console)
        if "offline" in options.only:
            for seed in options.seeds:
                offline(Path(folder), seed, console)


if __name__ == "__main__":
    main()
