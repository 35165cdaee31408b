"""Folders for a while: gone with their process, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trainer_module import scratch
from trainer_module.scratch import PREFIX, ScratchFolder

ROOT = Path(__file__).parents[2]
HOLDS_ONE = """
import sys
from trainer_module.scratch import ScratchFolder
folder = ScratchFolder()
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of which none is young."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "YOUNG_SECONDS", 0.0)
    return tmp_path


def test_folder_of_a_killed_process_goes_with_the_next_one(room: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(room)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        (held / "file").write_text("x")
        foreign = room / f"{PREFIX[:-1]}x"
        foreign.mkdir()
        with ScratchFolder() as own:
            assert held.is_dir(), "its process lives"
            assert Path(own).is_dir()
        process.kill()
        process.wait(60)
        with ScratchFolder() as own:
            assert {path.name for path in room.iterdir()} == {Path(own).name, foreign.name}
    finally:
        process.kill()
    assert [path.name for path in room.iterdir()] == [foreign.name]


def test_folder_that_is_young_is_left(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process may be about to lock it."""
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    new = room / f"{PREFIX}new"
    new.mkdir()
    with ScratchFolder():
        assert new.is_dir()
