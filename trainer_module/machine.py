"""The CPU and memory limits of this process: its affinity, and its control groups (cgroups).

A machine may use cgroups v1, v2 or both; in v1 each resource has its own tree. The limits of a
group apply to all groups below the group.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def count_cores() -> int:
    """Returns the number of cores that this process may use, rounded up, at least 1."""
    affinity = len(os.sched_getaffinity(0))  # noqa: TID251
    return max(1, math.ceil(min([affinity, *map(_cores, _groups("cpu"))])))


def free_memory() -> int:
    """Returns the bytes of memory that this process may still allocate."""
    available = psutil.virtual_memory().available  # noqa: TID251
    return int(min([available, *map(_memory, _groups("memory"))]))


def total_memory() -> int:
    """Returns the bytes of memory that this process may use, including those in use."""
    total = psutil.virtual_memory().total  # noqa: TID251
    return int(min([total, *map(_memory_limit, _groups("memory"))]))


def _groups(resource: str) -> Iterator[Path]:
    """Yields the visible folders of this process's control groups and of their parents."""
    yield _CGROUPS
    for line in _read(_OWN_GROUPS):
        _, names, path = line.split(":", maxsplit=2)
        if names and resource not in names.split(","):
            continue
        tree = _CGROUPS / resource if names else _CGROUPS
        own = tree / path.lstrip("/")
        # A container with a cgroup namespace sees its own group as the root.
        yield from (group for group in (own, *own.parents) if group.is_relative_to(tree))


def _cores(group: Path) -> float:
    """Returns the CPU quota of a group in cores, or infinity for a group without a quota."""
    quota = [
        *_words(group / "cpu.max"),
        *_words(group / "cpu.cfs_quota_us"),
        *_words(group / "cpu.cfs_period_us"),
    ]
    # `max` and -1 mean no limit.
    if len(quota) != 2 or not all(word.isdigit() for word in quota):
        return math.inf
    return int(quota[0]) / int(quota[1])


def _memory(group: Path) -> float:
    """Returns the bytes that a group may still allocate, or infinity without a limit."""
    limit = _memory_limit(group)
    used = [*_words(group / "memory.current"), *_words(group / "memory.usage_in_bytes")]
    if not used or limit == math.inf:
        return math.inf
    words = _words(group / "memory.stat")
    statistics = dict(zip(words[::2], words[1::2], strict=True))
    # The kernel reclaims the page cache under memory pressure.
    reclaimable = statistics.get("total_inactive_file", statistics.get("inactive_file", "0"))
    return max(0, limit - int(used[0]) + int(reclaimable))


def _memory_limit(group: Path) -> float:
    """Returns the memory limit of a group in bytes, or infinity without a limit."""
    limit = [*_words(group / "memory.max"), *_words(group / "memory.limit_in_bytes")]
    return int(limit[0]) if limit and limit[0].isdigit() else math.inf


def _words(file: Path) -> list[str]:
    return [word for line in _read(file) for word in line.split()]


def _read(file: Path) -> list[str]:
    """Returns the lines of a file, or an empty list if the file cannot be read."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
