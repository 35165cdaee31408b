"""Runs the command line as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "local_runner.py"
SMALL = "model={kind: cnn, filters: [4], hidden_units: [16]}"
"""The digits in a model that is trained, exported and evaluated in seconds."""


@dataclass(frozen=True)
class Project:
    """A folder that pipelines run in, and its output."""

    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def temporary(self) -> Path:
        """Where its commands have their temporary files."""
        return self.folder / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        """That of its commands."""
        self.temporary.mkdir(exist_ok=True)
        return {**os.environ, "TMPDIR": str(self.temporary)}

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, str(RUNNER), *map(str, arguments), "--output", str(self.output)]

    def scopeline(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        return warm.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def cold(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a command in a Python of its own, with nothing that the tests set for TensorFlow."""
        environment = self.environment
        environment.pop("TF_USE_LEGACY_KERAS", None)
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Starts a command; the caller ends it."""
        return warm.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def summary(self, name: str) -> dict[str, Any]:
        """The summary of the newest run of a pipeline."""
        newest = max((self.output / name / "runs").iterdir())
        return dict(json.loads((newest / "summary.json").read_text()))

    def states(self, name: str) -> dict[str, str]:
        """The state of each component in the newest run."""
        return {c["name"]: c["state"] for c in self.summary(name)["components"]}

    def versions(self, name: str) -> list[str]:
        """Everything in the serving folder."""
        return sorted(p.name for p in (self.output / name / "serving" / name).glob("*"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder of a module's own."""
    return Project(tmp_path_factory.mktemp("project"))


def answered_alone(code: str, model: Path, given: Any) -> Any:
    """What a program prints as JSON in an interpreter that finds none of our code.

    Args:
      code: of the program.
      model: its argument, the folder of a version.
      given: its input, as JSON.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(model)],
        input=json.dumps(given),
        cwd=Path("/"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plain(text: str) -> str:
    """Asserts that a text has no terminal control sequences, and returns it."""
    assert not re.search(r"\x1b|\r", text)
    return text


def snapshot(folder: Path) -> dict[str, int]:
    """All files and folders below a folder, with the time of their last change."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.exists()
    }
