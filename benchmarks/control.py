"""Trains policies online and offline; part of `make bench-tasks`.

Online, policies learn CartPole-v1 by acting, with several seeds and several settings of the
learner. Each policy is evaluated for 100 episodes. Offline, a half-trained policy logs 50,000
transitions, and another policy learns from these logs. A third policy learns from the same logs
with shuffled rewards, and must not be blessed.
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
"""The required mean return of 100 episodes, and the maximum seconds of training."""
LOGGED = 50_000
"""The number of transitions that the half-trained policy logs."""
HALF_TRAINED = 3_000
"""The number of environment steps in the training of the half-trained policy."""
CONSERVATIVE = 0.1
"""The weight of CQL's term; with a weight of 1, a policy imitates the logs regardless
of rewards.
"""
_FALL_COST = 20
"""The cost of a fallen pole in the logs."""
_EXPLORATION = 0.1
"""The share of random actions in the logs."""
_PLAIN = {"double": False, "dueling": False, "prioritised": False, "n_step": 1}
SWITCHES: dict[str, dict[str, Any]] = {
    "default": {},
    "without double": {"double": False},
    "without dueling": {"dueling": False},
    "plain": _PLAIN,
    "double": {**_PLAIN, "double": True},
    "dueling": {**_PLAIN, "dueling": True},
    "prioritised": {**_PLAIN, "prioritised": True},
}
"""The changes of the config's section `model`, by the name in the table."""


@dataclass(frozen=True)
class TrainedPolicy:
    """A trained and evaluated policy."""

    folder: Path
    """The folder of the exported model."""
    seconds: float
    """The duration of training and export in seconds, without the import of TensorFlow."""
    steps: int
    """The number of environment steps, or offline of optimizer steps, until the best policy."""
    measured: Measured

    @property
    def value(self) -> float:
        """The mean return of 100 episodes."""
        return self.estimate.value

    @property
    def estimate(self) -> Estimate:
        """The mean return with its resamples."""
        estimate = self.measured.metrics["return"]
        assert isinstance(estimate, Estimate)  # noqa: S101 - the type of this metric
        return estimate


def train(folder: Path, config: PipelineConfig, files: Sequence[Path] = ()) -> TrainedPolicy:
    """Trains and evaluates a policy as a run does, without TFX."""
    folder.mkdir(parents=True)
    data: dict[str, Any] = {"files": [str(file) for file in files]}
    if not files:
        data["source"] = config.data.source
    custom_config = {**config.trainer_settings.to_custom_config(), "data": data}
    model = folder / "model"
    began = time.monotonic()
    run_fn(
        SimpleNamespace(
            custom_config=custom_config, model_run_dir=str(folder), serving_model_dir=str(model)
        )
    )
    seconds = time.monotonic() - began
    record = json.loads((folder / "training.json").read_text())
    steps = config.trainer_settings.train.steps
    assert isinstance(steps, int)  # noqa: S101 - the config has a number
    best_after = round(record["best_epoch"] / EPOCHS * steps)
    return TrainedPolicy(model, seconds, best_after, measure(model, custom_config))


def online(folder: Path, seeds: Sequence[int], switches: Sequence[str], console: Console) -> None:
    """Trains with each switch and seed, and prints the mean returns and times."""
    table = Table("CartPole-v1, online", "mean return of 100 episodes", "seconds", "steps to best")
    for name, changed in SWITCHES.items():
        if switches and name not in switches:
            continue
        policies = []
        for seed in seeds:
            settings = [f"model.{key}={value}".lower() for key, value in changed.items()]
            config = load_config(CONFIG, [*settings, f"train.seed={seed}"])
            policies.append(train(folder / f"{name}-{seed}", config))
            policy = policies[-1]
            is_reached = policy.value >= REQUIRED_RETURN and policy.seconds <= SECONDS
            result = "reached" if is_reached else "NOT reached"
            console.print(
                f"{name}, seed {seed}: {policy.value:.1f} in {policy.seconds:.0f} s, best after"
                f" {policy.steps:,} steps: {result}",
                highlight=False,
            )
        table.add_row(
            name,
            ", ".join(f"{policy.value:.1f}" for policy in policies),
            ", ".join(f"{policy.seconds:.0f}" for policy in policies),
            f"{statistics.median(policy.steps for policy in policies):,.0f}",
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
    logs = replace(logs, rewards=_FALL_COST * logs.rewards)
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
        f" {logging_policy.value:.1f}; the policy that learnt from them {better.value:.1f}"
        f" ({low:+.1f} to {high:+.1f}), in {better.seconds:.0f} s; the policy that"
        f" learnt from shuffled rewards {worse.value:.1f}:"
        f" {'BLESSED' if verdict.blessed else 'not blessed'}",
        highlight=False,
    )


def first(logs: Steps) -> Steps:
    """Returns the first `LOGGED` transitions."""
    assert len(logs.actions) >= LOGGED  # noqa: S101 - `offline` logs enough
    return Steps(*(values[:LOGGED] for values in vars(logs).values()))


def main() -> None:
    """Runs the benchmarks that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--switches", nargs="*", default=[], help="the settings to run online; default: all"
    )
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
