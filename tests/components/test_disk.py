"""Files are written completely or not at all, and without leftovers."""

from __future__ import annotations

import os
import time
from pathlib import Path

from components.disk import write_atomically


def test_leftovers_of_killed_writes_are_deleted_by_the_next_write(tmp_path: Path) -> None:
    file, others = tmp_path / "a[1].json", [".a[1].json.7.tmp", ".b.json.7.tmp", ".a[1].json.8.tmp"]
    for name in others:
        (tmp_path / name).write_text("half")
    for name in others[:2]:
        os.utime(tmp_path / name, (time.time() - 4000,) * 2)
    write_atomically(file, "whole")
    assert file.read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([file.name, *others[1:]])
