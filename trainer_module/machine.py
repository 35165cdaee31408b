"""What this process may use of its machine: by its affinity, and by the control groups of a
container, a pod or a service.

Linux has two versions of them, of which a machine may have both; in the first each resource has a
tree of groups of its own. What limits a group limits all those below it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def count_cores() -> int:
    """Returns the cores that this process may use, at least 1; a part of one counts as one."""
    allowed = len(os.sched_getaffinity(0))  # noqa: TID251
    return max(1, math.ceil(min([allowed, *map(_cores, _groups("cpu"))])))


def free_memory() -> int:
    """Bytes that this process may still take."""
    everybodys = psutil.virtual_memory().available  # noqa: TID251
    return int(min([everybodys, *map(_memory, _groups("memory"))]))


def _groups(resource: str) -> Iterator[Path]:
    """Yields the folders of this process's groups, and of all above them, that can be seen here."""
    yield _ROOT
    for line in _read(_OWN):
        _, names, path = line.split(":", maxsplit=2)
        if names and resource not in names.split(","):
            continue
        tree = _ROOT / resource if names else _ROOT
        own = tree / path.lstrip("/")
        # A container that has no names of its own for groups sees its group as the root.
        yield from (group for group in (own, *own.parents) if group.is_relative_to(tree))


def _cores(group: Path) -> float:
    """Those whose time a group may take; infinite where it sets no limit."""
    quota = [
        *_words(group / "cpu.max"),
        *_words(group / "cpu.cfs_quota_us"),
        *_words(group / "cpu.cfs_period_us"),
    ]
    # `max` and -1 say that there is none.
    if len(quota) != 2 or not all(word.isdigit() for word in quota):
        return math.inf
    return int(quota[0]) / int(quota[1])


def _memory(group: Path) -> float:
    """Bytes that a group may still take; infinite where it sets no limit."""
    limit = [*_words(group / "memory.max"), *_words(group / "memory.limit_in_bytes")]
    used = [*_words(group / "memory.current"), *_words(group / "memory.usage_in_bytes")]
    if not limit or not used or not limit[0].isdigit():
        return math.inf
    words = _words(group / "memory.stat")
    known = dict(zip(words[::2], words[1::2], strict=True))
    # What files are remembered in is given up when somebody needs it.
    given_up = known.get("total_inactive_file", known.get("inactive_file", "0"))
    return max(0, int(limit[0]) - int(used[0]) + int(given_up))


def _words(file: Path) -> list[str]:
    return [word for line in _read(file) for word in line.split()]


def _read(file: Path) -> list[str]:
    """Returns the lines of a file; none where it does not exist, or may not be read."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
