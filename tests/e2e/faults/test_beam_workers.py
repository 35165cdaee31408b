"""A run whose data components share their work between processes, one of which is killed first."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import suppress

import psutil
import pytest

from tests.support.killing import children
from tests.support.project import Project

pytestmark = pytest.mark.slow

CONFIG = """
name: doors
data: {format: csv, path: "doors/*.csv", label: open, splits: {train: 3, eval: 1}}
task: binary
model: {kind: mlp}
train: {epochs: 3}
certificate: {enabled: false}
beam: {workers: 2}
"""
FILES, ROWS = 4, 60
WORKER = "components.beam_workers.processes"


@pytest.fixture(scope="module")
def doors(project: Project) -> Project:
    """A table of several files."""
    (project.folder / "doors").mkdir()
    for file in range(FILES):
        rows = [f"{row % 7 + file},{['oak', 'ash'][row % 2]},{row % 2}" for row in range(ROWS)]
        text = "\n".join(["width,wood,open", *rows])
        (project.folder / "doors" / f"{file}.csv").write_text(text + "\n")
    (project.folder / "doors.yaml").write_text(CONFIG)
    return project


def kill_worker(run: subprocess.Popen[str]) -> None:
    """Kills the first worker that a run starts."""
    deadline = time.monotonic() + 60
    while run.poll() is None and time.monotonic() < deadline:
        for process in children(run.pid, WORKER):
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getpgid(process.pid) == process.pid:
                    process.kill()
                    return
    raise AssertionError(f"no worker was started: {run.communicate()}")


def test_a_run_goes_on_after_one_that_lost_a_worker(doors: Project) -> None:
    run = doors.start("run", "--config", "doors.yaml")
    kill_worker(run)
    output, errors = run.communicate(timeout=120)
    assert run.returncode == 1, output + errors
    assert "was killed by SIGKILL (out of memory?)" in output
    assert "beam.workers: 1" in output
    assert "Traceback" not in output + errors
    assert doors.states("doors")["ExampleGen"] == "failed"

    done = doors.scopeline("run", "--config", "doors.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (counted,) = re.findall(r"StatisticsGen +ran .* train (\d+), eval (\d+)", done.stdout)
    assert sum(map(int, counted)) == FILES * ROWS
    assert doors.summary("doors")["metrics"]["auc"]["value"] > 0.9
    newest = max((doors.output / "doors" / "runs").iterdir())
    shared = (newest / "run.log").read_text().count("Beam runs in 2 processes")
    # ExampleGen, StatisticsGen, Transform and Evaluator.
    assert shared >= 4
    assert len(doors.versions("doors")) == 1
