"""Stops, kills and collisions: what was finished stays, and the next run goes on from there."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from components.pusher.versions import list_versions
from tests.support import warm
from tests.support.killing import (
    arguments,
    backups,
    check_whole_training,
    children,
    logs,
    survivors,
    wait_for_epoch,
)
from tests.support.project import Project, wait_until
from tests.support.stopping import Stop, Stopped, stop_run

pytestmark = pytest.mark.slow

TRAINING = arguments("mirrored", seed=1)
LONG = [*arguments("mirrored", seed=2), "--set", "train.epochs=400"]


@dataclass(frozen=True)
class Killed:
    """A run that was killed in mid-training, and a second one that was tried while it lasted."""

    second: subprocess.CompletedProcess[str]
    processes: list[psutil.Process]
    """Those that trained."""
    before: list[Path]
    """The temporary files that were left by the run that was stopped before it."""


@pytest.fixture(scope="module")
def stopped(project: Project) -> Stopped:
    """A run that was stopped at the end of Transform, in whose destructors a stop was lost once."""
    return stop_run(project, TRAINING, Stop("transform", 0.05, signal.SIGTERM))


@pytest.fixture(scope="module")
def killed(project: Project, stopped: Stopped) -> Killed:
    earlier, before = logs(project), list(project.temporary.iterdir())
    process = project.start(*TRAINING)
    try:
        # The second one comes after the first holds the lock, or it would be the run.
        wait_until(lambda: bool(logs(project) - earlier), process)
        second = project.scopeline("run")
        wait_for_epoch(project, process, epoch=5, earlier=earlier)
        processes = children(process.pid)
        assert processes, "training ended before it could be killed"
    finally:
        process.kill()
        process.wait()
    return Killed(second, processes, before)


def test_stop_at_the_end_of_a_component_is_not_lost(stopped: Stopped) -> None:
    assert stopped.code == 130
    assert "the next run continues after the finished components" in stopped.output


def test_second_run_at_once_is_refused(killed: Killed) -> None:
    assert killed.second.returncode == 75
    assert "another run of `digits` is under way" in killed.second.stderr
    assert "--output" in killed.second.stderr
    assert "Traceback" not in killed.second.stderr


def test_nothing_trains_on_without_its_run(killed: Killed) -> None:
    wait_until(lambda: not survivors(killed.processes), seconds=10)


def test_killed_run_is_seen_in_its_summary(project: Project, killed: Killed) -> None:
    summary = project.summary("digits")
    assert summary["status"] == "running"
    assert [c["name"] for c in summary["components"]][-1] == "Transform"


def test_training_goes_on_where_it_was_killed(project: Project, killed: Killed) -> None:
    left = list(project.temporary.rglob("__autograph_generated_file*"))
    done = project.scopeline(*TRAINING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (killed.before, list(project.temporary.iterdir())) == ([], [])
    assert left, "which go with the next run"
    states = project.states("digits")
    assert [states[name] for name in list(states)[:5]] == ["cached"] * 5
    assert (states["Trainer"], states["Pusher"]) == ("ran", "ran")
    check_whole_training(project, "mirrored", resumed=True)


def test_stopped_run_says_that_it_was_stopped(project: Project, killed: Killed) -> None:
    earlier = set(backups(project))
    process = project.start(*LONG)
    wait_until(lambda: bool(set(backups(project)) - earlier), process)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, output + errors
    assert "interrupted in Trainer\n" in output
    assert "the next run continues after the finished components" in output
    assert "Traceback" not in output + errors
    assert project.summary("digits")["status"] == "interrupted"
    assert project.states("digits")["Trainer"] == "interrupted"


def test_stop_in_a_push_prevents_it_or_comes_too_late(project: Project, killed: Killed) -> None:
    serving = project.folder / "elsewhere"
    command = [*TRAINING, "--set", f"push.directory={serving}"]
    stopped = stop_run(project, command, Stop("push", 0.0, signal.SIGINT), serving)
    assert stopped.was_pushed == (stopped.code == 0)
    done = project.scopeline(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list_versions(serving)) == 1


def test_output_that_cannot_be_written_is_refused(project: Project) -> None:
    # /sys refuses new folders to everyone, root included.
    command = [*project.command("run")[:-1], "/sys/scopeline"]
    done = warm.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "/sys/scopeline/digits: cannot write the output here" in done.stderr
    assert "--output" in done.stderr
    assert "Traceback" not in done.stderr
