"""Scripts that run where a folder is a disk of its own, small enough to be filled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MOUNT = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, {root!r})
subprocess.run(["mount", "-t", "tmpfs", "-o", "size={kilobytes}k", "tmpfs", {folder!r}], check=True)
"""
# A mount namespace of the script's own: the mount is gone with it.
_ALONE = ["unshare", "--map-root-user", "--mount"]


def run_on_small_disk(
    script: str, folder: Path, kilobytes: int, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python code for which `folder`, which is empty, is a disk of so many kB."""
    folder.mkdir(exist_ok=True)
    mount = _MOUNT.format(root=str(ROOT), folder=str(folder), kilobytes=kilobytes)
    return subprocess.run(
        [*_ALONE, sys.executable, "-c", mount + script, *arguments], capture_output=True, text=True
    )


def can_mount() -> bool:
    """Whether this machine lets its users mount in namespaces of their own."""
    try:
        command = [*_ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
