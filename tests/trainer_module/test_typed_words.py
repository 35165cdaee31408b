"""Commands in messages begin with the words that the user has typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_module.extras import install_command
from trainer_module.typed_words import (
    in_typed_words,
    remember_options,
    typed_command,
    typed_kubeflow_command,
    typed_kubeflow_program,
    typed_program,
)

ROOT = Path(__file__).parents[2]
SHOW = """
import os, subprocess, sys
from trainer_module.typed_words import *
remember_program()
print(typed_program(), typed_kubeflow_program(), sep="|", flush=True)
child = "from trainer_module.typed_words import *; remember_program(); print(typed_program())"
subprocess.run([sys.executable, "-c", child])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with programs under all names, in a folder whose name has a space."""
    (tmp_path / "my bin").mkdir()
    for name in ("local_runner.py", "kubeflow_runner.py", "scopeline.py"):
        (tmp_path / name).write_text(SHOW)
    for name in ("scopeline", "scopeline-kubeflow"):
        script = tmp_path / "my bin" / name
        # As uv writes it for a Python with a space in its path.
        script.write_text(f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n' '''\n{SHOW}")
        script.chmod(0o755)
    (tmp_path / "my bin" / "python").symlink_to(sys.executable)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "local", "kubeflow"),
    [
        ("python local_runner.py run", "python local_runner.py", "python kubeflow_runner.py"),
        ("python -m local_runner run", "python -m local_runner", "python -m kubeflow_runner"),
        ("'my bin/scopeline' run", "'my bin/scopeline'", "'my bin/scopeline-kubeflow'"),
        ("scopeline-kubeflow submit", "scopeline", "scopeline-kubeflow"),
        ("UV_RUN_RECURSION_DEPTH=1 scopeline run", "uv run scopeline", None),
        ("SYSTEMD_EXEC_PID=$$ exec python local_runner.py schedule", "scopeline", None),
    ],
)
def test_command_begins_as_it_was_typed(
    folder: Path, line: str, local: str, kubeflow: str | None
) -> None:
    environment = {"PATH": f"{folder}/my bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    shown, child = done.stdout.splitlines()
    assert shown.split("|")[0] == child == local
    assert kubeflow in (None, shown.split("|")[1])


def test_program_for_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCOPELINE_PROGRAM", "venv/bin/python -u local_runner.py")
    assert typed_program(tmp_path) == "venv/bin/python -u local_runner.py"
    other = tmp_path / "other"
    assert typed_program(other) == f"{tmp_path}/venv/bin/python -u {tmp_path}/local_runner.py"


def test_options_name_the_same_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed_command("approve 7") == "scopeline approve 7 --config FILE"
    monkeypatch.setenv("SCOPELINE_OPTIONS", "")
    assert typed_command("approve 7") == "scopeline approve 7"
    remember_options(["--config", "my file.yaml", "--output", "out"])
    expected = "scopeline-kubeflow logs 1 --config 'my file.yaml' --output out"
    assert typed_kubeflow_command("logs 1") == expected
    remember_options(None)
    assert typed_command("approve 7").endswith(" --config FILE")


def test_only_commands_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPELINE_PROGRAM", "python local_runner.py")
    text = "scopeline run; scopeline-kubeflow submit; /opt/scopeline; scopeline.pth; Scopeline is"
    assert in_typed_words(text) == (
        "python local_runner.py run; python kubeflow_runner.py submit; "
        "/opt/scopeline; scopeline.pth; Scopeline is"
    )
    assert typed_kubeflow_program() == "python kubeflow_runner.py"


@pytest.mark.parametrize(
    ("extra", "packages"), [("control", ["gymnasium"]), ("gpu", ["tensorflow[and-cuda]"])]
)
def test_extra_is_installed_by_the_names_of_its_packages(extra: str, packages: list[str]) -> None:
    command = install_command(extra)
    assert sys.executable in command
    assert all(f"'{package}<" in command or f"'{package}>" in command for package in packages)
    assert "scopeline[" not in command
