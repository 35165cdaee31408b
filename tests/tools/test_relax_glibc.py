"""The set-up step that lets the wheels load on an older Linux, on the real extension modules."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools import relax_glibc

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
NEW = relax_glibc.KNOWN_VERSIONS


def everything(library: str, version: bytes) -> bool:
    return True


def nothing_new(library: str, version: bytes) -> bool:
    return version not in NEW


@pytest.mark.parametrize("name", relax_glibc.EXTENSIONS)
def test_installed_module_has_nothing_left_to_relax(name: str) -> None:
    data = bytearray((SITE_PACKAGES / name).read_bytes())
    before = bytes(data)
    assert relax_glibc.relax(data, relax_glibc.SystemVersions()) == 0
    assert data == before


@pytest.mark.parametrize("name", relax_glibc.EXTENSIONS)
def test_new_enough_system_is_left_alone(name: str, tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    shutil.copy(SITE_PACKAGES / name, module)
    inode = module.stat().st_ino
    assert relax_glibc.relax_file(module, everything) == 0
    assert module.stat().st_ino == inode


@pytest.mark.parametrize("name", relax_glibc.EXTENSIONS)
def test_relaxing_is_idempotent(name: str, tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    shutil.copy(SITE_PACKAGES / name, module)
    relax_glibc.relax_file(module, nothing_new)
    once = module.read_bytes()
    assert relax_glibc.relax_file(module, nothing_new) == 0
    assert module.read_bytes() == once


def test_unknown_version_is_refused_and_the_file_kept(tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    shutil.copy(SITE_PACKAGES / relax_glibc.EXTENSIONS[0], module)
    before = module.read_bytes()
    with pytest.raises(
        relax_glibc.UnknownBinaryError, match=r"the module needs GLIBC_2[.\d]+ of libc\.so\.6"
    ):
        relax_glibc.relax_file(module, lambda library, version: not version.startswith(b"GLIBC_2"))
    assert module.read_bytes() == before


def test_other_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    for name in relax_glibc.EXTENSIONS:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("not a library")
    script = Path(relax_glibc.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "not a 64-bit little-endian ELF file. Use a Linux with glibc 2.39" in done.stderr
    assert "Traceback" not in done.stderr


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
