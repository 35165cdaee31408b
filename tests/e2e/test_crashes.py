"""Kills and collisions: nothing that was finished is lost, and the next run goes on from there."""

from __future__ import annotations

import time

import pytest
from e2e.conftest import Project

LONG = ("run", "--set", "train.epochs=400", "--set", "train.early_stopping={patience: 400}")


@pytest.fixture(scope="module")
def killed(project: Project) -> dict[str, str]:
    """A run killed in mid-training, while a second one was tried; what the second one said."""
    process = project.start(*LONG)
    try:
        deadline = time.monotonic() + 300
        while not _training(project):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        second = project.scopeline("run")
        assert process.poll() is None, "training ended before it could be killed"
    finally:
        process.kill()
        process.wait()
    return {"second": second.stderr, "code": str(second.returncode)}


def _training(project: Project) -> bool:
    """Whether the newest run is in its Trainer, and some epochs in."""
    logs = list((project.output / "digits").glob("pipeline_root/Trainer/model_run/*/checkpoints/*"))
    return bool(logs)


def test_second_run_at_once_is_refused(killed: dict[str, str]) -> None:
    assert killed["code"] == "2"
    assert "another run of `digits` is under way" in killed["second"]
    assert "--output" in killed["second"]
    assert "Traceback" not in killed["second"]


def test_killed_run_is_seen_in_its_summary(project: Project, killed) -> None:
    summary = project.summary("digits")
    assert summary["status"] == "running"
    assert [c["name"] for c in summary["components"]][-1] == "Transform"


def test_rerun_goes_on_after_the_kill(project: Project, killed) -> None:
    done = project.scopeline("run", "--set", "train.epochs=2", "--set", "evaluate.thresholds={}")
    assert done.returncode == 0, done.stdout + done.stderr
    states = project.states("digits")
    assert [states[name] for name in list(states)[:5]] == ["cached"] * 5
    assert states["Trainer"] == "ran"
    assert project.summary("digits")["reason"] == (
        "no thresholds are set, and no model is in service yet"
    )


def test_output_that_cannot_be_written_is_refused(project: Project) -> None:
    import subprocess

    # /sys refuses new folders to everyone, root included.
    command = [*project.command("run")[:-1], "/sys/scopeline"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "/sys/scopeline/digits: cannot write the output here" in done.stderr
    assert "--output" in done.stderr
    assert "Traceback" not in done.stderr
