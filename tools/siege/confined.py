"""Runs a command under the memory limit and capabilities of the shipped manifest.

    python -m tools.siege.confined MEGABYTES CGROUP COMMAND...

CGROUP is the folder of a cgroup, or `-` for a limit of the process itself (RLIMIT_DATA).
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_DROP_CAPABILITY = 24
"""The option PR_CAPBSET_DROP of prctl."""
_CAPABILITIES = 64
_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class MemoryLimit:
    """The limit of the memory of a server's processes."""

    megabytes: int
    cgroup: Path | None
    """The folder of the cgroup, or None if this machine permits no cgroup.

    In this case the limit applies to each process."""

    @property
    def mechanism(self) -> str:
        """A description of the mechanism that enforces the limit."""
        if self.cgroup is None:
            return "RLIMIT_DATA of each process, because this machine permits no cgroup"
        return "a cgroup (v1)" if self.cgroup.parent == _V1 else "a cgroup (v2)"

    @property
    def kills(self) -> int:
        """The number of processes that the kernel has killed for lack of memory."""
        if self.cgroup is None:
            return 0
        name = "memory.oom_control" if self.cgroup.parent == _V1 else "memory.events"
        lines = (self.cgroup / name).read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def command(self, command: list[str]) -> list[str]:
        """Returns a command that runs under the limit."""
        where = str(self.cgroup or "-")
        return [sys.executable, str(Path(__file__)), str(self.megabytes), where, *command]


@contextmanager
def limit_memory(megabytes: int) -> Iterator[MemoryLimit]:
    """Yields a memory limit, enforced by a cgroup (version 2 or 1) if this machine permits one."""
    cgroup = _make_cgroup(_V2, "memory.max", megabytes)
    cgroup = cgroup or _make_cgroup(_V1, "memory.limit_in_bytes", megabytes)
    try:
        yield MemoryLimit(megabytes, cgroup)
    finally:
        if cgroup is not None:
            with suppress(OSError):  # `start_siege` reports remaining processes.
                cgroup.rmdir()


def _make_cgroup(root: Path, limit: str, megabytes: int) -> Path | None:
    cgroup = root / f"scopeline-siege-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError:
        return None
    try:
        # The file only exists with the memory controller.
        with (cgroup / limit).open("r+") as file:
            file.write(str(megabytes << 20))
    except OSError:
        cgroup.rmdir()
        return None
    with suppress(OSError):  # Kubernetes has no swap; cgroups v1 has no such file.
        (cgroup / "memory.swap.max").write_text("0")
    return cgroup


def main() -> None:
    """Limits this process, and replaces it with the command."""
    megabytes, cgroup, *command = sys.argv[1:]
    if cgroup == "-":
        resource.setrlimit(resource.RLIMIT_DATA, (int(megabytes) << 20,) * 2)
    else:
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
    for capability in range(_CAPABILITIES):  # Missing capabilities are ignored.
        ctypes.CDLL(None).prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    os.execv(command[0], command)  # noqa: S606 - a list, without a shell


if __name__ == "__main__":
    main()
