"""Stops a run at a moment of it, and checks what is left: nothing is pushed after a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from components.pusher.versions import list_versions
from tests.support.killing import logs, survivors
from tests.support.project import Project

END_SECONDS = 60.0
"""A scheduler kills what has not ended by then."""
STILL_SECONDS = 0.02
"""In so long all threads of a run stand still, and a file system's clock, which is behind ours,
has come to where ours was."""
_TRANSFORM = "components.column_types.transform.Transform"
_SPLITS = 2


@dataclass(frozen=True)
class Stop:
    """A moment of a run, and the signal that comes then."""

    after: str
    """`start`; `transform`: its last file has been renamed; `push`: the model is being copied."""
    seconds: float
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.signal.name} {self.seconds:.3f} s after {self.after}"


@dataclass(frozen=True)
class Stopped:
    """How a run that was stopped has ended."""

    code: int
    output: str
    was_pushed: bool
    """Whether it had pushed when the signal came."""


def stop_run(
    project: Project, command: Iterable[str], stop: Stop, serving: Path | None = None
) -> Stopped:
    """Starts a run, stops it, and asserts that it is gone and has pushed nothing since."""
    serving = serving or project.output / "digits/serving/digits"
    earlier, before = logs(project), list_versions(serving)
    run = project.start(*command)
    _wait_for(stop, lambda: _has_come(stop, project, earlier, serving), run)
    family = _family(run.pid)
    sent = _send(run, stop.signal) if run.poll() is None else time.time()
    output, errors = run.communicate(timeout=END_SECONDS)
    assert not survivors(family), f"{stop}: {survivors(family)}"
    assert not list(serving.glob(".*")), "a half version"
    new = [version for version in list_versions(serving) if version not in before]
    for version in new:
        # The folder itself says when: what is written in it was before the copy.
        seconds = version.stat().st_ctime - sent
        assert seconds <= 0, f"{stop}: pushed {seconds:.3f} s after it"
    if not logs(project) - earlier:
        # While Python imports the command itself, nothing has begun, and a signal is Python's.
        assert not new
        return Stopped(130, output, False)
    assert "Traceback" not in output + errors, errors
    assert run.returncode in (0, 130), output + errors
    if run.returncode == 130:
        assert not new, output
        assert "interrupted in " in output
        assert project.summary("digits")["status"] == "interrupted"
    else:
        assert project.summary("digits")["status"] == "pushed"
    return Stopped(run.returncode, output, bool(new))


def _wait_for(stop: Stop, has_come: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Returns at the moment of a stop, or when the run has ended."""
    deadline = time.monotonic() + 300
    while run.poll() is None and not has_come():
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(stop.seconds)


def _has_come(stop: Stop, project: Project, earlier: set[Path], serving: Path) -> bool:
    if stop.after == "start":
        return True
    if stop.after == "push":
        return any(serving.glob(".incoming-*"))
    for log in logs(project) - earlier:
        _, _, after = log.read_text(errors="replace").partition(_TRANSFORM)
        return after.count(" Renamed ") >= _SPLITS
    return False


def _family(pid: int) -> list[psutil.Process]:
    try:
        run = psutil.Process(pid)
        return [run, *run.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _send(run: subprocess.Popen[str], number: signal.Signals) -> float:
    """Sends a signal to a run that stands still meanwhile, and gives the time.

    So it does nothing between the two. As a terminal does it, Ctrl-C goes to the whole group.
    """
    sent = time.time()
    try:
        os.kill(run.pid, signal.SIGSTOP)
        time.sleep(STILL_SECONDS)
        sent = time.time()
        time.sleep(STILL_SECONDS)
        if number == signal.SIGINT:
            os.killpg(run.pid, number)
        else:
            os.kill(run.pid, number)
        os.kill(run.pid, signal.SIGCONT)
    except ProcessLookupError:  # It has ended.
        pass
    return sent
