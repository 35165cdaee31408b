"""SIGTERM and Ctrl-C at random moments of runs.

`SCOPELINE_STOPS=100 make test ARGS=tests/e2e/faults/test_stops.py` stops so many; always, a run is
stopped in `test_crashes.py`, at the places where a stop was lost once.
"""

from __future__ import annotations

import os
import random
import signal

import pytest
from e2e.conftest import SMALL, Project
from e2e.faults.stopping import Stop, stop_run

STOPS = int(os.environ.get("SCOPELINE_STOPS", "0"))
STOPS_A_RUN = 3
"""So often a command is stopped, before it is left to end."""
LONGEST = {"start": 25.0, "transform": 0.3, "push": 0.3}
"""Seconds after each moment; a run may be over by then."""


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


@pytest.mark.skipif(not STOPS, reason="SCOPELINE_STOPS does not say how many")
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
