"""A training in which a process is killed by SIGKILL goes on, and leaves no process behind.

`test_crashes.py` kills and stops whole runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from tests.support.killing import (
    arguments,
    check_whole_training,
    children,
    logs,
    survivors,
    wait_for_epoch,
)
from tests.support.project import Project

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Victim:
    """What is killed."""

    strategy: str
    role: str
    """`worker 0`, `parameter server 0`, or `the chief`."""

    def __str__(self) -> str:
        return f"{self.role} of {self.strategy}"


VICTIMS = [
    Victim("multi_worker_mirrored", "worker 1"),
    Victim("parameter_server", "worker 1"),
]
KILLED_AFTER = 5
"""Epochs."""


@pytest.mark.parametrize("victim", VICTIMS, ids=str)
def test_training_goes_on_after_a_kill(project: Project, victim: Victim) -> None:
    seed = 1 + VICTIMS.index(victim)
    command = arguments(victim.strategy, seed)
    earlier = logs(project)
    run = project.start(*command)
    wait_for_epoch(project, run, KILLED_AFTER, earlier)
    processes = children(run.pid)
    assert processes, run.communicate()
    kill(run.pid, victim.role)
    output, errors = run.communicate(timeout=240)
    assert run.returncode in (0, 3), output + errors
    assert f"{victim.role} was killed by SIGKILL" in output
    restarted_alone = victim == Victim("parameter_server", "worker 1")
    check_whole_training(project, victim.strategy, resumed=not restarted_alone)
    assert not survivors(processes)


def kill(runner: int, role: str) -> None:
    """Kills the process with that role; not the one beside it that watches for the runner."""
    (task,) = [
        process
        for process in children(runner)
        if " ".join(process.cmdline()).rstrip().endswith(role)
        and os.getpgid(process.pid) == process.pid
    ]
    task.kill()
