"""The wheel: its files and its entry points, also without the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PACKAGES = ("components", "configs", "pipeline", "trainer_module")


def tracked_files(*paths: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of a copy of the checkout, so that no earlier build leaves files in it."""
    copy, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in tracked_files(*PACKAGES, "*.py", "pyproject.toml", "README.md", "LICENSE"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    script = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", script, folder], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("scopeline-*-py3-none-any.whl")
    return zipfile.ZipFile(file)


def test_declared_entry_points_start_and_print_help(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = re.findall(r'"([\w-]+)=(\w+:\w+)"', (ROOT / "setup.py").read_text())
    assert {name for name, _ in declared} == {"scopeline", "scopeline-kubeflow"}
    for name, target in declared:
        command = EntryPoint(name, target, "console_scripts").load()
        monkeypatch.setattr("sys.argv", [name, "--help"])
        with pytest.raises(SystemExit) as ended:
            command()
        assert not ended.value.code


@pytest.mark.slow
def test_wheel_has_all_files_of_the_packages_and_no_others(wheel: zipfile.ZipFile) -> None:
    built = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {name for name in tracked_files("*.py") if "/" not in name} - {"setup.py"}
    assert built == tracked_files(*PACKAGES) | modules


@pytest.mark.slow
def test_commands_run_without_the_repository(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    wheel.extractall(site)
    empty.mkdir()
    script = (
        "from importlib.metadata import distribution;"
        "distribution('scopeline').entry_points[sys.argv[0]].load()()"
    )
    for name in ("scopeline", "scopeline-kubeflow"):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.argv[0] = {name!r}; {script}", "--version"],
            cwd=empty,
            env={"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
        )
        assert done.stdout == f"scopeline {VERSION}\n", done.stderr
    assert not list(empty.iterdir())
