"""How many processes a pipeline is worth on this machine."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from tfx.dsl.io import fileio

from components.beam_workers.options import AUTO

_BYTES = 16 << 20
"""Of files, for each process: below that, starting one takes longer than it saves."""
_MEMORY = 1 << 30
"""Bytes that a process may take beside what it shares with this one: models, batches, sums."""
_LOOKED_AT = 1000
"""Files whose sizes are asked for; of more these are the sample."""
_GPUS = "/dev/nvidia[0-9]*"
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Work:
    """What processes can share."""

    elements: int
    """That Beam deals out."""
    files: Sequence[str]
    asks_models: bool = False
    """A GPU does that faster than cores do, and is one process's."""


def choose_workers(work: Sequence[Work], most: int = AUTO) -> int:
    """How many processes; 1 is this one alone.

    Args:
      work: of a pipeline.
      most: as many as are asked for, where there are cores and elements for them; AUTO for as many
        as pay and find memory.
    """
    elements = max((one.elements for one in work), default=1)
    fitting = min(elements, count_cores())
    if most != AUTO:
        return max(1, min(most, fitting))
    if any(one.asks_models for one in work) and glob.glob(_GPUS):
        return 1
    by_bytes = sum(_size(one.files) for one in work) // _BYTES
    return max(1, min(fitting, by_bytes, free_memory() // _MEMORY))


def note_cores(workers: int | str) -> list[str]:
    """What people should know who ask for more processes than this machine has cores for.

    Args:
      workers: as the config has it.
    """
    cores = count_cores()
    if isinstance(workers, str) or workers <= cores:
        return []
    noun = "core" if cores == 1 else "cores"
    return [f"beam.workers: {workers}, and this machine has {cores} {noun}: more would be slower"]


def count_cores() -> int:
    """The cores that this process may use, by its affinity and its container's quota."""
    cores = len(os.sched_getaffinity(0))
    quota = _of_cgroup("cpu.max")
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, cores)


def free_memory() -> int:
    """Bytes that this machine, or this process's container, still has."""
    free = psutil.virtual_memory().available
    limit, used = _of_cgroup("memory.max"), _of_cgroup("memory.current")
    if limit and used and limit[0].isdigit():
        words = _of_cgroup("memory.stat")
        # What files are remembered in is given up when somebody needs it.
        given_up = dict(zip(words[::2], words[1::2], strict=True)).get("inactive_file", "0")
        free = min(free, int(limit[0]) - int(used[0]) + int(given_up))
    return max(0, free)


def _of_cgroup(name: str) -> list[str]:
    """What the container's control group says; nothing where there is none."""
    try:
        return (_CGROUP / name).read_text().split()
    except OSError:
        return []


def _size(files: Sequence[str]) -> int:
    """Bytes of all files, judged by the first of many."""
    looked_at = files[:_LOOKED_AT]
    known = sum(fileio.stat(file).length for file in looked_at)
    return known * len(files) // max(1, len(looked_at))
