"""Runs the command line as a user does, in a process of its own."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from components.example_gen.builtin import BUILTIN_DATA
from tests.support import warm

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
        """A command line; the `--output` of `predict` is for its answers."""
        folder = "--output-folder" if arguments[:1] == ("predict",) else "--output"
        return [sys.executable, str(RUNNER), *map(str, arguments), folder, str(self.output)]

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

    def on_terminal(self, *arguments: str | Path) -> tuple[int, str]:
        """Runs a command on a terminal of 140 columns: its exit code, and all that was drawn."""
        screen, terminal = pty.openpty()
        tty.setraw(terminal)
        process = warm.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment, "TERM": "xterm", "COLUMNS": "140"},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.STDOUT,
        )
        os.close(terminal)
        drawn = b""
        with contextlib.suppress(OSError):  # Linux answers so once nobody has the terminal open.
            while part := os.read(screen, 1 << 16):
                drawn += part
        os.close(screen)
        return process.wait(60), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())

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

    @contextmanager
    def served(self, *arguments: str | Path) -> Iterator[str]:
        """The address of `serve`, from when it answers; it has to end well."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        address = f"http://127.0.0.1:{port}"
        process = self.start("serve", *arguments, "--port", str(port))
        try:
            wait_until(lambda: _answers(f"{address}/healthz"), process, pause=0.1)
            yield address
        finally:
            process.terminate()
            output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, output + errors

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


def few_digits(folder: Path, each: int = 40) -> str:
    """Copies a number of pictures of each digit; returns the folder that holds them."""
    shipped = Path(BUILTIN_DATA["digits"].locate(folder / "builtin"))
    for digit in shipped.iterdir():
        (copies := folder / "few" / digit.name).mkdir(parents=True)
        for picture in sorted(digit.iterdir())[:each]:
            shutil.copy(picture, copies)
    return str(folder / "few")


def wait_until(
    condition: Callable[[], Any],
    process: subprocess.Popen[str] | None = None,
    pause: float = 0.02,
    seconds: float = 300,
) -> None:
    """Returns when something is so, and fails where a process that it waits for has ended.

    Args:
      condition: called again and again.
      process: that brings it about; None where nothing tells that it will not come.
      pause: between two looks, in seconds.
      seconds: to wait at most.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause)


def _answers(url: str) -> bool:
    try:
        requests.get(url, timeout=60)
    except requests.ConnectionError:
        return False
    return True


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


def write_span(folder: Path, number: int, gold: float = 0.5, rows: int = 200) -> None:
    """A span of customers, of whom some part has the plan `gold`; written an hour ago."""
    generator = random.Random(number)  # noqa: S311
    path = folder / "days" / str(number) / "customers.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "price plan", "label"])
        for _ in range(rows):
            age = generator.uniform(20, 80)
            plan = "gold" if generator.random() < gold else "basic"
            writer.writerow([f"{age:.1f}", plan, int(age > 50)])
    an_hour_ago = path.stat().st_mtime - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
