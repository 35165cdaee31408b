"""kill -9 of each kind of process in mid-training: training goes on, and nothing is left behind.

`SCOPELINE_KILLS=20 make test ARGS=tests/e2e/faults/test_kills.py` kills so many, at random
moments. A run is always killed in `test_crashes.py`; workers are lost as pods, in other tests.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from e2e.conftest import Project
from e2e.faults.killing import (
    EPOCHS,
    KILLS,
    ON_REQUEST,
    VICTIMS,
    Victim,
    arguments,
    check_whole_training,
    children,
    logs,
    survivors,
    wait_for_epoch,
)


def rounds() -> list[tuple[Victim, int]]:
    """Victims, and the epoch after which each is killed."""
    generator = random.Random(KILLS)  # noqa: S311
    return [(VICTIMS[i % len(VICTIMS)], generator.randint(1, EPOCHS - 2)) for i in range(KILLS)]


@ON_REQUEST
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
        assert f"note: {victim.role} was killed by SIGKILL, and training went on" in said
    restarted_alone = victim == Victim("parameter_server", "worker 1")
    check_whole_training(project, victim.strategy, resumed=not restarted_alone)
    assert "pushed" in said or "not worse than in service" in said
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
