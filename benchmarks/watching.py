"""A run of ours as a process that is watched: seconds per component, and the memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
TOTAL = "whole process"
_LOOKS_EVERY = 0.2


@dataclass(frozen=True)
class Cost:
    """What a component costs."""

    seconds: float
    peak: int
    """Bytes of the largest process while it ran; memory that forks share counts in each."""


def run_watched(config: Path | str, output: Path, settings: Sequence[str]) -> dict[str, Cost]:
    """What each component of `local_runner.py run` costs, and the whole.

    A run that fails ends the program with what it said.

    Args:
      config: the YAML file.
      output: an empty folder.
      settings: `key=value`, each in the place of what the file says.
    """
    command = [sys.executable, "local_runner.py", "run", "--config", str(config)]
    command += ["--output", str(output)]
    for setting in settings:
        command += ["--set", setting]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT
        )
        # By how many components had ended: what they are called is known once they have.
        peaks: dict[int, int] = defaultdict(int)
        while running.poll() is None:
            ended = len(_components(output))
            peaks[ended] = max(peaks[ended], _largest(running.pid))
            time.sleep(_LOOKS_EVERY)
        seconds = time.monotonic() - began
        if running.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{said.read()[-4000:]}")
    found = {
        name: Cost(spent, peaks[number])
        for number, (name, spent) in enumerate(_components(output).items())
    }
    return found | {TOTAL: Cost(seconds, max(peaks.values()))}


def _components(output: Path) -> dict[str, float]:
    """The seconds of those that have ended."""
    for summary in output.glob("*/runs/*/summary.json"):
        return {
            one["name"]: one["seconds"] for one in json.loads(summary.read_text())["components"]
        }
    return {}


def _largest(pid: int) -> int:
    """Bytes of the largest process among one and those below it."""
    sizes = [0]
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            sizes.append(one.memory_info().rss)
    except psutil.NoSuchProcess:
        pass  # Some end while they are looked at.
    return max(sizes)
