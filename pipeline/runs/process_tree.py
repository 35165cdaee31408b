"""Reads the processor time, memory and written bytes of a process and its descendants in /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

_PROC = Path("/proc")


@dataclass(frozen=True)
class Usage:
    """The resources that processes have used since their start."""

    cpu_seconds: float
    written_bytes: int
    """The bytes that the processes caused to be sent to storage."""


class ProcessTree:
    """A process and its descendants.

    A descendant remains in the tree if its parent ends.
    """

    def __init__(self, root: int) -> None:
        """Stores the arguments; reads nothing.

        Args:
          root: the id of the process.
        """
        self._root = root
        self._known: dict[int, bool] = {}
        """Whether each process of this machine is in the tree, by id."""
        self._newest = b""
        """The id of the newest process or thread of this machine at the last call."""

    def members(self) -> set[int]:
        """Returns the ids of the processes; some may have ended since the last process began.

        Only processes that have begun since the last call are read, as reading all processes of a
        machine takes too long for a sample.
        """
        try:
            newest = (_PROC / "loadavg").read_bytes().split()[-1]
            if newest != self._newest:
                self._update({int(path.name) for path in _PROC.iterdir() if path.name.isdigit()})
            self._newest = newest
        except OSError:
            pass  # The system has no /proc, or no free descriptor.
        return {pid for pid, belongs in self._known.items() if belongs}

    def _update(self, present: set[int]) -> None:
        self._known = {pid: known for pid, known in self._known.items() if pid in present}
        parents = {pid: _parent(pid) for pid in present - self._known.keys()}
        for pid in parents:
            self._known[pid] = self._belongs(pid, parents)

    def _belongs(self, pid: int, parents: dict[int, int]) -> bool:
        """Returns whether a process is the root or the descendant of a member."""
        visited = set()
        while pid != self._root and pid in parents and pid not in visited:
            visited.add(pid)  # An id that is used again may lead to a loop.
            pid = parents[pid]
        return pid == self._root or self._known.get(pid, False)

    def usage(self) -> Usage:
        """Returns the resources that the running processes, and processes that they have waited
        for, have used.
        """
        seconds, written = 0.0, 0
        for pid in self.members():
            try:
                process = psutil.Process(pid)
                seconds += sum(process.cpu_times()[:4])
                written += process.io_counters().write_bytes
            except psutil.Error:
                continue  # The process has ended, or runs as another user.
        return Usage(seconds, written)


def _parent(pid: int) -> int:
    """Returns the id of a process's parent, or 0 if the process has ended."""
    try:
        # The name of the command may contain spaces and brackets.
        return int((_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


@dataclass(frozen=True)
class Memory:
    """The resident memory of a process, in bytes."""

    now: int
    of_files: int
    """The part of `now` that holds pages of files, such as libraries."""
    highest: int
    """The most memory since the process has started its program."""


def read_memory(pid: int) -> Memory | None:
    """Returns the resident memory of a process, or None if the process has ended."""
    sizes = _read_sizes(pid, "status", b"VmRSS", b"RssFile", b"VmHWM")
    return Memory(sizes[b"VmRSS"], sizes[b"RssFile"], sizes[b"VmHWM"]) if sizes else None


def read_shared(pid: int) -> int:
    """Returns the bytes that count too often if the memory of forked processes is added.

    Of each page without a file that n processes share since a fork, this is the part 1 - 1/n. The
    result is 0 if the system does not report it. The kernel visits all pages, which takes some
    milliseconds per gigabyte.
    """
    sizes = _read_sizes(pid, "smaps_rollup", b"Anonymous", b"Pss_Anon")
    return sizes[b"Anonymous"] - sizes[b"Pss_Anon"] if sizes else 0


def _read_sizes(pid: int, file: str, *names: bytes) -> dict[bytes, int]:
    """Returns the sizes in bytes from lines such as `VmRSS: 12 kB`, or {} if a size is missing."""
    try:
        lines = (_PROC / str(pid) / file).read_bytes().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(b":")[::2] for line in lines)
    sizes = {name: int(value.split()[0]) << 10 for name, value in pairs if name in names}
    return sizes if len(sizes) == len(names) else {}
