"""Environments of peers that are no dependencies of the project, installed on first use."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".tools" / "peers"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with pinned packages, and the module that trains the peer in it."""

    module: str
    """The module, whose arguments are the files of a job and of its outcome."""
    requirements: str
    """The file with the pinned packages, beside this module."""

    def install(self) -> Path:
        """Returns the environment's Python, installed if it is absent or has other packages."""
        wanted = Path(__file__).with_name(self.requirements)
        folder = FOLDER / wanted.stem
        python, installed = folder / "bin" / "python", folder / wanted.name
        if not installed.exists() or installed.read_text() != wanted.read_text():
            uv = find_uv()
            subprocess.run([uv, "venv", "--quiet", "--clear", str(folder)], check=True)
            command = [uv, "pip", "install", "--quiet", "--python", str(python)]
            subprocess.run([*command, "--requirements", str(wanted)], check=True)
            shutil.copy(wanted, installed)
        return python

    def command(self, job: Path, outcome: Path) -> list[str]:
        """Returns the command that trains the peer; it imports modules from `ROOT`."""
        return [str(self.install()), "-m", self.module, str(job), str(outcome)]


ENVIRONMENTS = {
    "autogluon": Environment("benchmarks.models.autogluon_peer", "autogluon.txt"),
    "ludwig": Environment("benchmarks.models.ludwig_peer", "ludwig.txt"),
}
"""The environments by the name of the peer."""


def find_uv() -> str:
    """Returns the path of uv, installed or from `make setup`."""
    search_path = os.pathsep.join((os.environ.get("PATH", ""), str(ROOT / ".tools" / "bin")))
    return shutil.which("uv", path=search_path) or "uv"
