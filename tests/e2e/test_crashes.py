"""Kills and collisions: nothing that was finished is lost, and the next run goes on from there."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import warm
from e2e.conftest import SMALL, Project

LONG = ("run", "--set", "train.epochs=400", "--set", "train.early_stopping={patience: 400}")


@pytest.fixture(scope="module")
def killed(project: Project) -> dict[str, str]:
    """A run killed in mid-training, while a second one was tried; what the second one said."""
    process = project.start(*LONG)
    try:
        wait_for(lambda: bool(_checkpoints(project)), process)
        second = project.scopeline("run")
        assert process.poll() is None, "training ended before it could be killed"
    finally:
        process.kill()
        process.wait()
    return {"second": second.stderr, "code": str(second.returncode)}


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _checkpoints(project: Project) -> set[Path]:
    """What each training has once its first epoch has ended."""
    return set((project.output / "digits/pipeline_root/Trainer/backups").glob("*/checkpoint"))


def test_second_run_at_once_is_refused(killed: dict[str, str]) -> None:
    assert killed["code"] == "2"
    assert "another run of `digits` is under way" in killed["second"]
    assert "--output" in killed["second"]
    assert "Traceback" not in killed["second"]


def test_killed_run_is_seen_in_its_summary(project: Project, killed) -> None:
    summary = project.summary("digits")
    assert summary["status"] == "running"
    assert [c["name"] for c in summary["components"]][-1] == "Transform"


def test_stopped_run_says_that_it_was_stopped(project: Project, killed) -> None:
    before = len(_checkpoints(project))
    process = project.start(*LONG, "--set", "train.seed=2")
    wait_for(lambda: len(_checkpoints(project)) > before, process)
    process.send_signal(signal.SIGTERM)
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 130, said + errors
    assert "interrupted in Trainer\n" in said
    assert "the next run goes on from the components that are done" in said
    assert "Traceback" not in said + errors
    assert project.summary("digits")["status"] == "interrupted"


def test_rerun_goes_on_after_the_kill(project: Project, killed) -> None:
    changes = ("--set", SMALL, "--set", "train.epochs=2", "--set", "evaluate.thresholds={}")
    done = project.scopeline("run", *changes)
    assert done.returncode == 0, done.stdout + done.stderr
    states = project.states("digits")
    assert [states[name] for name in list(states)[:5]] == ["cached"] * 5
    assert states["Trainer"] == "ran"
    assert project.summary("digits")["reason"] == (
        "no thresholds are set, and no model is in service yet"
    )


def test_output_that_cannot_be_written_is_refused(project: Project) -> None:
    # /sys refuses new folders to everyone, root included.
    command = [*project.command("run")[:-1], "/sys/scopeline"]
    done = warm.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "/sys/scopeline/digits: cannot write the output here" in done.stderr
    assert "--output" in done.stderr
    assert "Traceback" not in done.stderr
