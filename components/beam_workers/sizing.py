"""How many processes a pipeline is worth on this machine."""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence

from tfx.dsl.io import fileio

from components.beam_workers.options import AUTO, Workers
from components.spreading import SpreadFiles
from trainer_module.errors import counted
from trainer_module.machine import count_cores, free_memory

_BYTES = 32 << 20
"""Of files, for each process: below that, starting one takes longer than it saves."""
_MEMORY = 1 << 30
"""Bytes that a process may take beside what it shares with this one: models, batches, sums."""
_LOOKED_AT = 100
"""Files whose sizes are asked for; of more these are a sample, as a store far away takes long."""
_GPUS = "/dev/nvidia[0-9]*"


def choose_workers(work: Sequence[SpreadFiles], most: Workers = AUTO) -> int:
    """How many processes; 1 is this one alone.

    Args:
      work: what a pipeline begins with.
      most: as many as are asked for, where there are cores and elements for them; AUTO for as many
        as pay and find memory.
    """
    elements = max((len(one.elements) for one in work), default=1)
    fitting = min(elements, count_cores())
    if most != AUTO:
        return max(1, min(most, fitting))
    # A GPU asks models faster than cores do, and is one process's.
    if fitting == 1 or (any(one.asks_models for one in work) and glob.glob(_GPUS)):
        return 1
    by_bytes = sum(_size(one.files) for one in work) // _BYTES
    return max(1, min(fitting, by_bytes, free_memory() // _MEMORY))


def note_cores(workers: Workers) -> list[str]:
    """What people should know who ask for more processes than this machine has cores for.

    Args:
      workers: as the config has it.
    """
    cores = count_cores()
    if workers == AUTO or workers <= cores:
        return []
    has = counted(cores, "core")
    return [f"beam.workers: {workers}, and this machine has {has}: more would be slower"]


def _size(files: Sequence[str]) -> int:
    """Bytes of all files, judged by some of many."""
    looked_at = files[:: math.ceil(len(files) / _LOOKED_AT) or 1]
    return sum(map(_size_of, looked_at)) * len(files) // max(1, len(looked_at))


def _size_of(file: str) -> int:
    """Bytes of a file; none of one that has just been deleted, of which its reader will tell."""
    try:
        return int(fileio.stat(file).length)
    except fileio.NotFoundError:
        return 0
