"""The step that lets the wheels load on an older Linux, on the real extension modules."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from components.compat import older_linux

ROOT = Path(__file__).parents[3]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
NEW = older_linux.KNOWN_VERSIONS


def everything(library: str, version: bytes) -> bool:
    return True


def nothing_new(library: str, version: bytes) -> bool:
    return version not in NEW


@pytest.mark.parametrize("name", older_linux.EXTENSIONS)
def test_installed_module_has_nothing_left_to_relax(name: str) -> None:
    data = bytearray((SITE_PACKAGES / name).read_bytes())
    before = bytes(data)
    assert older_linux.relax(data, older_linux.SystemVersions()) == 0
    assert data == before


@pytest.mark.parametrize("name", older_linux.EXTENSIONS)
def test_new_enough_system_is_left_alone(name: str, tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    shutil.copy(SITE_PACKAGES / name, module)
    inode = module.stat().st_ino
    assert older_linux.relax_file(module, everything) == 0
    assert module.stat().st_ino == inode


@pytest.mark.parametrize("name", older_linux.EXTENSIONS)
def test_relaxing_is_idempotent(name: str, tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    shutil.copy(SITE_PACKAGES / name, module)
    older_linux.relax_file(module, nothing_new)
    once = module.read_bytes()
    assert older_linux.relax_file(module, nothing_new) == 0
    assert module.read_bytes() == once


def test_unknown_version_is_refused_and_the_file_kept(tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    shutil.copy(SITE_PACKAGES / older_linux.EXTENSIONS[0], module)
    before = module.read_bytes()
    with pytest.raises(
        older_linux.UnknownBinaryError, match=r"the module needs GLIBC_2[.\d]+ of libc\.so\.6"
    ):
        older_linux.relax_file(module, lambda library, version: not version.startswith(b"GLIBC_2"))
    assert module.read_bytes() == before


def run_program(packages: Path) -> subprocess.CompletedProcess[str]:
    """Runs the module as tools/setup.sh does; a folder of packages hides the installed ones."""
    return subprocess.run(
        [sys.executable, "-P", older_linux.__file__],
        env={"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with the two packages, whose modules are not libraries."""
    for name in older_linux.EXTENSIONS:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("not a library")
        (tmp_path / name.partition("/")[0] / "__init__.py").touch()
    return tmp_path


def test_other_files_are_refused_in_one_sentence(packages: Path) -> None:
    done = run_program(packages)
    assert done.returncode == 1
    assert "not a 64-bit little-endian ELF file. Use a Linux with glibc 2.39" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_program_imports_the_standard_library_alone(packages: Path) -> None:
    for name in ("pipeline", "components", "trainer_module", "typer"):
        (packages / f"{name}.py").write_text("raise SystemExit('imported')")
    assert "not a 64-bit little-endian ELF file" in run_program(packages).stderr


def test_a_run_names_the_command_before_it_imports_the_library(packages: Path) -> None:
    for name in older_linux.EXTENSIONS:
        data = bytearray((SITE_PACKAGES / name).read_bytes())
        for need in older_linux.ElfFile(data).needs:
            if need.name in NEW:
                struct.pack_into("<H", data, need.flags_offset, 0)
        (packages / name).write_bytes(data)
    (packages / "ml_metadata" / "__init__.py").write_text("raise SystemExit('imported')")
    code = "from components.compat import older_linux as o; print(o.needs_relaxing())"
    environment = {**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    is_old = not older_linux.SystemVersions()("libc.so.6", b"GLIBC_2.38")
    assert done.stdout.decode().strip() == str(is_old)
    if is_old:
        check_advice(packages)


def test_a_failed_import_names_the_command(packages: Path) -> None:
    message = "libc.so.6: version `GLIBC_2.38' not found (required by metadata_store_extension.so)"
    (packages / "ml_metadata" / "__init__.py").write_text(f"raise ImportError({message!r})")
    # The first of the large libraries needs this one at once, not after seconds of imports.
    for name in ("tensorflow", "tfx"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("import ml_metadata")
    check_advice(packages)


def check_advice(packages: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scopeline", "run", "--output", str(packages / "output")],
        env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"},
        cwd=packages,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("a library needs a newer Linux than this one; run: ")
    assert line.endswith(" doctor --fix")


def test_the_relaxed_libraries_work() -> None:
    script = (
        "from ml_metadata import metadata_store\n"
        "from ml_metadata.proto import metadata_store_pb2 as pb\n"
        "config = pb.ConnectionConfig()\n"
        "config.fake_database.SetInParent()\n"
        "store = metadata_store.MetadataStore(config)\n"
        "print(store.put_artifact_type(pb.ArtifactType(name='t')))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip().isdigit(), done.stderr
