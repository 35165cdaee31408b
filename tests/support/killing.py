"""Finds the processes of a training, and kills one in the middle of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

from tests.support.project import Project, wait_until

CHILD = "components.trainer.worker"
EPOCHS = 25
STEPS_PER_EPOCH = {"multi_worker_mirrored": 12}
"""Of the 1,442 examples in batches of 64: 23, or of 128 with two workers in step."""
SETTINGS = {
    "train.epochs": str(EPOCHS),
    "train.early_stopping": "null",
    "train.backup_steps": "null",
    "model.filters": "[4]",
    "model.hidden_units": "[16]",
    "evaluate.thresholds": "{accuracy: {min: 0.8}}",
    "certificate": "false",
}
"""A training of digits that is long enough to be hit, and good enough to be pushed."""


def arguments(strategy: str, seed: int) -> list[str]:
    """The command line of a run whose training is a new one for each seed."""
    settings = SETTINGS | {"train.strategy": strategy, "train.seed": str(seed)}
    return ["run", *(part for item in settings.items() for part in ("--set", "=".join(item)))]


def children(runner: int, module: str = CHILD) -> list[psutil.Process]:
    """The processes of a module that work for a runner, with the watchers beside them."""
    try:
        below = psutil.Process(runner).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in below if module in " ".join(_command(process))]


def survivors(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; an orphan that nobody reaps does not."""
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def logs(project: Project) -> set[Path]:
    """The logs of all runs."""
    return set((project.output / "digits" / "runs").glob("*/run.log"))


def backups(project: Project) -> list[Path]:
    """What trainings keep to go on from."""
    return list((project.output / "digits/pipeline_root/Trainer/backups").glob("*"))


def wait_for_epoch(
    project: Project, run: subprocess.Popen[str], epoch: int, earlier: set[Path]
) -> None:
    """Returns when a log that is not among the earlier ones shows that many epochs."""
    words = f"epoch {epoch} of {EPOCHS}"

    def is_logged() -> bool:
        return any(words in log.read_text(errors="replace") for log in logs(project) - earlier)

    wait_until(is_logged, run)


def check_whole_training(project: Project, strategy: str, *, resumed: bool) -> None:
    """Asserts that the newest run trained to the end, as if nothing had been killed."""
    training = project.summary("digits")["training"]
    assert training["epochs"] == EPOCHS
    assert training["steps"] == EPOCHS * STEPS_PER_EPOCH.get(strategy, 23)
    assert len(training["history"]["loss"]) == EPOCHS
    assert (training["resumed_at_step"] > 0) is resumed
    assert not backups(project), "a finished training leaves no backup"
