"""Extension modules are edited so that they load on an older Linux."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from components.compat import older_linux

ROOT = Path(__file__).parents[3]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def is_new(library: str, version: bytes) -> bool:
    """A system that has all versions."""
    return True


def is_old(library: str, version: bytes) -> bool:
    """A system that lacks the versions that the wheels of today need."""
    return version not in older_linux.KNOWN_VERSIONS


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with the two extension modules, as their wheels have them."""
    for name in older_linux.EXTENSIONS:
        data = bytearray((SITE_PACKAGES / name).read_bytes())
        for need in older_linux.ElfFile(data).needs:
            if need.name in older_linux.KNOWN_VERSIONS:
                struct.pack_into("<H", data, need.flags_offset, 0)
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(data)
        (tmp_path / name.partition("/")[0] / "__init__.py").touch()
    return tmp_path


def test_modules_are_edited_once_on_an_older_linux_alone(packages: Path) -> None:
    for name in older_linux.EXTENSIONS:
        module = packages / name
        before = module.read_bytes()
        assert older_linux.relax_file(module, is_new) == 0
        assert module.read_bytes() == before
        assert older_linux.relax_file(module, is_old) > 0
        once = module.read_bytes()
        assert len(once) == len(before)
        needs = older_linux.ElfFile(bytearray(once)).needs
        new = [need for need in needs if need.name in older_linux.KNOWN_VERSIONS]
        assert new
        assert all(need.weak for need in new)
        assert older_linux.relax_file(module, is_old) == 0
        assert module.read_bytes() == once


def test_environment_that_needs_the_edit_is_found(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(name, packages / name) for name in older_linux.EXTENSIONS]
    monkeypatch.setattr(older_linux, "_find_extensions", lambda: iter(found))
    monkeypatch.setattr(older_linux, "SystemVersions", lambda: is_new)
    assert not older_linux.needs_relaxing()
    monkeypatch.setattr(older_linux, "SystemVersions", lambda: is_old)
    assert older_linux.needs_relaxing()
    older_linux.relax_environment()
    assert not older_linux.needs_relaxing()


def test_unknown_version_is_refused_and_the_file_kept(packages: Path) -> None:
    module = packages / older_linux.EXTENSIONS[0]
    before = module.read_bytes()
    with pytest.raises(older_linux.UnknownBinaryError, match=r"GLIBC_2[.\d]+ of libc\.so\.6"):
        older_linux.relax_file(module, lambda library, version: not version.startswith(b"GLIBC_2"))
    assert module.read_bytes() == before


def test_other_files_are_refused_by_a_program_without_our_packages(packages: Path) -> None:
    """As tools/setup.sh runs it: with the standard library alone."""
    for name in older_linux.EXTENSIONS:
        (packages / name).write_text("not a library")
    for name in ("pipeline", "components", "trainer_module", "typer"):
        (packages / f"{name}.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [sys.executable, "-P", older_linux.__file__],
        env={"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "ELF" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_failed_import_names_the_command(packages: Path) -> None:
    message = "libc.so.6: version `GLIBC_2.38' not found (required by metadata_store_extension.so)"
    (packages / "ml_metadata" / "__init__.py").write_text(f"raise ImportError({message!r})")
    # The first of the large libraries needs this one at once, not after seconds of imports.
    for name in ("tensorflow", "tfx"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("import ml_metadata")
    done = subprocess.run(
        [sys.executable, "-m", "scopeline", "run", "--output", str(packages / "output")],
        env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"},
        cwd=packages,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(" doctor --fix")
