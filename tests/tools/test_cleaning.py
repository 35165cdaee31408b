"""`make clean` keeps output/, and `make clean-output` deletes it only after a confirmation."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, and what builds, tests and runs leave."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in (".venv", "build", ".mypy_cache", "pipeline/__pycache__", "output/digits"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "output/digits/ledger.db").touch()
    return tmp_path


def make(
    checkout: Path, *arguments: str, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=checkout, stdin=stdin, capture_output=True, text=True)


def left(checkout: Path) -> set[str]:
    return {path.name for path in checkout.iterdir()}


def test_clean_keeps_the_output(checkout: Path) -> None:
    assert make(checkout, "clean").returncode == 0
    assert left(checkout) == {"Makefile", "output", "pipeline"}
    assert (checkout / "output/digits/ledger.db").exists()
    assert not (checkout / "pipeline/__pycache__").exists()


def test_output_is_deleted_only_with_confirm(checkout: Path) -> None:
    refused = make(checkout, "clean-output")
    assert refused.returncode == 2
    assert "CONFIRM=yes" in refused.stderr
    assert "output" in left(checkout)
    assert make(checkout, "clean-output", "CONFIRM=yes").returncode == 0
    assert left(checkout) == {"Makefile", ".venv", "build", ".mypy_cache", "pipeline"}


def test_output_is_deleted_only_after_yes_in_a_terminal(checkout: Path) -> None:
    for answer, code in (("n\n", 2), ("y\n", 0)):
        ours, theirs = os.openpty()
        try:
            os.write(ours, answer.encode())
            done = make(checkout, "clean-output", stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)
        assert done.returncode == code
        assert ("output" in left(checkout)) == (code != 0)
