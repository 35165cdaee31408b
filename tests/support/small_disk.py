"""Scripts that run where a folder is a disk of its own, small enough to be filled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import warm

ROOT = Path(__file__).parents[2]
# The user and mount namespaces are the script's own: the mount is gone with it.
_MOUNT = """
import ctypes, os, subprocess, sys
from pathlib import Path
sys.path.insert(0, {root!r})
user, group = os.geteuid(), os.getegid()
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
assert ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {{user}} 1")
Path("/proc/self/gid_map").write_text(f"0 {{group}} 1")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size={kilobytes}k", "tmpfs", {folder!r}], check=True)
"""
_ALONE = ["unshare", "--map-root-user", "--mount"]


def run_on_small_disk(
    script: str, folder: Path, kilobytes: int, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python code for which `folder`, which is empty, is a disk of so many kB."""
    folder.mkdir(exist_ok=True)
    mount = _MOUNT.format(root=str(ROOT), folder=str(folder), kilobytes=kilobytes)
    command = [sys.executable, "-c", mount + script, *arguments]
    return warm.run(command, capture_output=True, text=True)


def can_mount() -> bool:
    """Whether this machine lets its users mount in namespaces of their own."""
    try:
        command = [*_ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
