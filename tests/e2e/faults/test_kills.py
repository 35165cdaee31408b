"""kill -9 of each kind of process in mid-training, and stops of runs, at random moments.

Training goes on, nothing is left behind, and nothing is pushed after a stop. `SCOPELINE_KILLS=20
SCOPELINE_STOPS=100 make test-long ARGS=tests/e2e/faults/test_kills.py` does it so often. `make
test` kills and stops a run in `test_crashes.py`, at the places where a stop was lost once.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass

import pytest

from tests.support.killing import (
    EPOCHS,
    KILLS,
    arguments,
    check_whole_training,
    children,
    logs,
    survivors,
    wait_for_epoch,
)
from tests.support.project import SMALL, Project
from tests.support.stopping import Stop, stop_run

pytestmark = pytest.mark.slow
STOPS = int(os.environ.get("SCOPELINE_STOPS", "20"))
STOPS_A_RUN = 3
"""So often a command is stopped, before it is left to end."""
LONGEST = {"start": 25.0, "transform": 0.3, "push": 0.3}
"""Seconds after each moment; a run may be over by then."""


@dataclass(frozen=True)
class Victim:
    """What is killed."""

    strategy: str
    role: str
    """`worker 0`, `parameter server 0`, `the chief`, `the trainer`, or `runner`."""

    def __str__(self) -> str:
        return f"{self.role} of {self.strategy}"


VICTIMS = [
    Victim("mirrored", "the trainer"),
    Victim("multi_worker_mirrored", "worker 0"),
    Victim("multi_worker_mirrored", "worker 1"),
    Victim("parameter_server", "the chief"),
    Victim("parameter_server", "worker 1"),
    Victim("parameter_server", "parameter server 0"),
    Victim("mirrored", "runner"),
    Victim("multi_worker_mirrored", "runner"),
]


def rounds() -> list[tuple[Victim, int]]:
    """Victims, and the epoch after which each is killed."""
    generator = random.Random(KILLS)  # noqa: S311
    return [(VICTIMS[i % len(VICTIMS)], generator.randint(1, EPOCHS - 2)) for i in range(KILLS)]


@pytest.mark.parametrize(("victim", "epoch"), rounds(), ids=str)
def test_training_goes_on_after_a_kill(
    project: Project, victim: Victim, epoch: int, request: pytest.FixtureRequest
) -> None:
    seed = 1 + [item.name for item in request.session.items].index(request.node.name)
    command = arguments(victim.strategy, seed)
    earlier = logs(project)
    run = project.start(*command)
    wait_for_epoch(project, run, epoch, earlier)
    # Not always at the end of an epoch.
    time.sleep(random.Random(seed).uniform(0, 0.3))  # noqa: S311
    processes = children(run.pid)
    assert processes, run.communicate()
    if victim.role == "runner":
        run.kill()
        run.communicate()
        time.sleep(1)
        assert not survivors(processes)
        said = project.scopeline(*command).stdout
        assert project.states("digits")["Transform"] == "cached"
    else:
        kill(run.pid, victim.role)
        said, errors = run.communicate(timeout=240)
        assert run.returncode in (0, 3), said + errors
        assert f"note: {victim.role} was killed by SIGKILL, and training resumed" in said
    restarted_alone = victim == Victim("parameter_server", "worker 1")
    check_whole_training(project, victim.strategy, resumed=not restarted_alone)
    assert "pushed" in said or "worse than in service" in said
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


def stops() -> list[Stop]:
    """The same ones for the same number."""
    generator = random.Random(STOPS)  # noqa: S311
    found = []
    for _ in range(STOPS):
        after = generator.choice(list(LONGEST))
        seconds = generator.uniform(0, LONGEST[after])
        found.append(Stop(after, seconds, generator.choice([signal.SIGTERM, signal.SIGINT])))
    return found


def command(number: int) -> list[str]:
    """A run whose Transform, and all after it, has something new to do."""
    return [
        *("run", "--set", SMALL, "--set", "train.epochs=1"),
        *("--set", f"features.image.height={8 + number}"),
        *("--set", "evaluate.thresholds={accuracy: {min: 0, tolerance: 1}}"),
    ]


@pytest.mark.timeout(max(900, STOPS * 60))
def test_nothing_is_pushed_after_a_stop_and_the_next_run_goes_on(project: Project) -> None:
    number = stopped_before = 0
    for stop in stops():
        stopped = stop_run(project, command(number), stop)
        print(f"{stop}: {stopped.code}, pushed: {stopped.was_pushed}", flush=True)
        stopped_before += 1
        if stopped.code == 0 or stopped_before == STOPS_A_RUN:
            done = project.scopeline(*command(number))
            assert done.returncode == 0, done.stdout + done.stderr
            number, stopped_before = number + 1, 0
