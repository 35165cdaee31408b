"""What `tools/setup.sh` says on machines that lack what it needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_PIP = 'echo "No module named pip" >&2; exit 1'
PIP_FAILS = 'test "$4" != --quiet'
UV_WITHOUT_PYTHON = 'test "$1" != sync -a "$1 $2" != "python find"'
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
    ("programs", "said"),
    [
        ({"uname": "echo aarch64"}, "set-up: this is aarch64 on aarch64, but the wheels"),
        ({}, "set-up: python3 is missing; install Python 3.11, 3.12 or 3.13 with pip"),
        ({"python3": NO_PIP}, "/bin/python3 has no pip; install it (Debian and Ubuntu: apt-get"),
        ({"python3": PIP_FAILS}, "set-up: uv could not be installed, for the reason"),
        ({"uv": UV_WITHOUT_PYTHON}, "set-up: no Python 3.11, 3.12 or 3.13 was found here"),
        ({"uv": UV_FAILS}, "set-up: the packages could not be installed, for the reason"),
    ],
)
def test_setup_says_in_a_sentence_what_is_missing(
    programs: dict[str, str], said: str, checkout: Path
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
    assert said in done.stderr.splitlines()[-1]
    assert not (checkout / ".venv" / ".ready").exists()
