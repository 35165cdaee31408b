"""A scheduler that starts `fake_runner.py`, as a process: `once` or `serve`, configs, the output.

The libraries of `faketime` set its clock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from pipeline.clock import system_clock
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once, serve

RUNNER = (sys.executable, str(Path(__file__).with_name("fake_runner.py")))
FAKETIME = shutil.which("faketime")


def command(mode: str, *configs: Path, output: Path) -> list[str]:
    """The command that starts one."""
    return [sys.executable, __file__, mode, *map(str, configs), str(output)]


def fake_clock(offset_file: Path) -> dict[str, str]:
    """An environment whose wall clock is off by what a file says, such as `+2h`, at any moment."""
    preload = subprocess.run(
        [str(FAKETIME), "-f", "+0", "printenv", "LD_PRELOAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return os.environ | {
        "LD_PRELOAD": preload,
        "FAKETIME_TIMESTAMP_FILE": str(offset_file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def main() -> int:
    # Where libfaketime leaves the monotonic clock alone, it breaks the call that this one makes.
    time.sleep = _sleep
    mode, *files = sys.argv[1:]
    *configs, output = map(Path, files)
    pipelines, lock_file = load_pipelines(configs, [], output), output / "scheduler.lock"
    if mode == "once":
        return check_once(pipelines, lock_file, RUNNER, system_clock)
    serve(pipelines, lock_file, RUNNER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
