"""Runs a command as the shipped manifest runs it: with so much memory, and as root by name alone.

    python -m tools.siege.confined MEGABYTES CGROUP COMMAND...

CGROUP is a folder of the kernel's, or `-` where the limit is one of the process (RLIMIT_DATA).
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
"""PR_CAPBSET_DROP."""
_CAPABILITIES = 64
_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class MemoryLimit:
    """How much memory the processes of a server may have together."""

    megabytes: int
    cgroup: Path | None
    """None where the machine lets us make none: each process has the limit then."""

    @property
    def how(self) -> str:
        """What enforces it."""
        if self.cgroup is None:
            return "RLIMIT_DATA of each process, as no cgroup can be made here"
        return "a cgroup (v1)" if self.cgroup.parent == _V1 else "a cgroup (v2)"

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed for it."""
        if self.cgroup is None:
            return 0
        name = "memory.oom_control" if self.cgroup.parent == _V1 else "memory.events"
        lines = (self.cgroup / name).read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def command(self, command: list[str]) -> list[str]:
        """Returns a command under it."""
        where = str(self.cgroup or "-")
        return [sys.executable, str(Path(__file__)), str(self.megabytes), where, *command]


@contextmanager
def limited(megabytes: int) -> Iterator[MemoryLimit]:
    """Yields a limit, by a cgroup of version 2 or 1 where this machine lets us make one."""
    cgroup = _make_cgroup(_V2, "memory.max", megabytes)
    cgroup = cgroup or _make_cgroup(_V1, "memory.limit_in_bytes", megabytes)
    try:
        yield MemoryLimit(megabytes, cgroup)
    finally:
        if cgroup is not None:
            with suppress(OSError):  # Who is left in it is told as such.
                cgroup.rmdir()


def _make_cgroup(root: Path, limit: str, megabytes: int) -> Path | None:
    cgroup = root / f"scopeline-siege-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError:
        return None
    try:
        # Without the memory controller, the file is not there.
        with (cgroup / limit).open("r+") as file:
            file.write(str(megabytes << 20))
    except OSError:
        cgroup.rmdir()
        return None
    with suppress(OSError):  # As on Kubernetes, nothing is swapped out. Version 1 has no such file.
        (cgroup / "memory.swap.max").write_text("0")
    return cgroup


def main() -> None:
    """Confines this process, and becomes the command."""
    megabytes, cgroup, *command = sys.argv[1:]
    if cgroup == "-":
        resource.setrlimit(resource.RLIMIT_DATA, (int(megabytes) << 20,) * 2)
    else:
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
    for capability in range(_CAPABILITIES):  # Refused where there is nothing to drop.
        ctypes.CDLL(None).prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    os.execv(command[0], command)  # noqa: S606 - a list, without a shell


if __name__ == "__main__":
    main()
