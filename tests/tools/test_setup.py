"""`tools/setup.sh` fails on machines that lack what it needs, and names it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP_FAILS = 'test "$4" != --quiet'
UV_FAILS = 'test "$1" != sync'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that has not been set up, next to a folder `bin` with what set-up itself calls."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "setup.sh", tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def install(checkout: Path, name: str, script: str) -> None:
    program = checkout / "bin" / name
    program.write_text(f"#!{shutil.which('sh')}\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("programs", "missing"),
    [
        ({"uname": "echo aarch64"}, "aarch64"),
        ({}, "python3 is missing"),
        ({"python3": PIP_FAILS}, "uv could not"),
        ({"uv": UV_FAILS}, "packages could not"),
    ],
)
def test_set_up_without_requirements_fails_and_names_what_is_missing(
    programs: dict[str, str], missing: str, checkout: Path
) -> None:
    install(checkout, "uname", 'test "$1" = -s && echo Linux || echo x86_64')
    for name, script in programs.items():
        install(checkout, name, script)
    done = subprocess.run(
        ["bash", "tools/setup.sh"],
        cwd=checkout,
        env={"PATH": str(checkout / "bin")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert missing in done.stderr.splitlines()[-1]
    assert not (checkout / ".venv" / ".ready").exists()
