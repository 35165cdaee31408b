"""Runs a pipeline in a monitored process: seconds and memory per component."""

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

ROOT = Path(__file__).parent.parent.parent
TOTAL = "whole process"
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Cost:
    """The cost of a component."""

    seconds: float
    cpu: float
    """The CPU seconds of all processes, which depend less on other load on the machine."""
    peak: int
    """The memory in bytes of the largest process during the component.

    Memory that forks share counts in each process."""

    @property
    def cells(self) -> tuple[str, str, str]:
        """The cells of a table, with the memory in MiB."""
        return f"{self.seconds:.1f}", f"{self.cpu:.1f}", f"{self.peak >> 20:,}"


def run_watched(config: Path | str, output: Path, settings: Sequence[str]) -> dict[str, Cost]:
    """Returns the cost of each component of `local_runner.py run`, and of the whole run.

    If the run fails, the program exits and prints the output of the run.

    Args:
      config: the YAML file.
      output: an empty folder.
      settings: overrides of the config, `key=value` each.
    """
    command = [sys.executable, "local_runner.py", "run", "--config", str(config)]
    command += ["--output", str(output)]
    for setting in settings:
        command += ["--set", setting]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        running = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        # The keys are numbers of completed components, because names are known only after
        # completion.
        peaks: dict[int, int] = defaultdict(int)
        used: dict[int, float] = defaultdict(float)
        while running.poll() is None:
            ended = len(_components(output))
            now = _measure_process(running.pid)
            peaks[ended] = max(peaks[ended], now.peak)
            used[ended] = max(used[ended], now.cpu)
            time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - began
        if running.returncode:
            log.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{log.read()[-4000:]}")
    costs, previous_cpu = {}, 0.0
    for number, (name, component_seconds) in enumerate(_components(output).items()):
        cpu = max(used[number], previous_cpu)
        costs[name] = Cost(component_seconds, cpu - previous_cpu, peaks[number])
        previous_cpu = cpu
    return costs | {TOTAL: Cost(seconds, max(used.values()), max(peaks.values()))}


def _components(output: Path) -> dict[str, float]:
    """Returns the seconds of each completed component, by name."""
    for summary in output.glob("*/runs/*/summary.json"):
        return {c["name"]: c["seconds"] for c in json.loads(summary.read_text())["components"]}
    return {}


def _measure_process(pid: int) -> Cost:
    """Returns the CPU seconds of a process and its descendants so far, and their current memory."""
    sizes, cpu_seconds = [0], 0.0
    try:
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            sizes.append(member.memory_info().rss)
            # The times include descendants that have ended.
            cpu_seconds += sum(member.cpu_times()[:4])
    except psutil.NoSuchProcess:
        pass  # A process may end at any time.
    return Cost(0.0, cpu_seconds, max(sizes))
