"""Folders for a while: gone with their process, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trainer_module.scratch import (
    PREFIX,
    ScratchFolder,
    lasting_folder,
    own_temporary_files,
)

ROOT = Path(__file__).parents[2]
HOLDS_ONE = """
import subprocess, sys, tempfile
from trainer_module.scratch import own_temporary_files
with own_temporary_files():
    tempfile.mkstemp()
    child = "import tempfile; print(tempfile.mkstemp()[1])"
    subprocess.run([sys.executable, "-c", child])
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_files_of_a_killed_process_are_deleted_by_the_next(room: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip()).parent
        assert held.parent == room
        foreign = room / f"{PREFIX[:-1]}x"
        foreign.mkdir()
        with ScratchFolder() as own:
            assert len(list(held.iterdir())) == 2, "its process lives"
            assert Path(own).is_dir()
        process.kill()
        process.wait(60)
        with ScratchFolder() as own:
            assert {path.name for path in room.iterdir()} == {Path(own).name, foreign.name}
    finally:
        process.kill()
    assert [path.name for path in room.iterdir()] == [foreign.name]


def test_temporary_files_are_elsewhere_for_a_while(room: Path) -> None:
    with own_temporary_files() as folder:
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == folder
        assert lasting_folder() == str(room)
        with own_temporary_files() as inner:
            assert Path(inner).parent == Path(folder)
            assert lasting_folder() == str(room)
        with pytest.raises(ZeroDivisionError), own_temporary_files():
            1 / 0  # noqa: B018
        assert os.environ["TMPDIR"] == folder
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == lasting_folder() == str(room)
    assert not list(room.iterdir())
