"""A push is whole or not at all, whenever it is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.versions import INCOMING_PREFIX, free_version, push_version

FILES, FILE_SIZE = 40, 2**20
PUSH = """
import sys
from pathlib import Path
from components.versions import free_version, push_version
print("ready", flush=True)
sys.stdin.readline()
while True:
    push_version(Path(sys.argv[1]), free_version(Path(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "variables").mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    for i in range(FILES):
        (folder / "variables" / str(i)).write_bytes(bytes([i]) * FILE_SIZE)
    return folder


def contents(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


def test_versions_are_numbers_and_never_collide(model: Path, tmp_path: Path) -> None:
    base = tmp_path / "serving"
    versions = []
    for _ in range(3):
        versions.append(free_version(base))
        push_version(model, versions[-1])
    assert len(set(versions)) == 3
    assert sorted(p.name for p in base.iterdir()) == sorted(v.name for v in versions)
    assert all(v.name.isdigit() and contents(v) == contents(model) for v in versions)


def test_full_disk_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from components.versions import free_version, push_version\n"
        # A file may not grow beyond 1 KiB: the copy fails in the middle, as on a full disk.
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        "push_version(Path(sys.argv[1]), free_version(Path(sys.argv[2])))\n"
    )
    base = tmp_path / "serving"
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), str(base)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert list(base.iterdir()) == []


def test_kill_at_any_moment_leaves_whole_versions_alone(model: Path, tmp_path: Path) -> None:
    base = tmp_path / "serving"
    chance = random.Random(7)  # noqa: S311 - no secret
    abandoned = 0
    for _ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", PUSH, str(model), str(base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(chance.uniform(0.02, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stdin.close()
        abandoned += len(list(base.glob(f"{INCOMING_PREFIX}*")))
        for version in (p for p in base.iterdir() if p.name.isdigit()):
            assert contents(version) == contents(model)
    assert abandoned, "no kill fell into a copy; the model has to be larger"
    push_version(model, free_version(base))
    assert not list(base.glob(f"{INCOMING_PREFIX}*"))
