"""A pod of the test executor: one process, with what it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from kfp_run import Attempt

GRACE_SECONDS = 0.1
"""Between the two signals that end a pod: the launcher handles none, and when it ends, which is at
once, so does the container, with all that still runs in it."""
CANNOT_START = 128
"""The exit code of a container without its program."""

Start = Callable[..., "subprocess.Popen[bytes]"]
Started = Callable[["subprocess.Popen[bytes]"], None]


def run_pod(
    attempt: Attempt, folder: Path, deadline: int, started: Started, start: Start = subprocess.Popen
) -> None:
    """Runs a pod to its end; one that takes longer than its deadline is stopped.

    Args:
      attempt: What to run; gets its exit code.
      folder: The working directory.
      deadline: activeDeadlineSeconds; 0 for none.
      started: Called with the process.
      start: Starts it.
    """
    with attempt.log_path.open("wb") as log:
        try:
            process = start(
                attempt.command,
                env=attempt.environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            log.write(f"cannot start {attempt.command[0]}: {error}\n".encode())
            attempt.exit_code = CANNOT_START
            return
    try:
        started(process)
        attempt.exit_code = process.wait(deadline or None)
    except subprocess.TimeoutExpired:
        attempt.timed_out = True
        attempt.exit_code = _stop(process)
    finally:
        kill(process)


def _stop(process: subprocess.Popen[bytes]) -> int:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        kill(process)
        return process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a container with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
